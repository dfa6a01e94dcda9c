//! What a purge would do, told from read transactions alone.
//!
//! It goes the way of a purge (`upkeep`), in steps as well, and takes down what each row would leave behind instead of
//! taking the row away: less in the counters, an id without a row, outbox rows.

use std::collections::{HashMap, HashSet};

use heed::RoTxn;
use kukuri_domain::{
    EventId, Millis,
    capacity::Thresholds,
    clock::Clock,
    retention::{Keep, Retention, RetentionClass, TopicRetention},
};
use kukuri_store::{IdRecord, Purged, StoreError, StoreRules, preview::Place, repeats::Repeats};

use crate::{
    ages::{self, Oldest},
    error::{Result, damaged},
    format,
    key::{EventNo, TopicNo},
    reading,
    record::{KeyRecord, KnownId, OutboxRecord, Row, TombstoneRecord, VanishRecord},
    subscriptions,
    tables::{Table, Tables},
    upkeep::MEMORIES,
};

/// The most rows a step looks at.
const STEP: usize = 1_000;

/// A purge that is only thought through.
pub(crate) struct Preview {
    retention: Retention,
    now: Millis,
    /// What a purge would stamp its outbox rows with.
    stamp: Millis,
    thresholds: Thresholds,
    /// What came after the beginning is passed over.
    newest: EventNo,
    node: Place,
    topics: HashMap<TopicNo, Place>,
    /// Topics in the order of their ids, then the node.
    places: Vec<Option<TopicNo>>,
    phase: Phase,
    /// Where the phase goes on: the last key it looked at.
    cursor: Vec<u8>,
    /// Rows that would go to make room. Another place need not get rid of them again.
    made_room: HashSet<EventNo>,
    /// Outbox rows that would be written.
    deletes: u64,
    pub(crate) purged: Purged,
}

enum Phase {
    Ages,
    Room { place: usize, oldest: Option<Oldest> },
    Ids,
    Outbox,
    Memories { table: usize },
    Done,
}

/// What a phase has come to.
enum Progress {
    Done,
    More,
}

impl Preview {
    /// `clock` is that of the writer, if this process has it; else what the store has of it counts.
    pub(crate) fn begin(
        (retention, now): (Retention, Millis),
        clock: Option<Clock>,
        rules: &StoreRules,
        tables: &Tables,
        txn: &RoTxn<'_>,
    ) -> Result<Self> {
        let subscriptions = subscriptions::load(tables, txn)?;
        retention.validate(subscriptions.retentions()).map_err(StoreError::from)?;
        let node = format::node_record(tables, txn)?;
        let clock = clock.unwrap_or(node.clock).tick(now);
        let mut preview = Self {
            retention,
            now,
            stamp: clock.latest,
            thresholds: rules.thresholds,
            newest: node.last_event,
            node: Place::new(TopicRetention::default(), rules.capacity, &node.counters),
            topics: HashMap::new(),
            places: Vec::new(),
            phase: if clock.held { Phase::Done } else { Phase::Ages },
            cursor: Vec::new(),
            made_room: HashSet::new(),
            deletes: 0,
            purged: Purged { held: clock.held, ..Purged::default() },
        };
        for (id, record) in reading::topics(tables, txn)? {
            let policy = subscriptions.policy(&id);
            preview.topics.insert(record.no, Place::new(policy.retention, policy.capacity(), &record.counters));
            preview.places.push(Some(record.no));
        }
        preview.places.push(None);
        Ok(preview)
    }

    /// Goes on for a while. Returns whether there is more.
    pub(crate) fn step(&mut self, repeats: &Repeats, tables: &Tables, txn: &RoTxn<'_>) -> Result<bool> {
        let view = View { repeats, tables, txn };
        let progress = match self.phase {
            Phase::Ages => self.by_age(&view)?,
            Phase::Room { .. } => self.for_room(&view)?,
            Phase::Ids => self.ids(&view)?,
            Phase::Outbox => self.outbox(&view)?,
            Phase::Memories { table } => self.memories(MEMORIES[table], &view)?,
            Phase::Done => return Ok(false),
        };
        if matches!(progress, Progress::Done) {
            self.cursor.clear();
            self.phase = match self.phase {
                Phase::Ages => Phase::Room { place: 0, oldest: None },
                Phase::Room { .. } => Phase::Ids,
                Phase::Ids => Phase::Outbox,
                Phase::Outbox => Phase::Memories { table: 0 },
                Phase::Memories { table } if table + 1 < MEMORIES.len() => Phase::Memories { table: table + 1 },
                Phase::Memories { .. } | Phase::Done => Phase::Done,
            };
        }
        Ok(true)
    }

