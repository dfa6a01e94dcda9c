//! Query planner for a filter: which tables to scan, and which conditions remain to be checked.

use kukuri_domain::{Address, Filter, KindClass, Letter, PublicKey, topic::claims_to_be_topic};

use crate::{
    error::Result,
    key::{AuthorNo, EventNo, TopicNo, prefix},
    record::{Cover, TopicRecord},
    scan::{Scan, distinct},
    tables::{Table, View},
};

/// Maximum ranges made by combining two lists of a filter.
const MAX_RANGES: usize = 1_024;
/// Topics with at most this many events together are scanned instead of a tag that is common elsewhere.
const SMALL_TOPIC: u64 = 1_000;
/// Reading one event costs as much as skipping this many index rows.
const ROWS_PER_EVENT: u64 = 16;

/// The plan of one filter.
pub(crate) struct Plan {
    pub(crate) access_path: AccessPath,
    /// Sorted authors and topics that index rows must match. `None`: any.
    authors: Option<Vec<AuthorNo>>,
    topics: Option<Vec<TopicNo>>,
    /// Whether the filter has conditions that index rows can't decide.
    needs_event: bool,
    /// Whether the filter asks for tags besides topics, which are not in the head of an event.
    needs_tags: bool,
    /// Sorted topics of which a row must have one. `None`: any.
    topics_of_row: Option<Vec<TopicNo>>,
}

/// Source of candidate rows.
pub(crate) enum AccessPath {
    /// Rows known by number, from ids or from keys.
    Rows(Vec<EventNo>),
    /// Ranges of newest-first tables.
    Scan(Scan),
}

impl Plan {
    /// A plan without candidates.
    pub(crate) fn nothing() -> Self {
        Self {
            access_path: AccessPath::Rows(Vec::new()),
            authors: None,
            topics: None,
            needs_event: false,
            needs_tags: true,
            topics_of_row: None,
        }
    }

    /// Picks the most selective index for the filter.
    pub(crate) fn choose(filter: &Filter, newest: EventNo, view: View<'_>) -> Result<Self> {
        let mut plan = Self::nothing();
        let topics = filter.tag_values(Letter::T).map(|values| TopicValues::read(values, view)).transpose()?;
        plan.needs_tags = filter.tags().iter().any(|(letter, _)| *letter != Letter::T)
            || topics.as_ref().is_some_and(|topics| !topics.hashtags.is_empty());
        plan.topics_of_row = topics.as_ref().map(|topics| topics.topics.clone());
        if let Some(rows) = rows_by_id_or_key(filter, view)? {
            plan.access_path = AccessPath::Rows(rows);
            plan.needs_event = true;
            return Ok(plan);
        }
        plan.authors = filter.authors().map(|authors| author_numbers(authors, view)).transpose()?;
        let names_nobody = plan.authors.as_ref().is_some_and(Vec::is_empty);
        let names_no_topic = topics.as_ref().is_some_and(TopicValues::is_empty);
        if names_nobody || names_no_topic {
            return Ok(plan);
        }
        // Of several tags other than `t`, the one with the fewest values is the most selective.
        let other_tags = || filter.tags().iter().filter(|(letter, _)| *letter != Letter::T);
        let tag = other_tags().min_by_key(|(_, values)| values.len());
        let window = filter.window();
        let mut scan = Scan::new(newest);
        let goes_by_tag = match (tag, &topics) {
            (Some((letter, values)), Some(topics)) if topics.are_small() => {
                has_fewer_rows(*letter, values, topics.events * ROWS_PER_EVENT, view)?
            }
            _ => true,
        };
        match (tag.filter(|_| goes_by_tag), &plan.authors, &topics) {
            (Some((letter, values)), _, topics) => {
                values.iter().for_each(|value| scan.add(Table::ByTag, prefix::tag(*letter, value), &window));
                plan.needs_event = other_tags().count() > 1;
                plan.show_topics(topics.as_ref());
            }
            (_, Some(authors), Some(topics)) if topics.hashtags.is_empty() && fits(authors, &topics.topics) => {
                for author in authors {
                    for topic in &topics.topics {
                        scan.add(Table::ByAuthor, prefix::author_topic(*author, *topic), &window);
                    }
                }
                plan.needs_event = tag.is_some();
            }
            (_, Some(authors), topics) => {
                for author in authors {
                    for prefix in distinct(view, Table::ByAuthor, &prefix::author(*author), 4)? {
                        scan.add(Table::ByAuthor, prefix, &window);
                    }
                }
                plan.needs_event = tag.is_some();
                plan.show_topics(topics.as_ref());
            }
            (_, None, Some(topics)) => {
                for hashtag in &topics.hashtags {
                    scan.add(Table::ByTag, prefix::tag(Letter::T, hashtag), &window);
                }
                let kinds = filter.kinds().filter(|kinds| fits(kinds, &topics.topics));
                for topic in &topics.topics {
                    match kinds {
                        Some(kinds) => kinds.iter().for_each(|kind| {
                            scan.add(Table::ByTopicKind, prefix::topic_kind(*topic, *kind), &window);
                        }),
                        None => scan.add(Table::ByTopic, prefix::topic(*topic), &window),
                    }
                }
                plan.needs_event = tag.is_some();
            }
            (_, None, None) => match filter.kinds() {
                Some(kinds) => kinds.iter().for_each(|kind| scan.add(Table::ByKind, prefix::kind(*kind), &window)),
                None => {
                    for prefix in distinct(view, Table::ByKind, &[], 2)? {
                        scan.add(Table::ByKind, prefix, &window);
                    }
                }
            },
        }
        plan.access_path = AccessPath::Scan(scan);
        Ok(plan)
    }

