//! Expiry and purges, in steps: each is one transaction of bounded size, and between two the writer is free.
//!
//! What a step did is complete in itself, so an interruption leaves nothing half done and the next run goes on.

use std::collections::HashMap;

use kukuri_domain::{
    Millis, Reason, Timestamp,
    capacity::Capacity,
    retention::{Keep, Retention, RetentionClass},
};
use kukuri_store::{Purged, StageChange, StoreError, Swept};

use crate::{
    ages::{self, AgePlace, Oldest},
    batch::{Batch, Committed},
    error::{Result, damaged, engine},
    key::{self, EventNo, TopicNo},
    record::{KeyRecord, KnownId, OutboxRecord, Row, TombstoneRecord, VanishRecord},
    tables::Table,
    writer::Writer,
};

/// The most rows a step looks at.
const STEP: usize = 1_000;

impl Writer {
    /// Turns off some of what has expired. Returns whether there is more.
    pub(crate) fn expire_some(&mut self, now: Millis, swept: &mut Swept) -> Result<bool> {
        let mut step = STEP;
        loop {
            match self.expire_step(step, now, swept) {
                Err(error) if error.is_full() && step > 1 => step = smaller(step),
                other => return other,
            }
        }
    }

    fn expire_step(&mut self, step: usize, now: Millis, swept: &mut Swept) -> Result<bool> {
        let mut batch = Batch::begin(self.around(), now)?;
        if batch.node.clock.held {
            swept.held = true;
            let clock = batch.commit()?.clock;
            self.saw(clock);
            return Ok(false);
        }
        let due = batch.due(now.seconds(), step)?;
        let count = due.len();
        for no in due {
            let row = batch.row(no)?.ok_or_else(|| damaged(format!("row {} expires and is not there", no.0)))?;
            batch.take_away(row, Reason::Expiration, None)?;
        }
        batch.update_stages()?;
        let next = batch.next_expiration()?;
        let clock = batch.commit()?.clock;
        self.saw(clock);
        swept.expired += count as u64;
        swept.next = next;
        Ok(count == step)
    }

    /// Does some of what a purge has to do. Returns whether there is more.
    ///
    /// A step that does not fit on a full disk is tried again smaller: what it frees makes room for the next.
    pub(crate) fn purge_some(&mut self, work: &mut PurgeWork) -> Result<bool> {
        if work.phase == Phase::Begin {
            work.retention.validate(self.subscriptions.retentions()).map_err(StoreError::from)?;
            self.walked.keep_for(&work.retention);
            if let Err(error) = self.flush() {
                tracing::warn!(%error, "repeats could not be written; they stay counted");
            }
        }
        loop {
            let mut attempt = work.clone();
            match self.purge_step(&mut attempt) {
                Ok(more) => {
                    attempt.step = (2 * attempt.step).min(STEP);
                    *work = attempt;
                    return Ok(more);
                }
                Err(error) if error.is_full() && work.step > 1 => work.step = smaller(work.step),
                Err(error) => return Err(error),
            }
        }
    }

    fn purge_step(&mut self, work: &mut PurgeWork) -> Result<bool> {
        let mut batch = Batch::begin(self.around(), work.now)?;
        if batch.node.clock.held {
            work.purged.held = true;
            let clock = batch.commit()?.clock;
            self.saw(clock);
            return Ok(false);
        }
        let mut walked = Vec::new();
        work.left = work.step;
        while work.left > 0 && work.phase != Phase::Done {
            if let (Phase::Ages(place), []) = (&work.phase, work.cursor.as_slice()) {
                work.cursor = self.walked.end(place);
            }
            let is_phase_done = match work.phase.clone() {
                Phase::Begin => true,
                Phase::Ages(place) => batch.purge_by_age(&place, work)?,
                Phase::Room { topics, place } => batch.make_room(topics.get(place).copied(), work)?,
                Phase::Ids => batch.forget_ids(work)?,
                Phase::Outbox => batch.drop_outbox(work)?,
                Phase::Memories { table } => batch.drop_memories(MEMORIES[table], work)?,
                Phase::Done => false,
            };
            if is_phase_done {
                let cursor = std::mem::take(&mut work.cursor);
                if let Phase::Ages(place) = work.phase {
                    walked.push((place, cursor));
                }
                batch.update_stages()?;
                work.phase = batch.after(&work.phase)?;
            }
        }
        batch.update_stages()?;
        let Committed { stages, clock, .. } = batch.commit()?;
        self.saw(clock);
        for (place, cursor) in walked {
            self.walked.note(place, cursor);
        }
        work.purged.stages.extend(stages);
        work.purged.stages = StageChange::summed_up(std::mem::take(&mut work.purged.stages));
        Ok(work.phase != Phase::Done)
    }
}

fn smaller(step: usize) -> usize {
    (step / 8).max(1)
}

/// How far purges have walked through the ages of each topic, so that rows which another topic keeps are not looked at
/// again with every purge: that topic's own walk will come to them. Only for as long as no policy changes.
#[derive(Default)]
pub(crate) struct Walked {
    retention: Option<Retention>,
    ends: HashMap<AgePlace, Vec<u8>>,
}

