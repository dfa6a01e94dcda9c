//! Expiry and purges, in steps: each step is one transaction of bounded size, and other writes run between steps.
//!
//! Every step is complete in itself: after an interruption the store is consistent and the next run continues.

use std::collections::HashMap;

use kukuri_domain::{
    Millis, Reason, Timestamp,
    retention::{Keep, Retention, RetentionClass},
};
use kukuri_store::{DryRun, Purged, StageChange, StoreError, Swept, counters::Tally as _};

use crate::{
    ages::{self, AgePlace, Oldest},
    batch::{Batch, Committed},
    error::{Result, damaged, engine},
    key::{self, EventNo, TopicNo},
    record::{KeyRecord, KnownId, OutboxRecord, Row, TombstoneRecord, VanishRecord},
    tables::Table,
    writer::Writer,
};

/// Most rows that a step reads.
const STEP: usize = 1_000;

impl Writer {
    /// One step of the expiry sweep: retires expired events. Returns whether more are left.
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
        let mut batch = Batch::begin(self.context(), now)?;
        if batch.node.clock.held {
            swept.held = true;
            let clock = batch.commit()?.clock;
            self.note_clock(clock);
            return Ok(false);
        }
        let due = batch.due(now.seconds(), step)?;
        let count = due.len();
        for no in due {
            let row = batch.row(no)?.ok_or_else(|| damaged(format!("row {} expires and is not there", no.0)))?;
            batch.retire(row, Reason::Expiration, None)?;
        }
        batch.update_stages()?;
        let next = batch.next_expiration()?;
        let clock = batch.commit()?.clock;
        self.note_clock(clock);
        swept.expired += count as u64;
        swept.next = next;
        Ok(count == step)
    }

    /// One step of a purge. Returns whether more is left.
    ///
    /// A step that does not fit on a full disk is retried with fewer rows: the pages it frees make room for the next.
    pub(crate) fn purge_some(&mut self, work: &mut PurgeWork) -> Result<bool> {
        if work.phase == Phase::Begin {
            work.retention.validate(self.subscriptions.retentions()).map_err(StoreError::from)?;
            self.walked.keep_for(&work.retention);
            if let Err(error) = self.flush() {
                tracing::warn!(%error, "can't write the counts of repeated events; trying again later");
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
        let mut batch = Batch::begin(self.context(), work.now)?;
        if batch.node.clock.held {
            work.purged.held = true;
            let clock = batch.commit()?.clock;
            self.note_clock(clock);
            return Ok(false);
        }
        let walked = batch.purge_rows(&self.walked, work)?;
        let Committed { stages, clock, .. } = batch.commit()?;
        self.note_clock(clock);
        for (place, cursor) in walked {
            self.walked.note(place, cursor);
        }
        work.purged.stages.extend(stages);
        work.purged.stages = StageChange::summed_up(std::mem::take(&mut work.purged.stages));
        Ok(work.phase != Phase::Done)
    }
}

impl Writer {
    /// Purges in a transaction that is aborted. It reads about `max_rows` rows, so that other writes can continue soon
    /// and the pages it changes stay in memory.
    pub(crate) fn dry_run_purge(&mut self, retention: Retention, now: Millis, max_rows: usize) -> Result<DryRun> {
        retention.validate(self.subscriptions.retentions()).map_err(StoreError::from)?;
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "can't write the counts of repeated events; trying again later");
        }
        let mut batch = Batch::begin(self.context(), now)?;
        if batch.node.clock.held {
            return Ok(DryRun { purged: Purged { held: true, ..Purged::default() }, is_complete: true });
        }
        let mut work = PurgeWork::new(retention, now);
        let mut rows = 0;
        while rows < max_rows && work.phase != Phase::Done {
            let mut attempt = work.clone();
            match batch.purge_rows(&Walked::default(), &mut attempt) {
                // Without a commit no page becomes free: the rest is not counted.
                Err(error) if error.is_full() => break,
                done => drop(done?),
            }
            rows += attempt.step;
            work = attempt;
        }
        work.purged.stages = StageChange::summed_up(batch.take_stages());
        Ok(DryRun { is_complete: work.phase == Phase::Done, purged: work.purged })
    }
}

fn smaller(step: usize) -> usize {
    (step / 8).max(1)
}

/// How far purges have scanned the ages of each topic, so that rows kept by another topic are not read again with every
/// purge: that topic's own scan will reach them. Valid only while no policy changes.
#[derive(Default)]
pub(crate) struct Walked {
    retention: Option<Retention>,
    ends: HashMap<AgePlace, Vec<u8>>,
}

impl Walked {
    /// A policy changed: rows that were skipped may be due.
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
        // A row becomes history at any age, also behind the position of a scan.
        let is_history = place[4] == RetentionClass::History as u8;
        if !is_history && !end.is_empty() {
            self.ends.insert(place, end);
        }
    }
}

