//! Answering filters: which tables to walk, what an index row already shows, and when the event must be looked at.

use heed::RoTxn;
use kukuri_domain::{Address, Filter, KindClass, Letter, PublicKey, topic::claims_to_be_topic};
use kukuri_store::{Query, Rest, StoredEvent};

use crate::{
    error::Result,
    key::{AuthorNo, EventNo, Order, TopicNo, prefix},
    pack::Unpack,
    reading::Names,
    record::{Cover, KeyRecord, KnownId, Row, TopicRecord},
    scan::{Candidate, Scan, distinct},
    tables::{Table, Tables},
};

/// How many rows are looked at before the transaction is given back.
const STEP: usize = 4_096;
/// The most ranges that are made by combining two lists of a filter.
const MOST_RANGES: usize = 1_024;
/// Topics with no more events than this together are walked rather than a tag.
const SMALL_TOPIC: u64 = 1_000;

/// One filter being answered.
pub(crate) struct FilterScan<'q> {
    filter: &'q Filter,
    query: &'q Query,
    plan: Plan,
    /// What index rows have to show. `None`: anything will do.
    authors: Option<Vec<AuthorNo>>,
    topics: Option<Vec<TopicNo>>,
    /// Whether index rows can't show everything the filter asks for.
    needs_event: bool,
    /// Found rows, best first; those at the end may still have to be sorted by their full ids.
    found: Vec<Found>,
    limit: usize,
    cut: Option<Cut>,
}

/// The limit has ended the answer to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before this row, which matches.
    Before(Order),
    /// Whether it left anything out would take more reading to tell.
    Somewhere,
}

enum Plan {
    /// Rows known by number: of ids, or of keys.
    Rows(Vec<EventNo>),
    /// Ranges of newest-first tables.
    Scan(Scan),
}

/// The answer to one filter.
pub(crate) struct Finished {
    pub(crate) events: Vec<(Order, StoredEvent)>,
    pub(crate) cut: Option<Cut>,
}

/// What the answers to all filters of a query leave out together: what one had to cut off, another may have sent.
pub(crate) fn rest(cuts: &[Cut], sent: &[(Order, StoredEvent)]) -> Rest {
    let is_left_out = |cut: &Cut| matches!(cut, Cut::Before(row) if sent.iter().all(|(order, _)| order != row));
    match cuts {
        [] => Rest::None,
        cuts if cuts.iter().any(is_left_out) => Rest::More,
        _ => Rest::Unknown,
    }
}

/// A row that answers, with its event if that was needed to tell.
pub(crate) struct Found {
    pub(crate) candidate: Order,
    pub(crate) event: Option<StoredEvent>,
}

impl<'q> FilterScan<'q> {
    pub(crate) fn new(
        filter: &'q Filter,
        query: &'q Query,
        newest: EventNo,
        limit: usize,
        tables: &Tables,
        txn: &RoTxn<'_>,
    ) -> Result<Self> {
        let mut scan = Self {
            filter,
            query,
            plan: Plan::Rows(Vec::new()),
            authors: filter.authors().map(|authors| author_numbers(authors, tables, txn)).transpose()?,
            topics: None,
            needs_event: false,
            found: Vec::new(),
            limit,
            cut: None,
        };
        if filter.is_empty() {
            return Ok(scan);
        }
        if limit == 0 {
            scan.cut = Some(Cut::Somewhere);
            return Ok(scan);
        }
        scan.plan = scan.choose(newest, tables, txn)?;
        Ok(scan)
    }

    /// Picks the narrowest way to the answer that an index offers.
    fn choose(&mut self, newest: EventNo, tables: &Tables, txn: &RoTxn<'_>) -> Result<Plan> {
        let filter = self.filter;
        if let Some(rows) = rows_by_id_or_key(filter, tables, txn)? {
            self.needs_event = true;
            return Ok(Plan::Rows(rows));
        }
        let topics = filter.tag_values(Letter::T).map(|values| TopicValues::read(values, tables, txn)).transpose()?;
        let names_nobody = self.authors.as_ref().is_some_and(Vec::is_empty);
        let names_no_topic = topics.as_ref().is_some_and(TopicValues::is_empty);
        if names_nobody || names_no_topic {
            return Ok(Plan::Rows(Vec::new()));
        }
        // Of several tags other than `t`, the one with the fewest values is the narrowest.
        let other_tags = || filter.tags().iter().filter(|(letter, _)| *letter != Letter::T);
        let tag = other_tags().min_by_key(|(_, values)| values.len());
        let window = filter.window();
        let mut scan = Scan::new(newest);
        match (tag, &self.authors, &topics) {
            (Some((letter, values)), _, topics) if !topics.as_ref().is_some_and(TopicValues::are_small) => {
                values.iter().for_each(|value| scan.add(Table::ByTag, prefix::tag(*letter, value), &window));
                self.needs_event = other_tags().count() > 1;
                self.show_topics(topics.as_ref());
            }
            (_, Some(authors), Some(topics)) if topics.hashtags.is_empty() && fits(authors, &topics.topics) => {
                for author in authors {
                    for topic in &topics.topics {
                        scan.add(Table::ByAuthor, prefix::author_topic(*author, *topic), &window);
                    }
                }
                self.needs_event = tag.is_some();
            }
            (_, Some(authors), topics) => {
                for author in authors {
                    for prefix in distinct(tables, txn, Table::ByAuthor, &prefix::author(*author), 4)? {
                        scan.add(Table::ByAuthor, prefix, &window);
                    }
                }
                self.needs_event = tag.is_some();
                self.show_topics(topics.as_ref());
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
                self.needs_event = tag.is_some();
            }
            (_, None, None) => match filter.kinds() {
                Some(kinds) => kinds.iter().for_each(|kind| scan.add(Table::ByKind, prefix::kind(*kind), &window)),
                None => {
                    for prefix in distinct(tables, txn, Table::ByKind, &[], 2)? {
                        scan.add(Table::ByKind, prefix, &window);
                    }
                }
            },
        }
        Ok(Plan::Scan(scan))
    }