impl Walked {
    /// A policy changed: rows that were passed may be due.
    pub(crate) fn forget(&mut self) {
        self.ends.clear();
    }

    fn keep_for(&mut self, retention: &Retention) {
        if self.retention.replace(*retention) != Some(*retention) {
            self.forget();
        }
    }

    fn end(&self, place: &AgePlace) -> Vec<u8> {
        self.ends.get(place).cloned().unwrap_or_default()
    }

    fn note(&mut self, place: AgePlace, end: Vec<u8>) {
        // Rows become history at any age, also behind where a walk has come.
        let is_history = place[4] == RetentionClass::History as u8;
        if !is_history && !end.is_empty() {
            self.ends.insert(place, end);
        }
    }
}

pub(crate) const MEMORIES: [Table; 3] = [Table::Tombstones, Table::Vanished, Table::Keys];

/// How far a purge has come.
#[derive(Clone)]
pub(crate) struct PurgeWork {
    retention: Retention,
    now: Millis,
    phase: Phase,
    /// Where the phase goes on: the last key it looked at.
    cursor: Vec<u8>,
    /// How many rows a step looks at, and how many of them are left.
    step: usize,
    left: usize,
    pub(crate) purged: Purged,
}

impl PurgeWork {
    pub(crate) fn new(retention: Retention, now: Millis) -> Self {
        Self { retention, now, phase: Phase::Begin, cursor: Vec::new(), step: STEP, left: 0, purged: Purged::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    /// Rows that have stayed long enough, topic by topic, class by class.
    Ages(AgePlace),
    /// Topics in the order of their ids, then the node: those at their last stage.
    Room {
        topics: Vec<TopicNo>,
        place: usize,
    },
    Ids,
    Outbox,
    Memories {
        table: usize,
    },
    Done,
}

impl Batch<'_> {
    /// What a purge does after this phase.
    fn after(&self, phase: &Phase) -> Result<Phase> {
        Ok(match phase {
            Phase::Begin => self.ages_after(None)?,
            Phase::Ages(place) => self.ages_after(Some(place))?,
            Phase::Room { topics, place } if *place < topics.len() => {
                Phase::Room { topics: topics.clone(), place: place + 1 }
            }
            Phase::Room { .. } => Phase::Ids,
            Phase::Ids => Phase::Outbox,
            Phase::Outbox => Phase::Memories { table: 0 },
            Phase::Memories { table } if table + 1 < MEMORIES.len() => Phase::Memories { table: table + 1 },
            Phase::Memories { .. } | Phase::Done => Phase::Done,
        })
    }

    fn ages_after(&self, place: Option<&AgePlace>) -> Result<Phase> {
        Ok(match ages::place_after(&self.around.tables, &self.txn, place)? {
            Some(place) => Phase::Ages(place),
            None => Phase::Room { topics: self.purging_topics()?, place: 0 },
        })
    }

    // Expiry.

    fn due(&self, now: Timestamp, most: usize) -> Result<Vec<EventNo>> {
        let mut due = Vec::new();
        for entry in self.around.tables.of(Table::Expiry).iter(&self.txn).map_err(engine)?.take(most) {
            let (expiration, no) = expiry_parts(entry.map_err(engine)?.0)?;
            if expiration > now {
                break;
            }
            due.push(no);
        }
        Ok(due)
    }

    fn next_expiration(&self) -> Result<Option<Timestamp>> {
        let first = self.around.tables.of(Table::Expiry).first(&self.txn).map_err(engine)?;
        first.map(|(key, _)| expiry_parts(key).map(|(expiration, _)| expiration)).transpose()
    }

    // Retention.

    /// Purges rows of one topic and class whose time has come and that no other topic keeps.
    fn purge_by_age(&mut self, place: &AgePlace, work: &mut PurgeWork) -> Result<bool> {
        let class = ages::class_of(place)?;
        let id = self.topic_id(ages::topic_of(place))?;
        let keep = work.retention.in_topic(class, &self.policy(&id).retention);
        let Some(cutoff) = keep.cutoff(work.now) else { return Ok(true) };

        let (keys, is_last) = self.some_keys(Table::Ages, place, work)?;
        for key in keys {
            let no = EventNo::of_key(&key)?;
            if self.ingested_at(no)? > cutoff {
                return Ok(true);
            }
            let Some(row) = self.row(no)? else { return Err(damaged(format!("row {} ages and is not there", no.0))) };
            let mut retentions = Vec::with_capacity(row.topics.len());
            for topic in &row.topics {
                let id = self.topic_id(*topic)?;
                retentions.push(self.policy(&id).retention);
            }
            if work.retention.keep(class, &retentions).is_over(row.ingested_at, work.now) {
                self.throw_away(row, Reason::Retention)?;
                work.purged.by_retention += 1;
            }
            work.cursor = key;
        }
        Ok(is_last)
    }

    fn ingested_at(&self, no: EventNo) -> Result<Millis> {
        let record = self.get(Table::Events, &no.key())?;
        let record = record.ok_or_else(|| damaged(format!("row {} ages and is not there", no.0)))?;
        Ok(Row::unpack(record)?.ingested_at)
    }

    // Capacity.

    /// Throws away the oldest rows that give way, while a topic (or the node) at its last stage holds too much.
    fn make_room(&mut self, topic: Option<TopicNo>, work: &mut PurgeWork) -> Result<bool> {
        let capacity = match topic {
            Some(no) => {
                let id = self.topic_id(no)?;
                self.policy(&id).capacity()
            }
            None => self.around.rules.capacity,
        };
        let mut oldest = None;
        while work.left > 0 {
            if !self.must_make_room(topic, capacity)? {
                return Ok(true);
            }
            work.left -= 1;
            let oldest = match &mut oldest {
                Some(oldest) => oldest,
                none => none.insert(Oldest::of(&self.around.tables, &self.txn, topic)?),
            };
            let Some((no, _)) = oldest.next(&self.around.tables, &self.txn)? else { return Ok(true) };
            let Some(row) = self.row(no)? else { continue };
            self.throw_away(row, Reason::Capacity)?;
            work.purged.by_capacity += 1;
        }
        Ok(false)
    }

    fn must_make_room(&mut self, topic: Option<TopicNo>, capacity: Capacity) -> Result<bool> {
        let counters = match topic {
            Some(no) => self.counters(no)?,
            None => self.node.counters,
        };
        Ok(counters.must_make_room(capacity, &self.around.rules.thresholds))
    }

    // Memory of ids, outbox, requests.

    fn forget_ids(&mut self, work: &mut PurgeWork) -> Result<bool> {
        let Some(cutoff) = work.retention.dedupe.cutoff(work.now) else { return Ok(true) };
        let (keys, is_last) = self.some_keys(Table::Gone, &[], work)?;
        for key in keys {
            let Some((seen, id)) = key.split_first_chunk::<8>() else { continue };
            if Millis(u64::from_be_bytes(*seen)) > cutoff {
                return Ok(true);
            }
            self.delete(Table::Gone, &key)?;
            let known = self.get(Table::Ids, id)?.map(KnownId::unpack).transpose()?;
            match known {
                Some(known) if known.record.last_seen_at > cutoff => {
                    // It came again since: its time runs from there.
                    let mut later = known.record.last_seen_at.0.to_be_bytes().to_vec();
                    later.extend_from_slice(id);
                    self.put(Table::Gone, &later, &[])?;
                }
                Some(_) => {
                    self.delete(Table::Ids, id)?;
                    work.purged.ids += 1;
                }
                None => {}
            }
            work.cursor = key;
        }
        Ok(is_last)
    }

    fn drop_outbox(&mut self, work: &mut PurgeWork) -> Result<bool> {
        let (keys, is_last) = self.some_keys(Table::Outbox, &[], work)?;
        for key in keys {
            let Some(record) = self.get(Table::Outbox, &key)? else { continue };
            if !work.retention.outbox.is_over(OutboxRecord::unpack(record)?.written_at, work.now) {
                return Ok(true);
            }
            self.delete(Table::Outbox, &key)?;
            self.node.outbox_dropped = key::seq_of(&key)?;
            work.purged.outbox += 1;
            work.cursor = key;
        }
        Ok(is_last)
    }

    /// Tombstones, vanish marks, and floors without an effective version follow the requests (P-5). Usually they are
    /// kept forever and nothing is looked at.
    fn drop_memories(&mut self, table: Table, work: &mut PurgeWork) -> Result<bool> {
        if work.retention.requests == Keep::Forever {
            return Ok(true);
        }
        let (keys, is_last) = self.some_keys(table, &[], work)?;
        for key in keys {
            let Some(record) = self.get(table, &key)? else { continue };
            let noted_at = match table {
                Table::Tombstones => Some(TombstoneRecord::unpack(record)?.noted_at),
                Table::Vanished => Some(VanishRecord::unpack(record)?.noted_at),
                _ => Some(KeyRecord::unpack(record)?).filter(|key| key.current.is_none()).map(|key| key.raised_at),
            };
            if noted_at.is_some_and(|at| work.retention.requests.is_over(at, work.now)) {
                self.delete(table, &key)?;
                work.purged.memories += 1;
            }
            work.cursor = key;
        }
        Ok(is_last)
    }

    /// As many keys as the step has left, from where the work has come to; and whether these are the last.
    fn some_keys(&self, table: Table, prefix: &[u8], work: &mut PurgeWork) -> Result<(Vec<Vec<u8>>, bool)> {
        let keys = self.around.tables.keys_after(&self.txn, table, prefix, &work.cursor, work.left)?;
        let is_last = keys.len() < work.left;
        work.left -= keys.len();
        Ok((keys, is_last))
    }
}

fn expiry_parts(key: &[u8]) -> Result<(Timestamp, EventNo)> {
    let mut key = crate::pack::Unpack::new("expiry", key);
    Ok((key.timestamp()?, EventNo(key.u64()?)))
}