    fn topic(&self, no: TopicNo) -> Result<&Place> {
        self.topics.get(&no).ok_or_else(|| damaged(format!("topic number {} is not there", no.0)))
    }

    /// Whether a row has stayed long enough in all its topics.
    fn is_due(&self, row: &Row<'_>, class: RetentionClass) -> Result<bool> {
        let places = row.topics.iter().map(|topic| self.topic(*topic)).collect::<Result<Vec<_>>>()?;
        let keep = self.retention.keep(class, places.into_iter().map(|place| &place.retention));
        Ok(keep.is_over(row.ingested_at, self.now))
    }

    /// A row would go.
    fn lose(&mut self, row: &Row<'_>, view: &View<'_>) -> Result<()> {
        let bytes = row.json.len() as u64;
        self.node.lose(bytes);
        for topic in &row.topics {
            if let Some(place) = self.topics.get_mut(topic) {
                place.lose(bytes);
            }
        }
        if row.is_effective() {
            self.deletes += row.topics.len() as u64;
        }
        if let Some(cutoff) = self.retention.dedupe.cutoff(self.now) {
            let record = view.id_record(&row.id()?)?;
            self.purged.ids += u64::from(record.is_some_and(|record| record.last_seen_at <= cutoff));
        }
        Ok(())
    }

    fn by_age(&mut self, view: &View<'_>) -> Result<Progress> {
        for _ in 0..STEP {
            let Some(key) = view.key_after(Table::Ages, &self.cursor)? else { return Ok(Progress::Done) };
            let place = key.first_chunk().ok_or_else(|| damaged("an age is too short"))?;
            let (class, topic, no) = (ages::class_of(place)?, ages::topic_of(place), EventNo::of_key(&key)?);
            let row = view.row(no)?.filter(|_| no <= self.newest);
            let keep = match &row {
                Some(_) => self.retention.in_topic(class, &self.topic(topic)?.retention),
                None => Keep::Forever,
            };
            let Some(row) = row.filter(|row| keep.is_over(row.ingested_at, self.now)) else {
                // So it is with all that came after it.
                self.cursor = ages::end_of(place);
                continue;
            };
            // A row of several topics is met in each, and due in all of them if it is due at all.
            if row.topics.first() == Some(&topic) && self.is_due(&row, class)? {
                self.lose(&row, view)?;
                self.purged.by_retention += 1;
            }
            self.cursor = key;
        }
        Ok(Progress::More)
    }

    /// After retention: what is still too much.
    fn for_room(&mut self, view: &View<'_>) -> Result<Progress> {
        let Phase::Room { mut place, mut oldest } = std::mem::replace(&mut self.phase, Phase::Done) else {
            return Ok(Progress::Done);
        };
        for _ in 0..STEP {
            let Some(topic) = self.places.get(place).copied() else { break };
            let here = match topic {
                Some(no) => self.topic(no)?,
                None => &self.node,
            };
            // Whether a place purges is looked at once, when its turn comes.
            let next = match &mut oldest {
                _ if !here.holds_too_much(&self.thresholds) => None,
                Some(oldest) => oldest.next(view.tables, view.txn)?,
                none if here.purges(&self.thresholds) => {
                    none.insert(Oldest::of(view.tables, view.txn, topic)?).next(view.tables, view.txn)?
                }
                _ => None,
            };
            let Some((no, class)) = next else {
                (place, oldest) = (place + 1, None);
                continue;
            };
            let Some(row) = view.row(no)?.filter(|_| no <= self.newest) else { continue };
            if !self.made_room.contains(&no) && !self.is_due(&row, class)? {
                self.lose(&row, view)?;
                self.made_room.insert(no);
                self.purged.by_capacity += 1;
            }
        }
        let is_done = place >= self.places.len();
        self.phase = Phase::Room { place, oldest };
        Ok(if is_done { Progress::Done } else { Progress::More })
    }

