//! Consistency check of a store: every row against its indexes, every index against the rows, the counters against
//! both, and the outbox against the effective set.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use heed::RoTxn;
use kukuri_domain::{EventId, PublicKey, State, retention::RetentionClass};
use kukuri_store::{CheckReport, Op, counters::Counters};

use crate::{
    batch::{StoredRow, hidden_keys},
    error::{Result, damaged, engine},
    format,
    index::IndexRows,
    key::{self, AuthorNo, EventNo, TopicNo},
    lookup::{Names, topics},
    pack::Unpack,
    record::{KeyRecord, KnownId, OutboxRecord, Row},
    tables::{Table, Tables},
    traces::{self, TraceRecord},
};

/// The report lists at most this many problems.
const PROBLEMS: usize = 100;

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

pub(crate) fn check(tables: &Tables, txn: &RoTxn<'_>) -> Result<CheckReport> {
    let mut check = Check { tables, txn, report: CheckReport::default(), derived: HashMap::new() };
    let (node, by_topic, effective) = check.rows()?;
    check.derived_tables()?;
    check.counters(node, &by_topic)?;
    check.ids()?;
    check.keys()?;
    check.traces()?;
    check.fold(&effective)?;
    Ok(check.report)
}

struct Check<'t> {
    tables: &'t Tables,
    txn: &'t RoTxn<'t>,
    report: CheckReport,
    /// Expected number of rows of each derived table.
    derived: HashMap<Table, u64>,
}

type EffectiveSet = BTreeSet<(TopicNo, EventId)>;

