//! Consistency check of a store: every row against its indexes, every index against the rows, the counters against
//! both, and the outbox against the effective set.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kukuri_domain::{EventId, State, remains::Subject, retention::RetentionClass};
use kukuri_store::{CheckReport, Op, counters::Counters};

use crate::{
    batch::StoredRow,
    error::{Result, damaged},
    former_topics,
    index::IndexRows,
    key::{self, EventNo, TopicNo},
    pack::{Record as _, take, unpack},
    record::{KeyRecord, KnownId, OutboxRecord, Row},
    remains::RemainsRecord,
    tables::{Table, View},
    traces::{self, TraceRecord},
};

const MAX_PROBLEMS: usize = 100;

/// Tables whose rows are derived from the events alone.
const DERIVED: [Table; 8] = [
    Table::ByTopic,
    Table::ByTopicKind,
    Table::ByAuthor,
    Table::ByKind,
    Table::ByTag,
    Table::Expiry,
    Table::Ages,
    Table::Hidden,
];

pub(crate) fn check(view: View<'_>) -> Result<CheckReport> {
    let mut check = Check { view, report: CheckReport::default(), derived: HashMap::new() };
    let (node, by_topic, effective) = check.rows()?;
    check.derived_tables()?;
    check.counters(node, &by_topic)?;
    check.topics()?;
    check.ids()?;
    check.keys()?;
    check.traces()?;
    check.remains()?;
    check.fold(&effective)?;
    Ok(check.report)
}

struct Check<'t> {
    view: View<'t>,
    report: CheckReport,
    /// Expected number of rows of each derived table.
    derived: HashMap<Table, u64>,
}

type EffectiveSet = BTreeSet<(TopicNo, EventId)>;

