//! Answering filters: which tables to walk, what an index row already shows, and when the event must be looked at.

use heed::RoTxn;
use kukuri_domain::{Address, Filter, KindClass, Letter, PublicKey, topic::claims_to_be_topic};
use kukuri_store::{Query, StoredEvent};

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
}

enum Plan {
    /// Rows known by number: of ids, or of keys.
    Rows(Vec<EventNo>),
    /// Ranges of newest-first tables.
    Scan(Scan),
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
        };
        if filter.is_empty() || limit == 0 {
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
        let window = filter.window();
        let mut scan = Scan::new(newest);
        let topics = filter.tag_values(Letter::T).map(|values| TopicValues::read(values, tables, txn)).transpose()?;
        // A tag other than `t` is the narrowest; of several, the one with the fewest values.
        let tag =
            filter.tags().iter().filter(|(letter, _)| *letter != Letter::T).min_by_key(|(_, values)| values.len());
        let other_tags = filter.tags().iter().filter(|(letter, _)| *letter != Letter::T).count();
        self.needs_event = other_tags > usize::from(tag.is_some());

        if let Some((letter, values)) = tag {
            for value in values {
                scan.add(Table::ByTag, prefix::tag(*letter, value), &window);
            }
        } else if let Some(authors) = &self.authors {
            let topics = topics.as_ref().filter(|topics| topics.hashtags.is_empty());
            for author in authors {
                match topics {
                    Some(topics) => topics.topics.iter().for_each(|topic| {
                        scan.add(Table::ByAuthor, prefix::author_topic(*author, *topic), &window);
                    }),
                    None => {
                        for prefix in distinct(tables, txn, Table::ByAuthor, &prefix::author(*author), 4)? {
                            scan.add(Table::ByAuthor, prefix, &window);
                        }
                    }
                }
            }
            if topics.is_some() {
                return Ok(Plan::Scan(scan));
            }
        } else if let Some(topics) = &topics {
            for hashtag in &topics.hashtags {
                scan.add(Table::ByTag, prefix::tag(Letter::T, hashtag), &window);
            }
            for topic in &topics.topics {
                match filter.kinds() {
                    Some(kinds) => kinds.iter().for_each(|kind| {
                        scan.add(Table::ByTopicKind, prefix::topic_kind(*topic, *kind), &window);
                    }),
                    None => scan.add(Table::ByTopic, prefix::topic(*topic), &window),
                }
            }
            return Ok(Plan::Scan(scan));
        } else if let Some(kinds) = filter.kinds() {
            kinds.iter().for_each(|kind| scan.add(Table::ByKind, prefix::kind(*kind), &window));
        } else {
            for prefix in distinct(tables, txn, Table::ByKind, &[], 2)? {
                scan.add(Table::ByKind, prefix, &window);
            }
        }
        // The walk did not go by topic: rows have to show theirs.
        if let Some(topics) = topics {
            self.needs_event |= !topics.hashtags.is_empty();
            self.topics = Some(topics.topics);
        }
        Ok(Plan::Scan(scan))
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
        if !kind_fits || !author_fits {
            return None;
        }
        let mut needs_event = self.needs_event || !cover.traits.is_plain();
        if let Some(topics) = &self.topics {
            let topic_fits = topics.contains(&cover.topic);
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

    /// The rows that answer, in order, no more than the limit.
    pub(crate) fn finish(mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<Vec<(Order, StoredEvent)>> {
        let mut events = Vec::with_capacity(self.found.len());
        for found in self.found.drain(..) {
            let event = match found.event {
                Some(event) => Some(event),
                None => plain_event(found.candidate.no(), tables, txn)?,
            };
            events.extend(event.map(|event| (found.candidate, event)));
        }
        sort_ties(&mut events);
        events.truncate(self.limit);
        Ok(events)
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
}

impl<'v> TopicValues<'v> {
    fn read(values: &'v [Box<str>], tables: &Tables, txn: &RoTxn<'_>) -> Result<Self> {
        let mut all = Self { topics: Vec::new(), hashtags: Vec::new() };
        for value in values {
            if claims_to_be_topic(value) {
                // Nothing was ever bound to a topic without a record.
                if let Some(record) = tables.get(txn, Table::Topics, value.as_bytes())? {
                    all.topics.push(TopicRecord::unpack(record)?.no);
                }
            } else {
                all.hashtags.push(value);
            }
        }
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
    if !kinds.iter().all(|kind| kind.class() == KindClass::Replaceable) {
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