impl Check<'_> {
    fn problem(&mut self, problem: impl Into<String>) {
        if self.report.problems.len() < PROBLEMS {
            self.report.problems.push(problem.into());
        }
    }

    /// Checks that every row has its derived rows. Returns the counters and the effective set that the rows imply.
    fn rows(&mut self) -> Result<(Counters, BTreeMap<TopicNo, Counters>, EffectiveSet)> {
        let mut node = Counters::default();
        let mut by_topic: BTreeMap<TopicNo, Counters> = BTreeMap::new();
        let mut effective = BTreeSet::new();
        for entry in self.tables.of(Table::Events).iter(self.txn).map_err(engine)? {
            let (no, record) = entry.map_err(engine)?;
            let row = StoredRow::read(EventNo::of_key(no)?, Row::unpack(record)?)?;
            self.report.rows += 1;
            self.row(&row)?;
            let count = |counters: &mut Counters| {
                counters.effective += u64::from(row.is_effective());
                let usage = &mut counters.by_class[row.class() as usize];
                usage.events += 1;
                usage.bytes += row.json.len() as u64;
            };
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

    fn row(&mut self, row: &StoredRow) -> Result<()> {
        let id = row.event.id;
        match self.tables.get(self.txn, Table::Ids, id.as_bytes())?.map(KnownId::unpack).transpose()? {
            Some(known) if known.no == Some(row.no) => {
                if known.record.standing.state() != row.state {
                    self.problem(format!("event {id}: its record and its row do not agree on its state"));
                }
            }
            _ => self.problem(format!("event {id}: its id does not lead to its row")),
        }
        for topic in &row.topics {
            self.look_up(Table::Ages, &key::age(*topic, row.class(), row.no), &id)?;
        }
        if !row.is_effective() {
            for key in hidden_keys(row) {
                self.look_up(Table::Hidden, &key, &id)?;
            }
            return self.hidden_row(row);
        }
        let names = Names::new(self.tables, self.txn);
        let topics = row.topics.iter().map(|topic| names.topic(*topic)).collect::<Result<Vec<_>>>()?;
        let named: Vec<_> = row.topics.iter().copied().zip(&topics).collect();
        let author = self.author(&row.event.pubkey)?;
        let rows = IndexRows::of(&row.event, row.no, author, &named);
        for (table, key) in &rows.keys {
            self.look_up(*table, key, &id)?;
            if self.tables.get(self.txn, *table, key)?.is_some_and(|value| value != rows.value(*table)) {
                self.problem(format!("event {id}: its row in {} says something else", table.name()));
            }
        }
        if let Some(address) = row.event.address() {
            let key =
                self.tables.get(self.txn, Table::Keys, &address.digest().0)?.map(KeyRecord::unpack).transpose()?;
            if key.is_none_or(|key| key.current != Some(row.no) || key.floor != row.event.rank()) {
                self.problem(format!("event {id}: it is effective and its key does not say so"));
            }
        }
        Ok(())
    }

    fn author(&self, pubkey: &PublicKey) -> Result<AuthorNo> {
        let no = self.tables.get(self.txn, Table::Authors, pubkey.as_bytes())?;
        let no = no.ok_or_else(|| damaged(format!("author {pubkey} has no number")))?;
        Ok(AuthorNo(Unpack::new("authors", no).u32()?))
    }

    fn look_up(&mut self, table: Table, key: &[u8], id: &EventId) -> Result<()> {
        *self.derived.entry(table).or_default() += 1;
        if self.tables.get(self.txn, table, key)?.is_none() {
            self.problem(format!("event {id}: its row in {} is missing", table.name()));
        }
        Ok(())
    }

    /// Checks that no derived table has more rows than the events imply.
    fn derived_tables(&mut self) -> Result<()> {
        for table in DERIVED {
            let expected = self.derived.get(&table).copied().unwrap_or_default();
            let found = self.tables.len(self.txn, table)?;
            if expected != found {
                self.problem(format!("{} has {found} rows, the events give {expected}", table.name()));
            }
        }
        Ok(())
    }

    fn counters(&mut self, node: Counters, by_topic: &BTreeMap<TopicNo, Counters>) -> Result<()> {
        let counted = format::node_record(self.tables, self.txn)?.counters;
        self.compare("the node", counted, node);
        for (topic, record) in topics(self.tables, self.txn)? {
            let expected = by_topic.get(&record.no).copied().unwrap_or_default();
            self.compare(topic.as_str(), record.counters, expected);
        }
        Ok(())
    }

    fn compare(&mut self, place: &str, counted: Counters, expected: Counters) {
        if counted.effective != expected.effective {
            let Counters { effective, .. } = counted;
            self.problem(format!("{place}: counted {effective} effective events, there are {}", expected.effective));
        }
        for class in RetentionClass::ALL {
            let (counted, expected) = (counted.by_class[class as usize], expected.by_class[class as usize]);
            if counted != expected {
                self.problem(format!("{place}: counted {counted:?} of {class:?}, there are {expected:?}"));
            }
        }
    }

    /// Checks that an id with a row number has that row, and that an id without one is listed to be forgotten.
    fn ids(&mut self) -> Result<()> {
        let mut without_row = 0;
        for entry in self.tables.of(Table::Ids).iter(self.txn).map_err(engine)? {
            let (id, record) = entry.map_err(engine)?;
            let id = EventId::from_bytes(id.try_into().map_err(|_| damaged("an id has the wrong length"))?);
            match KnownId::unpack(record)?.no {
                None => without_row += 1,
                Some(no) if self.tables.get(self.txn, Table::Events, &no.key())?.is_none() => {
                    self.problem(format!("id {id}: its row is missing"));
                }
                Some(_) => {}
            }
        }
        let gone = self.tables.len(self.txn, Table::Gone)?;
        if gone != without_row {
            self.problem(format!("{without_row} ids have no row, {gone} are listed as gone"));
        }
        Ok(())
    }

    fn keys(&mut self) -> Result<()> {
        for entry in self.tables.of(Table::Keys).iter(self.txn).map_err(engine)? {
            let key = KeyRecord::unpack(entry.map_err(engine)?.1)?;
            let Some(no) = key.current else { continue };
            let row = self.tables.get(self.txn, Table::Events, &no.key())?.map(Row::unpack).transpose()?;
            if row.is_none_or(|row| !row.is_effective()) {
                self.problem(format!("the key with floor {} has no effective row {}", key.floor.id, no.0));
            }
        }
        Ok(())
    }

    /// Checks that a deleted event has left traces of the request that deleted it.
    fn hidden_row(&mut self, row: &StoredRow) -> Result<()> {
        if row.state != State::Deleted {
            return Ok(());
        }
        for (topic, trace) in traces::of_hidden(self.tables, self.txn, row)? {
            if traces::find(self.tables, self.txn, &topic, &trace.item().1)?.is_none() {
                self.problem(format!("event {}: what deleted it has left no trace in {topic}", row.event.id));
            }
        }
        Ok(())
    }

    /// Checks that every trace belongs to a stored, shared request and is indexed by its id.
    fn traces(&mut self) -> Result<()> {
        for entry in self.tables.of(Table::Traces).iter(self.txn).map_err(engine)? {
            let TraceRecord { topic, trace } = TraceRecord::unpack(entry.map_err(engine)?.1)?;
            let (_, id) = trace.item();
            if traces::find(self.tables, self.txn, &topic, &id)?.as_ref() != Some(&trace) {
                self.problem(format!("the trace of {id} in {topic} is not found by its id"));
            }
            let request = traces::passed_on(self.tables, self.txn, &trace.request())?;
            if !request.is_some_and(|request| trace.is_of(&request)) {
                self.problem(format!("the trace of {id} in {topic} has no request"));
            }
        }
        let (found, by_id) = (Table::Traces, Table::TracesById);
        let (found, by_id) = (self.tables.len(self.txn, found)?, self.tables.len(self.txn, by_id)?);
        if found != by_id {
            self.problem(format!("there are {found} traces, {by_id} are listed by id"));
        }
        Ok(())
    }

    /// Folds the outbox. While no outbox row was dropped, the fold equals the effective set; afterwards the last row of
    /// an event still agrees with it.
    fn fold(&mut self, effective: &EffectiveSet) -> Result<()> {
        let node = format::node_record(self.tables, self.txn)?;
        let mut last: BTreeMap<(TopicNo, EventId), Op> = BTreeMap::new();
        let mut expected_seq = node.outbox_dropped;
        for entry in self.tables.of(Table::Outbox).iter(self.txn).map_err(engine)? {
            let (seq, record) = entry.map_err(engine)?;
            expected_seq = expected_seq.next();
            if key::seq(expected_seq) != *seq {
                self.problem(format!("outbox row {expected_seq} is missing"));
                expected_seq = key::seq_of(seq)?;
            }
            let record = OutboxRecord::unpack(record)?;
            last.insert((record.topic, record.event_id), record.op);
        }
        if expected_seq != node.head {
            self.problem(format!("the outbox ends at {expected_seq}, its head is {}", node.head));
        }
        for ((topic, id), op) in &last {
            if (*op == Op::Upsert) != effective.contains(&(*topic, *id)) {
                self.problem(format!("event {id}: the outbox does not end with what it is"));
            }
        }
        if node.outbox_dropped.0 == 0 {
            for (_, id) in effective.iter().filter(|entry| !last.contains_key(entry)) {
                self.problem(format!("event {id}: it is effective and not in the outbox"));
            }
        }
        Ok(())
    }
}