const MEMORIES: [Table; 3] = [Table::Tombstones, Table::Vanished, Table::Keys];

/// Progress of a purge.
#[derive(Clone)]
pub(crate) struct PurgeWork {
    retention: Retention,
    now: Millis,
    phase: Phase,
    /// Position of the phase: the last key it read.
    cursor: Vec<u8>,
    /// Rows that a step reads, and how many of them are left.
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
    /// Rows past retention, topic by topic, class by class.
    Ages(AgePlace),
    /// Topics at their last stage, in the order of their ids; then the node.
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
    /// One step of a purge. Returns its positions in the topics and classes that it finished.
    fn purge_rows(&mut self, walked: &Walked, work: &mut PurgeWork) -> Result<Vec<(AgePlace, Vec<u8>)>> {
        let mut finished = Vec::new();
        work.left = work.step;
        while work.left > 0 && work.phase != Phase::Done {
            if let (Phase::Ages(place), []) = (&work.phase, work.cursor.as_slice()) {
                work.cursor = walked.end(place);
            }
            let is_phase_done = match work.phase.clone() {
                Phase::Begin => true,
                Phase::Ages(place) => self.purge_by_age(&place, work)?,
                Phase::Room { topics, place } => self.make_room(topics.get(place).copied(), work)?,
                Phase::Ids => self.forget_ids(work)?,
                Phase::Outbox => self.drop_outbox(work)?,
                Phase::Memories { table } => self.drop_memories(MEMORIES[table], work)?,
                Phase::Done => false,
            };
            if is_phase_done {
                let cursor = std::mem::take(&mut work.cursor);
                if let Phase::Ages(place) = work.phase {
                    finished.push((place, cursor));
                }
                self.update_stages()?;
                work.phase = self.after(&work.phase)?;
            }
        }
        self.update_stages()?;
        Ok(finished)
    }

    /// The phase after this one.
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
        Ok(match ages::place_after(&self.ctx.tables, &self.txn, place)? {
            Some(place) => Phase::Ages(place),
            None => Phase::Room { topics: self.purging_topics()?, place: 0 },
        })
    }

    // Expiry.

    fn due(&self, now: Timestamp, most: usize) -> Result<Vec<EventNo>> {
        let mut due = Vec::new();
        for entry in self.ctx.tables.of(Table::Expiry).iter(&self.txn).map_err(engine)?.take(most) {
            let (expiration, no) = expiry_parts(entry.map_err(engine)?.0)?;
            if expiration > now {
                break;
            }
            due.push(no);
        }
        Ok(due)
    }

    fn next_expiration(&self) -> Result<Option<Timestamp>> {
        let first = self.ctx.tables.of(Table::Expiry).first(&self.txn).map_err(engine)?;
        first.map(|(key, _)| expiry_parts(key).map(|(expiration, _)| expiration)).transpose()
    }

    // Retention.

    /// Purges rows of one topic and class that are past retention and that no other topic keeps.
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
                self.purge_row(row, Reason::Retention)?;
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

    /// Evicts the oldest rows that may be evicted, while a topic (or the node) at its last stage holds too much.
    fn make_room(&mut self, topic: Option<TopicNo>, work: &mut PurgeWork) -> Result<bool> {
        let mut oldest = None;
        while work.left > 0 {
            if !self.must_make_room(topic)? {
                return Ok(true);
            }
            work.left -= 1;
            let oldest = match &mut oldest {
                Some(oldest) => oldest,
                none => none.insert(Oldest::of(&self.ctx.tables, &self.txn, topic)?),
            };
            let Some((no, _)) = oldest.next(&self.ctx.tables, &self.txn)? else { return Ok(true) };
            let Some(row) = self.row(no)? else { continue };
            self.purge_row(row, Reason::Capacity)?;
            work.purged.by_capacity += 1;
        }
        Ok(false)
    }

    // Ids, outbox rows, tombstones, vanish marks and floors.

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
                    // A later copy arrived: retention counts from the last one.
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

    /// Removes tombstones, vanish marks, and floors without an effective version; they follow the retention of requests
    /// (P-5). Usually they are kept forever and nothing is read.
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

    /// As many keys as the step has left, from the position of the purge; and whether these are the last.
    fn some_keys(&self, table: Table, prefix: &[u8], work: &mut PurgeWork) -> Result<(Vec<Vec<u8>>, bool)> {
        let keys = self.ctx.tables.keys_after(&self.txn, table, prefix, &work.cursor, work.left)?;
        let is_last = keys.len() < work.left;
        work.left -= keys.len();
        Ok((keys, is_last))
    }
}

fn expiry_parts(key: &[u8]) -> Result<(Timestamp, EventNo)> {
    let mut key = crate::pack::Unpack::new("expiry", key);
    Ok((key.timestamp()?, EventNo(key.u64()?)))
}
