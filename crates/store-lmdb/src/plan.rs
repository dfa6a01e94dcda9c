//! Query planner for a filter: which tables to scan, and which conditions remain to be checked.

use std::ops::RangeInclusive;

use kukuri_domain::{Address, Filter, Kind, KindClass, Letter, PublicKey, Timestamp, topic::claims_to_be_topic};

use crate::{
    error::Result,
    grant::Grant,
    key::{AuthorNo, EventNo, TopicNo, prefix},
    record::{Cover, TopicRecord},
    scan::Scan,
    tables::{Table, View},
};

/// Maximum ranges made by combining two lists of a filter.
const MAX_RANGES: usize = 1_024;
/// Maximum ranges of authors, one per author and topic of the author. A range costs a seek and some 200 bytes.
const MAX_AUTHOR_RANGES: usize = if cfg!(test) { 16 } else { 8_192 };
/// Topics with at most this many events together are scanned instead of a tag that is common elsewhere.
const SMALL_TOPIC: u64 = 1_000;
/// Reading one event costs as much as skipping this many index rows.
const ROWS_PER_EVENT: u64 = 16;
/// Maximum index rows of a tag that are counted to choose between the tag and a small topic (Y-2).
const MAX_PROBED_ROWS: u64 = 2_048;

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

/// Whether a plan may scan the ranges of authors, of which there is one per topic of an author.
#[derive(Clone, Copy)]
pub(crate) enum AuthorScan {
    /// Unless there turn out to be more than [`MAX_AUTHOR_RANGES`].
    Allowed,
    /// There are more. Another index is scanned.
    TooManyRanges,
}

/// Source of candidate rows.
pub(crate) enum AccessPath {
    /// Rows known by number, from ids or from keys. Their lookups are counted, so that they cost no row again.
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