    /// Ids that have no row now; those of rows that would go are counted with them.
    fn ids(&mut self, view: &View<'_>) -> Result<Progress> {
        let Some(cutoff) = self.retention.dedupe.cutoff(self.now) else { return Ok(Progress::Done) };
        for _ in 0..STEP {
            let Some(key) = view.key_after(Table::Gone, &self.cursor)? else { return Ok(Progress::Done) };
            let Some((seen, id)) = key.split_first_chunk::<8>() else { return Err(damaged("a key of gone is short")) };
            if Millis(u64::from_be_bytes(*seen)) > cutoff {
                return Ok(Progress::Done);
            }
            let id = id.try_into().map(EventId::from_bytes).map_err(|_| damaged("a key of gone is short"))?;
            let record = view.id_record(&id)?;
            self.purged.ids += u64::from(record.is_some_and(|record| record.last_seen_at <= cutoff));
            self.cursor = key;
        }
        Ok(Progress::More)
    }

    fn outbox(&mut self, view: &View<'_>) -> Result<Progress> {
        let is_over = |at| self.retention.outbox.is_over(at, self.now);
        for _ in 0..STEP {
            let Some(key) = view.key_after(Table::Outbox, &self.cursor)? else {
                // All that is there would go; so would what the purge has just written, if it is kept for no time.
                self.purged.outbox += if is_over(self.stamp) { self.deletes } else { 0 };
                return Ok(Progress::Done);
            };
            let record = view.tables.get(view.txn, Table::Outbox, &key)?.map(OutboxRecord::unpack).transpose()?;
            if !record.is_some_and(|record| is_over(record.written_at)) {
                return Ok(Progress::Done);
            }
            self.purged.outbox += 1;
            self.cursor = key;
        }
        Ok(Progress::More)
    }

    fn memories(&mut self, table: Table, view: &View<'_>) -> Result<Progress> {
        if self.retention.requests == Keep::Forever {
            return Ok(Progress::Done);
        }
        for _ in 0..STEP {
            let Some(key) = view.key_after(table, &self.cursor)? else { return Ok(Progress::Done) };
            let record = view.tables.get(view.txn, table, &key)?.unwrap_or_default();
            let noted_at = match table {
                Table::Tombstones => Some(TombstoneRecord::unpack(record)?.noted_at),
                Table::Vanished => Some(VanishRecord::unpack(record)?.noted_at),
                _ => {
                    let key = KeyRecord::unpack(record)?;
                    let stays = key.current.map(|no| self.stays_current(no, view)).transpose()?;
                    (!stays.unwrap_or(false)).then_some(key.raised_at)
                }
            };
            self.purged.memories += u64::from(noted_at.is_some_and(|at| self.retention.requests.is_over(at, self.now)));
            self.cursor = key;
        }
        Ok(Progress::More)
    }

    /// Whether the effective version of a key would be left. Only its age can take it away.
    fn stays_current(&self, no: EventNo, view: &View<'_>) -> Result<bool> {
        match view.row(no)? {
            Some(row) if no <= self.newest => Ok(!self.is_due(&row, RetentionClass::Current)?),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }
}

/// The store as one step sees it.
struct View<'t> {
    repeats: &'t Repeats,
    tables: &'t Tables,
    txn: &'t RoTxn<'t>,
}

impl View<'_> {
    fn key_after(&self, table: Table, after: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tables.keys_after(self.txn, table, &[], after, 1)?.pop())
    }

    fn row(&self, no: EventNo) -> Result<Option<Row<'_>>> {
        let record = self.tables.get(self.txn, Table::Events, &no.key())?;
        record.map(Row::unpack).transpose().map_err(Into::into)
    }

    /// What is remembered of an id, with the copies that a purge would write down first.
    fn id_record(&self, id: &EventId) -> Result<Option<IdRecord>> {
        let Some(known) = self.tables.get(self.txn, Table::Ids, id.as_bytes())? else { return Ok(None) };
        let mut record = KnownId::unpack(known)?.record;
        if let Some(repeat) = self.repeats.get(id) {
            repeat.add_to(&mut record);
        }
        Ok(Some(record))
    }
}