    /// The walk does not go by topic: rows have to show theirs.
    fn show_topics(&mut self, topics: Option<&TopicValues<'_>>) {
        if let Some(topics) = topics {
            self.needs_event |= !topics.hashtags.is_empty();
            self.topics = Some(topics.topics.clone());
        }
    }

    /// Goes on for a while. Returns whether it has come to its end.
    pub(crate) fn step(&mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<bool> {
        if let Plan::Rows(rows) = &mut self.plan {
            let rows = std::mem::take(rows);
            self.look_at_rows(&rows, tables, txn)?;
            return Ok(true);
        }
        for _ in 0..STEP {
            let Plan::Scan(scan) = &mut self.plan else { return Ok(true) };
            let Some(candidate) = scan.next(tables, txn)? else { return Ok(true) };
            // Past the limit only events that tie with the last one can still come before it.
            if self.found.len() >= self.limit
                && self.found.last().is_none_or(|last| !last.candidate.ties_with(&candidate.order))
            {
                let is_sure = self.may_match(&candidate.cover) == Some(false);
                self.cut = Some(if is_sure { Cut::Before(candidate.order) } else { Cut::Somewhere });
                return Ok(true);
            }
            self.look_at(&candidate, tables, txn)?;
        }
        Ok(false)
    }

    fn look_at(&mut self, candidate: &Candidate, tables: &Tables, txn: &RoTxn<'_>) -> Result<()> {
        let Some(needs_event) = self.may_match(&candidate.cover) else { return Ok(()) };
        let event = if needs_event {
            let Some(event) = self.matching_event(candidate.order.no(), tables, txn)? else { return Ok(()) };
            Some(event)
        } else {
            None
        };
        self.found.push(Found { candidate: candidate.order, event });
        Ok(())
    }

    /// What an index row shows: `None`, it does not match; else whether the event must be looked at to be sure.
    fn may_match(&self, cover: &Cover) -> Option<bool> {
        let kinds = self.filter.kinds();
        let kind_fits = kinds.is_none_or(|kinds| kinds.binary_search(&cover.kind).is_ok());
        let author_fits = self.authors.as_ref().is_none_or(|authors| authors.binary_search(&cover.author).is_ok());
        let is_hidden = cover.kind.is_private() && self.query.viewer.is_stranger();
        if !kind_fits || !author_fits || is_hidden {
            return None;
        }
        let mut needs_event = self.needs_event || !cover.traits.is_plain();
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

    /// The event of a row, if it is there, matches, and may be shown.
    fn matching_event(&self, no: EventNo, tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<StoredEvent>> {
        let Some(record) = tables.get(txn, Table::Events, &no.key())? else { return Ok(None) };
        let row = Row::unpack(record)?;
        if !row.is_effective() {
            return Ok(None);
        }
        if row.traits.is_plain() && self.filter.is_ids_only() {
            return stored(&row).map(Some);
        }
        let event = row.event()?;
        let names = Names::new(tables, txn);
        let topics = row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<Vec<_>>>()?;
        let shows = self.filter.matches(&event, &topics)
            && self.query.viewer.may_see(&event)
            && !event.is_expired(self.query.now);
        Ok(shows.then(|| StoredEvent { id: event.id, created_at: event.created_at, json: row.json() }))
    }

    fn look_at_rows(&mut self, rows: &[EventNo], tables: &Tables, txn: &RoTxn<'_>) -> Result<()> {
        for no in rows {
            if let Some(event) = self.matching_event(*no, tables, txn)? {
                let candidate = Order::new(event.created_at, &event.id, *no);
                self.found.push(Found { candidate, event: Some(event) });
            }
        }
        self.found.sort_unstable_by_key(|found| found.candidate);
        Ok(())
    }

    /// The rows that answer, in order, no more than the limit; and what that limit has cut off.
    pub(crate) fn finish(mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<Finished> {
        let mut events = Vec::with_capacity(self.found.len());
        for found in self.found.drain(..) {
            let event = match found.event {
                Some(event) => Some(event),
                None => plain_event(found.candidate.no(), tables, txn)?,
            };
            events.extend(event.map(|event| (found.candidate, event)));
        }
        sort_ties(&mut events);
        let first_over = events.get(self.limit).map(|(order, _)| Cut::Before(*order));
        events.truncate(self.limit);
        Ok(Finished { events, cut: first_over.or(self.cut) })
    }

    /// How many rows answer.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// The row numbers that answer.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = EventNo> + '_ {
        self.found.iter().map(|found| found.candidate.no())
    }

    /// Forgets what was found, to count on without growing.
    pub(crate) fn clear(&mut self) {
        self.found.clear();
    }
}

/// Puts events of one second whose ids agree in their first bytes into the order of their full ids.
fn sort_ties(events: &mut [(Order, StoredEvent)]) {
    let runs = events.chunk_by_mut(|left, right| left.0.ties_with(&right.0));
    runs.filter(|run| run.len() > 1).for_each(|run| run.sort_unstable_by_key(|(_, event)| event.id));
}

/// An effective event whose index row has shown that it answers.
fn plain_event(no: EventNo, tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<StoredEvent>> {
    // It may have left between two steps.
    let Some(record) = tables.get(txn, Table::Events, &no.key())? else { return Ok(None) };
    let row = Row::unpack(record)?;
    if !row.is_effective() {
        return Ok(None);
    }
    stored(&row).map(Some)
}

pub(crate) fn stored(row: &Row<'_>) -> Result<StoredEvent> {
    let event = StoredEvent { id: row.id()?, created_at: row.created_at()?, json: row.json() };
    Ok(event)
}

fn author_numbers(authors: &[PublicKey], tables: &Tables, txn: &RoTxn<'_>) -> Result<Vec<AuthorNo>> {
    let mut numbers = Vec::with_capacity(authors.len());
    for author in authors {
        if let Some(no) = tables.get(txn, Table::Authors, author.as_bytes())? {
            numbers.push(AuthorNo(Unpack::new("authors", no).u32()?));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The values of `#t`, told apart.
struct TopicValues<'v> {
    topics: Vec<TopicNo>,
    hashtags: Vec<&'v str>,
    /// How many effective events the topics hold together.
    events: u64,
}

/// Whether every one with every other is still a sensible number of ranges to walk.
fn fits<A, B>(some: &[A], others: &[B]) -> bool {
    some.len().saturating_mul(others.len()) <= MOST_RANGES
}

impl<'v> TopicValues<'v> {
    fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.hashtags.is_empty()
    }

    /// Whether walking all their events is cheaper than a tag that may be common elsewhere.
    fn are_small(&self) -> bool {
        self.hashtags.is_empty() && self.events <= SMALL_TOPIC
    }

    fn read(values: &'v [Box<str>], tables: &Tables, txn: &RoTxn<'_>) -> Result<Self> {
        let mut all = Self { topics: Vec::new(), hashtags: Vec::new(), events: 0 };
        for value in values {
            if claims_to_be_topic(value) {
                // Nothing was ever bound to a topic without a record.
                if let Some(record) = tables.get(txn, Table::Topics, value.as_bytes())? {
                    let record = TopicRecord::unpack(record)?;
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

/// Rows that can be looked up one by one: by id, or by key where a filter names authors and only kinds of which an
/// author has one event.
fn rows_by_id_or_key(filter: &Filter, tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<Vec<EventNo>>> {
    let mut rows = Vec::new();
    if let Some(ids) = filter.ids() {
        for id in ids {
            if let Some(record) = tables.get(txn, Table::Ids, id.as_bytes())? {
                rows.extend(KnownId::unpack(record)?.no);
            }
        }
        return Ok(Some(rows));
    }
    let (Some(authors), Some(kinds)) = (filter.authors(), filter.kinds()) else { return Ok(None) };
    if !fits(authors, kinds) || !kinds.iter().all(|kind| kind.class() == KindClass::Replaceable) {
        return Ok(None);
    }
    for author in authors {
        for kind in kinds {
            let key = Address::replaceable(*kind, *author).digest();
            if let Some(record) = tables.get(txn, Table::Keys, &key.0)? {
                rows.extend(KeyRecord::unpack(record)?.current);
            }
        }
    }
    Ok(Some(rows))
}