impl Check<'_> {
    /// Reports a problem, unless the condition holds.
    fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds && self.report.problems.len() < MAX_PROBLEMS {
            self.report.problems.push(problem());
        }
    }

    /// Checks that every row has its derived rows. Returns the counters and the effective set that the rows imply.
    fn rows(&mut self) -> Result<(Counters, BTreeMap<TopicNo, Counters>, EffectiveSet)> {
        let mut node = Counters::default();
        let mut by_topic: BTreeMap<TopicNo, Counters> = BTreeMap::new();
        let mut effective = BTreeSet::new();
        for entry in self.view.iter(Table::Events)? {
            let (no, record) = entry?;
            let row = StoredRow::read(EventNo::of_key(no)?, Row::unpack(record)?)?;
            self.report.rows += 1;
            self.row(&row)?;
            let count = |counters: &mut Counters| counters.count(row.event.kind, row.state, row.json.len(), 1);
            count(&mut node);
            for topic in &row.topics {
                count(by_topic.entry(*topic).or_default());
                if row.is_effective() {
                    effective.insert((*topic, row.event.id));
                }
            }
        }
        Ok((node, by_topic, effective))
    }

    fn row(&mut self, row: &StoredRow<'_>) -> Result<()> {
        let id = row.event.id;
        let known = self.view.known_id(&id)?.filter(|known| known.no == Some(row.no));
        self.expect(known.is_some(), || format!("event {id}: its id does not lead to its row"));
        let agrees = known.is_none_or(|known| known.record.standing.state() == row.state);
        self.expect(agrees, || format!("event {id}: its record and its row do not agree on its state"));
        let rows = self.index_rows(row)?;
        for (table, key) in &rows.keys {
            *self.derived.entry(*table).or_default() += 1;
            let found = self.view.get(*table, key)?;
            self.expect(found.is_some(), || format!("event {id}: its row in {} is missing", table.name()));
            let is_same = found.is_none_or(|found| found == rows.value(*table));
            self.expect(is_same, || format!("event {id}: its row in {} says something else", table.name()));
        }
        if let Some(address) = row.event.address().filter(|_| row.is_effective()) {
            let key = self.view.key(&address)?;
            let names_row = key.is_some_and(|key| key.current == Some(row.no) && key.floor == row.event.rank());
            self.expect(names_row, || format!("event {id}: it is effective and its key does not say so"));
        }
        // A deleted event has left traces of the request that deleted it.
        if row.state == State::Deleted {
            for (topic, trace) in traces::of_hidden(self.view, row)? {
                let found = traces::find(self.view, &topic, &trace.item().1)?;
                self.expect(found.is_some(), || format!("event {id}: what deleted it has left no trace in {topic}"));
            }
        }
        Ok(())
    }

    fn index_rows(&self, row: &StoredRow<'_>) -> Result<IndexRows> {
        if !row.is_effective() {
            return Ok(IndexRows::of_hidden(row));
        }
        let author = self.view.find(row.event.pubkey.as_bytes())?;
        let author = author.ok_or_else(|| damaged(format!("author {} has no number", row.event.pubkey)))?;
        Ok(IndexRows::of_effective(row, author, &self.view.topic_ids(&row.topics)?))
    }

    /// Checks that no derived table has more rows than the events imply.
    fn derived_tables(&mut self) -> Result<()> {
        for table in DERIVED {
            let expected = self.derived.get(&table).copied().unwrap_or_default();
            let found = self.view.len(table)?;
            self.expect(expected == found, || format!("{} has {found} rows, the events give {expected}", table.name()));
        }
        Ok(())
    }

    fn counters(&mut self, node: Counters, by_topic: &BTreeMap<TopicNo, Counters>) -> Result<()> {
        self.compare("the node", self.view.node()?.counters, node);
        for (topic, record) in self.view.topics()? {
            let expected = by_topic.get(&record.no).copied().unwrap_or_default();
            self.compare(topic.as_str(), record.counters, expected);
        }
        Ok(())
    }

    fn topics(&mut self) -> Result<()> {
        let problem = former_topics::check(self.view)?;
        self.expect(problem.is_none(), || problem.unwrap_or_default());
        Ok(())
    }

    fn compare(&mut self, place: &str, counted: Counters, expected: Counters) {
        let (found, effective) = (counted.effective, expected.effective);
        let problem = || format!("{place}: counted {found} effective events, there are {effective}");
        self.expect(found == effective, problem);
        for class in RetentionClass::ALL {
            let (counted, expected) = (counted.by_class[class as usize], expected.by_class[class as usize]);
            let problem = || format!("{place}: counted {counted:?} of {class:?}, there are {expected:?}");
            self.expect(counted == expected, problem);
        }
    }

    /// Checks that an id with a row number has that row, and that an id without one is listed to be forgotten.
    fn ids(&mut self) -> Result<()> {
        let mut without_row = 0;
        for entry in self.view.iter(Table::Ids)? {
            let (id, record) = entry?;
            let id: EventId = unpack(Table::Ids.name(), id, take)?;
            match KnownId::unpack(record)?.no {
                None => without_row += 1,
                Some(no) => {
                    let row = self.view.row(no)?;
                    self.expect(row.is_some(), || format!("id {id}: its row is missing"));
                }
            }
        }
        let gone = self.view.len(Table::Gone)?;
        self.expect(gone == without_row, || format!("{without_row} ids have no row, {gone} are listed as gone"));
        Ok(())
    }

    fn keys(&mut self) -> Result<()> {
        for entry in self.view.iter(Table::Keys)? {
            let KeyRecord { floor, current: Some(no), .. } = KeyRecord::unpack(entry?.1)? else { continue };
            let row = self.view.row(no)?.filter(Row::is_effective);
            self.expect(row.is_some(), || format!("the key with floor {} has no effective row {}", floor.id, no.0));
        }
        Ok(())
    }

    /// Checks that every trace belongs to a stored, shared request and is indexed by its id.
    fn traces(&mut self) -> Result<()> {
        for entry in self.view.iter(Table::Traces)? {
            let TraceRecord { topic, trace } = TraceRecord::unpack(entry?.1)?;
            let (_, id) = trace.item();
            let found = traces::find(self.view, &topic, &id)?;
            self.expect(found.as_ref() == Some(&trace), || {
                format!("the trace of {id} in {topic} is not found by its id")
            });
            let request = traces::passed_on(self.view, &trace.request())?;
            let has_request = request.is_some_and(|request| trace.is_of(&request));
            self.expect(has_request, || format!("the trace of {id} in {topic} has no request"));
        }
        let found = self.view.len(Table::Traces)?;
        let by_id = self.view.len(Table::TracesById)?;
        self.expect(found == by_id, || format!("there are {found} traces, {by_id} are listed by id"));
        Ok(())
    }

    /// Checks that the remains of an event belong to a known id.
    fn remains(&mut self) -> Result<()> {
        for entry in self.view.iter(Table::Remains)? {
            let (key, record) = entry?;
            if let Subject::Event(id) = RemainsRecord::unpack(record)?.remains(key)?.subject {
                let is_known = self.view.known_id(&id)?.is_some();
                self.expect(is_known, || format!("event {id}: its id is forgotten, its remains are not"));
            }
        }
        Ok(())
    }

    /// Folds the outbox. While no outbox row was dropped, the fold equals the effective set; afterwards the last row of
    /// an event still agrees with it. Topics are compared by name: one that was forgotten and returned has another number.
    fn fold(&mut self, effective: &EffectiveSet) -> Result<()> {
        let node = self.view.node()?;
        let name = |no: TopicNo| self.view.get(Table::TopicNames, &no.0.to_be_bytes());
        let named = effective.iter().map(|(topic, id)| Ok((name(*topic)?, *id)));
        let effective = named.collect::<Result<BTreeSet<_>>>()?;
        let mut last: BTreeMap<(Option<&[u8]>, EventId), Op> = BTreeMap::new();
        let mut previous = node.outbox_dropped;
        for entry in self.view.iter(Table::Outbox)? {
            let (seq, record) = entry?;
            let (seq, expected) = (key::seq_of(seq)?, previous.next());
            self.expect(seq == expected, || format!("outbox row {expected} is missing"));
            previous = seq;
            let record = OutboxRecord::unpack(record)?;
            last.insert((self.view.get(Table::TopicNames, &record.topic.0.to_be_bytes())?, record.event_id), record.op);
        }
        self.expect(previous == node.head, || format!("the outbox ends at {previous}, its head is {}", node.head));
        for ((topic, id), op) in &last {
            let agrees = (*op == Op::Upsert) == effective.contains(&(*topic, *id));
            self.expect(agrees, || format!("event {id}: the outbox does not end with what it is"));
        }
        for entry in effective.iter().filter(|_| node.outbox_dropped.0 == 0) {
            let is_announced = last.contains_key(entry);
            self.expect(is_announced, || format!("event {}: it is effective and not in the outbox", entry.1));
        }
        Ok(())
    }
}