    /// For a scan that is not by topic: index rows must match the topics.
    fn show_topics(&mut self, topics: Option<&TopicValues<'_>>) {
        if let Some(topics) = topics {
            self.needs_event |= !topics.hashtags.is_empty();
            self.topics = Some(topics.topics.clone());
        }
    }

    /// Checks the author and the topic of an index row. `None`: no match; else whether the event must be read to decide
    /// the rest.
    pub(crate) fn may_match(&self, cover: &Cover) -> Option<bool> {
        let author_fits = self.authors.as_ref().is_none_or(|authors| authors.binary_search(&cover.author).is_ok());
        if !author_fits {
            return None;
        }
        let mut needs_event = self.needs_event;
        if let Some(topics) = &self.topics {
            let topic_fits = topics.binary_search(&cover.topic).is_ok();
            let may_yet_fit = cover.traits.has_many_topics() || self.needs_event;
            if !topic_fits && !may_yet_fit {
                return None;
            }
            needs_event |= !topic_fits;
        }
        Some(needs_event)
    }

    /// Whether a row's topics match. `None`: the filter needs more than the topics and the head of the event.
    pub(crate) fn topics_fit(&self, topics: &[TopicNo]) -> Option<bool> {
        let fits = |wanted: &Vec<TopicNo>| topics.iter().any(|topic| wanted.binary_search(topic).is_ok());
        (!self.needs_tags).then(|| self.topics_of_row.as_ref().is_none_or(fits))
    }
}

/// Whether a tag has fewer index rows than `bound`, over all its values.
fn has_fewer_rows(letter: Letter, values: &[Box<str>], bound: u64, view: View<'_>) -> Result<bool> {
    let mut rows = 0;
    for value in values {
        let left = usize::try_from(bound - rows).unwrap_or(usize::MAX);
        let entries = view.prefix_iter(Table::ByTag, &prefix::tag(letter, value))?;
        rows += entries.take(left).count() as u64;
        if rows >= bound {
            return Ok(false);
        }
    }
    Ok(true)
}

fn author_numbers(authors: &[PublicKey], view: View<'_>) -> Result<Vec<AuthorNo>> {
    let numbers = authors.iter().filter_map(|author| view.find(author.as_bytes()).transpose());
    let mut numbers = numbers.collect::<Result<Vec<_>>>()?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// The values of `#t`, split into topics and hashtags.
struct TopicValues<'v> {
    topics: Vec<TopicNo>,
    hashtags: Vec<&'v str>,
    /// Effective events of these topics together.
    events: u64,
}

/// Whether the product of two lists is within [`MAX_RANGES`].
fn fits<A, B>(some: &[A], others: &[B]) -> bool {
    some.len().saturating_mul(others.len()) <= MAX_RANGES
}

impl<'v> TopicValues<'v> {
    fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.hashtags.is_empty()
    }

    /// Whether scanning all their events is cheaper than a tag that is common elsewhere.
    fn are_small(&self) -> bool {
        self.hashtags.is_empty() && self.events <= SMALL_TOPIC
    }

    fn read(values: &'v [Box<str>], view: View<'_>) -> Result<Self> {
        let mut all = Self { topics: Vec::new(), hashtags: Vec::new(), events: 0 };
        for value in values {
            if claims_to_be_topic(value) {
                // A topic without a record has never had an event.
                if let Some(record) = view.find::<TopicRecord>(value.as_bytes())? {
                    all.topics.push(record.no);
                    all.events += record.counters.effective;
                }
            } else {
                all.hashtags.push(value);
            }
        }
        all.topics.sort_unstable();
        Ok(all)
    }
}

/// Rows that can be looked up one by one: by id, or by key if the filter names authors and only kinds of which an
/// author has one event.
fn rows_by_id_or_key(filter: &Filter, view: View<'_>) -> Result<Option<Vec<EventNo>>> {
    let mut rows = Vec::new();
    if let Some(ids) = filter.ids() {
        for id in ids {
            rows.extend(view.known_id(id)?.and_then(|known| known.no));
        }
        return Ok(Some(rows));
    }
    let (Some(authors), Some(kinds)) = (filter.authors(), filter.kinds()) else { return Ok(None) };
    if !fits(authors, kinds) || !kinds.iter().all(|kind| kind.class() == KindClass::Replaceable) {
        return Ok(None);
    }
    for author in authors {
        for kind in kinds {
            let key = view.key(&Address::replaceable(*kind, *author))?;
            rows.extend(key.and_then(|key| key.current));
        }
    }
    Ok(Some(rows))
}