    /// Picks the most selective index for the filter. Takes the lookups from the grant, which may be too small for them:
    /// see [`lookups`]. Reads no ranges.
    pub(crate) fn choose(
        filter: &Filter,
        newest: EventNo,
        author_scan: AuthorScan,
        grant: &mut Grant,
        view: View<'_>,
    ) -> Result<Self> {
        grant.take(lookups(filter));
        let mut plan = Self::nothing();
        let topics = filter.tag_values(Letter::T).map(|values| TopicValues::read(values, filter, view)).transpose()?;
        plan.needs_tags = filter.tags().iter().any(|(letter, _)| *letter != Letter::T)
            || topics.as_ref().is_some_and(|topics| !topics.hashtags.is_empty());
        plan.topics_of_row = topics.as_ref().map(|topics| topics.topics.clone());
        if let Some(mut rows) = rows_by_id_or_key(filter, view)? {
            // A later step of a query may plan: what arrived since its first step is delivered live.
            rows.retain(|no| *no <= newest);
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
                let bound = (topics.events * ROWS_PER_EVENT).min(MAX_PROBED_ROWS);
                has_fewer_rows(*letter, values, bound, grant, view)?
            }
            _ => true,
        };
        let scanned_tag = tag.filter(|_| goes_by_tag);
        let scanned_authors = match (&plan.authors, scanned_tag, author_scan) {
            (Some(authors), None, AuthorScan::Allowed) => Some(authors),
            _ => None,
        };
        match (scanned_tag, scanned_authors, &topics) {
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
                topics.add_requests(&mut scan, &window);
                plan.needs_event = tag.is_some();
            }
            (_, Some(authors), topics) => {
                for author in authors {
                    scan.add_family(Table::ByAuthor, prefix::author(*author), 4, &window);
                }
                scan.bound_ranges(MAX_AUTHOR_RANGES);
                plan.needs_event = tag.is_some();
                plan.show_topics(topics.as_ref());
            }
            (_, None, Some(topics)) => {
                for hashtag in &topics.hashtags {
                    scan.add(Table::ByTag, prefix::tag(Letter::T, hashtag), &window);
                }
                topics.add_requests(&mut scan, &window);
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
                None => scan.add_family(Table::ByKind, Vec::new(), 2, &window),
            },
        }
        plan.access_path = AccessPath::Scan(scan);
        Ok(plan)
    }

    /// Whether the plan must be replaced by one without the ranges of authors.
    pub(crate) fn has_too_many_ranges(&self) -> bool {
        matches!(&self.access_path, AccessPath::Scan(scan) if scan.has_too_many_ranges())
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
            // A request has tags of topics that it is not bound to (T-9).
            let may_yet_fit = cover.traits.has_many_topics() || self.needs_event || cover.kind.is_request();
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

/// Lookups that planning a filter takes: one for each topic and each id, author or key that it names.
pub(crate) fn lookups(filter: &Filter) -> usize {
    let named = match (filter.ids(), keys(filter), filter.authors()) {
        (Some(ids), ..) => ids.len(),
        (_, Some((authors, kinds)), _) => authors.len() * kinds.len(),
        (.., authors) => authors.map_or(0, <[_]>::len),
    };
    named + filter.tag_values(Letter::T).map_or(0, <[_]>::len)
}

/// Whether a tag has fewer index rows than `bound`, over all its values.
fn has_fewer_rows(letter: Letter, values: &[Box<str>], bound: u64, grant: &mut Grant, view: View<'_>) -> Result<bool> {
    let mut rows = 0;
    for value in values {
        let left = usize::try_from(bound - rows).unwrap_or(usize::MAX);
        let entries = view.prefix_iter(Table::ByTag, &prefix::tag(letter, value))?;
        let counted = entries.take(left).count();
        // A seek, and rows that are only skipped.
        grant.take(1 + counted / ROWS_PER_EVENT as usize);
        rows += counted as u64;
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
    /// The topics, if the filter may match requests: these may name a topic without being bound to it (T-9).
    requested: Vec<&'v str>,
    /// Effective events of these topics together.
    events: u64,
}

/// Whether the product of two lists is within [`MAX_RANGES`].
fn fits<A, B>(some: &[A], others: &[B]) -> bool {
    some.len().saturating_mul(others.len()) <= MAX_RANGES
}

impl<'v> TopicValues<'v> {
    fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.hashtags.is_empty() && self.requested.is_empty()
    }

    /// Adds the requests that name these topics and are not bound to them.
    fn add_requests(&self, scan: &mut Scan, window: &RangeInclusive<Timestamp>) {
        self.requested.iter().for_each(|topic| scan.add(Table::ByTag, prefix::tag(Letter::T, topic), window));
    }

    /// Whether scanning all their events is cheaper than a tag that is common elsewhere.
    fn are_small(&self) -> bool {
        self.hashtags.is_empty() && self.events <= SMALL_TOPIC
    }

    fn read(values: &'v [Box<str>], filter: &Filter, view: View<'_>) -> Result<Self> {
        let mut all = Self { topics: Vec::new(), hashtags: Vec::new(), requested: Vec::new(), events: 0 };
        let has_requests = filter.kinds().is_none_or(|kinds| kinds.iter().any(|kind| kind.is_request()));
        for value in values {
            if claims_to_be_topic(value) {
                all.requested.extend(has_requests.then_some(&**value));
                // No event is bound to a topic without a record.
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

/// Authors and kinds whose events can be looked up by key: an author has one event of each of these kinds.
fn keys(filter: &Filter) -> Option<(&[PublicKey], &[Kind])> {
    let (authors, kinds) = (filter.authors()?, filter.kinds()?);
    let are_keys = fits(authors, kinds) && kinds.iter().all(|kind| kind.class() == KindClass::Replaceable);
    are_keys.then_some((authors, kinds))
}

/// Rows that can be looked up one by one: by id or by key.
fn rows_by_id_or_key(filter: &Filter, view: View<'_>) -> Result<Option<Vec<EventNo>>> {
    let mut rows = Vec::new();
    if let Some(ids) = filter.ids() {
        for id in ids {
            rows.extend(view.known_id(id)?.and_then(|known| known.no));
        }
        return Ok(Some(rows));
    }
    let Some((authors, kinds)) = keys(filter) else { return Ok(None) };
    for author in authors {
        for kind in kinds {
            let key = view.key(&Address::replaceable(*kind, *author))?;
            rows.extend(key.and_then(|key| key.current));
        }
    }
    Ok(Some(rows))
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Event, EventId, TopicId, Viewer};
    use kukuri_store::{
        Query,
        conformance::build::{ALICE, BOB, NOW, admitted, bare},
        port::*,
    };

    use super::*;
    use crate::{Durability, LmdbOptions, LmdbStore, query::FilterScan};

    fn numbered(number: u64) -> TopicId {
        TopicId::new_unchecked(&format!("kukuri:{number:064x}"))
    }

    #[test]
    fn filter_by_an_author_of_many_topics_has_a_bounded_number_of_ranges() {
        // T-10
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let note = |n: u64, author| bare(1).by(author).at(n).tag(["t", numbered(n).as_str()]).build();
        let events: Vec<Event> = (0..40).flat_map(|n| [note(n, ALICE), note(n, BOB)]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
            let topics: Vec<TopicId> = (0..30).map(numbered).collect();
            let names: Vec<&str> = topics.iter().map(TopicId::as_str).collect();
            let by_alice = || Filter::new().with_authors([ALICE]);
            for (filter, count, max_ranges) in [
                (by_alice(), 40, 1),
                (by_alice().with_kinds([kukuri_domain::Kind(1)]), 40, 1),
                (by_alice().with_tag(Letter::T, names.clone()), 30, 60),
                (by_alice().with_tag(Letter::T, names.iter().copied().chain(["hashtag"])), 30, 61),
                (Filter::new().with_authors([ALICE, BOB]), 80, 1),
            ] {
                let query = Query::of(filter.clone(), Viewer::unauthenticated(), NOW);
                let answer = store.query(&query).await.unwrap();
                let ranges = store.with_writer(move |writer| {
                    let scanned = writer.tables.read(|view| {
                        let mut grant = Grant::rows(usize::MAX);
                        let filter = &query.filters[0];
                        let scan = FilterScan::plan(filter, &query, EventNo(u64::MAX), usize::MAX, &mut grant, view)?;
                        let mut scan: FilterScan<'_, EventId> = scan.unwrap();
                        assert!(scan.step(&mut grant, view)?);
                        Ok(scan.ranges())
                    });
                    scanned.unwrap()
                });
                assert!(ranges <= max_ranges, "{ranges} ranges for {filter:?}");
                let expected = events.iter().filter(|event| filter.matches(event, admitted(event).topics()));
                let mut expected: Vec<&Event> = expected.collect();
                expected.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
                let expected: Vec<EventId> = expected.iter().map(|event| event.id).collect();
                assert_eq!(answer.events.iter().map(|event| event.id).collect::<Vec<_>>(), expected, "{filter:?}");
                assert_eq!(expected.len(), count);
            }
        });
    }

    #[test]
    fn plan_made_in_a_later_step_leaves_out_what_arrived_since_the_first() {
        // W-2: later events are delivered live.
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let events: Vec<Event> = (0..3).map(|n| bare(1).at(n).tag(["t", numbered(0).as_str()]).build()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for event in &events {
            runtime.block_on(store.ingest(vec![admitted(event)], NOW)).unwrap();
        }
        let filter = Filter::new().with_ids(events.iter().map(|event| event.id));
        let rows = store.with_writer(move |writer| {
            let mut grant = Grant::rows(10);
            let plan = |view: View<'_>| {
                let newest = EventNo(view.node()?.last_event.0 - 1);
                Plan::choose(&filter, newest, AuthorScan::Allowed, &mut grant, view)
            };
            let AccessPath::Rows(rows) = writer.tables.read(plan).unwrap().access_path else { return 0 };
            assert_eq!(grant.left(), 7, "one for each lookup");
            rows.len()
        });
        assert_eq!(rows, 2);
    }
}
