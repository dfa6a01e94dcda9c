//! Expiry and purges, in steps: each step is one transaction of bounded size, and other writes run between steps.
//!
//! Every step is complete in itself: after an interruption the store is consistent and the next run continues.

use std::collections::HashMap;

use kukuri_domain::{
    Millis, PublicKey, Reason, Timestamp,
    remains::Subject,
    retention::{Keep, Retention, RetentionClass},
};
use kukuri_store::{
    DryRun, PurgeCursor, PurgeStep, Purged, StageChange, StoreError, Swept,
    counters::Tally as _,
    ingest::{Ledger as _, leave_local_mark},
};

use crate::{
    ages::{self, AgePrefix, Oldest, OldestSearch},
    batch::{Batch, Committed, StoredRow},
    error::Result,
    former_topics,
    key::{self, EventNo, TopicNo},
    pack::{Record as _, take, unpack},
    record::{KeyRecord, KnownId, OutboxRecord, TombstoneRecord, VanishRecord},
    remains::{self, RemainsRecord},
    tables::Table,
    writer::Writer,
};

/// Maximum rows that a step reads.
const STEP: usize = 1_000;

/// Maximum positions of purges that are remembered.
const MAX_SCANNED: usize = 100_000;

/// Runs a step. One that does not fit on a full disk is tried again with fewer rows: the pages it frees make room for
/// the next.
fn in_fewer_rows_if_full<T>(mut step: impl FnMut(usize) -> Result<T>) -> Result<T> {
    let mut rows = STEP;
    loop {
        match step(rows) {
            Err(error) if error.is_full() && rows > 1 => rows = (rows / 8).max(1),
            done => return done,
        }
    }
}

impl Writer {
    /// One step of the expiry sweep: retires expired events. Returns also whether more are left.
    pub(crate) fn expire_some(&mut self, now: Millis) -> Result<(Swept, bool)> {
        in_fewer_rows_if_full(|rows| self.expire_rows(rows, now))
    }

    fn expire_rows(&self, rows: usize, now: Millis) -> Result<(Swept, bool)> {
        let mut batch = Batch::begin(self.context(), now)?;
        let mut swept = Swept { held: batch.node.clock.is_held(), ..Swept::default() };
        if !swept.held {
            for key in batch.view().keys_after(Table::Expiry, &[], &[], rows)? {
                if expiration_of(&key)? > now.seconds() {
                    break;
                }
                let no = EventNo::of_key(&key)?;
                let row = StoredRow::read(no, batch.row(no)?)?;
                batch.retire(row, Reason::Expiration, None)?;
                swept.expired += 1;
            }
            batch.update_stages()?;
            let next = batch.view().iter(Table::Expiry)?.next().transpose()?;
            swept.next = next.map(|(key, _)| expiration_of(key)).transpose()?;
        }
        self.commit(batch)?;
        let more = swept.expired == rows as u64;
        Ok((swept, more))
    }

    /// Leaves a vanish mark without a request, and removes what it covers (N-2).
    pub(crate) fn leave_vanish_mark(
        &mut self,
        author: &PublicKey,
        until: Timestamp,
        now: Millis,
    ) -> Result<Vec<StageChange>> {
        let mut batch = Batch::begin(self.context(), now)?;
        leave_local_mark(&mut batch, author, until)?;
        Ok(self.commit(batch)?.stages)
    }

    /// One step of a purge.
    pub(crate) fn purge_some(&mut self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep> {
        retention.validate(self.subscriptions.retentions()).map_err(StoreError::from)?;
        if cursor.began_at.is_none() {
            self.write_duplicate_counts_or_warn();
        }
        self.scanned.keep_for(retention);
        in_fewer_rows_if_full(|rows| self.purge_rows(Purge::resume(retention, now, cursor.clone()), rows))
    }

    fn purge_rows(&mut self, mut purge: Purge<'_>, rows: usize) -> Result<PurgeStep> {
        let mut batch = Batch::begin(self.context(), purge.began_at)?;
        batch.purge_rows(&self.scanned, &mut purge, rows)?;
        let Committed { stages, clock, .. } = self.commit(batch)?;
        let is_over = purge.is_done();
        for (prefix, end) in purge.finished {
            self.scanned.note(prefix, end);
        }
        let mut cursor = purge.cursor;
        cursor.purged.held = clock.is_held();
        cursor.purged.stages.extend(stages);
        cursor.purged.stages = StageChange::summed_up(cursor.purged.stages);
        Ok(PurgeStep { purged: cursor.purged.clone(), next: (!is_over).then_some(cursor) })
    }

    /// Purges in a transaction that is aborted. It reads about `max_rows` rows, so that other writes can continue soon
    /// and the pages it changes stay in memory.
    pub(crate) fn dry_run_purge(&mut self, retention: &Retention, now: Millis, max_rows: usize) -> Result<DryRun> {
        retention.validate(self.subscriptions.retentions()).map_err(StoreError::from)?;
        self.write_duplicate_counts_or_warn();
        let mut batch = Batch::begin(self.context(), now)?;
        let mut purge = Purge::resume(retention, now, PurgeCursor::default());
        let mut rows = 0;
        while rows < max_rows && !purge.is_done() {
            let mut attempt = purge.clone();
            match batch.purge_rows(&Scanned::default(), &mut attempt, STEP) {
                // Without a commit no page becomes free: the rest is not counted.
                Err(error) if error.is_full() => break,
                done => done?,
            }
            rows += STEP;
            purge = attempt;
        }
        let is_complete = purge.is_done();
        let stages = StageChange::summed_up(std::mem::take(&mut batch.stages));
        let held = batch.node.clock.is_held();
        Ok(DryRun { is_complete, purged: Purged { stages, held, ..purge.cursor.purged } })
    }
}

/// How far purges have scanned the ages of each topic, so that rows kept by another topic are not read again with every
/// purge: that topic's own scan will reach them. Valid only while no policy changes.
#[derive(Default)]
pub(crate) struct Scanned {
    retention: Option<Retention>,
    ends: HashMap<AgePrefix, Vec<u8>>,
}

impl Scanned {
    /// A policy changed: rows that were skipped may be due.
    pub(crate) fn forget(&mut self) {
        self.ends.clear();
    }

    fn keep_for(&mut self, retention: &Retention) {
        if self.retention.replace(*retention) != Some(*retention) {
            self.forget();
        }
    }

    /// The key after which the scan of a topic and class begins.
    fn end(&self, prefix: AgePrefix) -> Vec<u8> {
        self.ends.get(&prefix).cloned().unwrap_or_else(|| prefix.to_vec())
    }

    fn note(&mut self, prefix: AgePrefix, end: Vec<u8>) {
        // A row becomes history at any age, also behind the position of a scan.
        let is_useful = prefix[4] != RetentionClass::History as u8 && end.len() > prefix.len();
        if is_useful && self.ends.len() < MAX_SCANNED {
            self.ends.insert(prefix, end);
        }
    }
}

/// The phases of a purge, in order.
const PHASES: [Phase; 10] = [
    Phase::Age,
    Phase::RoomInTopics,
    Phase::RoomInNode,
    Phase::Ids,
    Phase::Outbox,
    Phase::FormerTopics,
    Phase::Memories(Table::Tombstones),
    Phase::Memories(Table::Vanished),
    Phase::Memories(Table::Remains),
    Phase::Memories(Table::Keys),
];

enum Phase {
    Age,
    RoomInTopics,
    RoomInNode,
    Ids,
    Outbox,
    /// Forgets the names of former topics that no outbox row has any more (T-10).
    FormerTopics,
    Memories(Table),
}

impl Phase {
    fn is_for_capacity(&self) -> bool {
        matches!(self, Self::RoomInTopics | Self::RoomInNode)
    }
}

/// A purge in progress.
#[derive(Clone)]
struct Purge<'r> {
    retention: &'r Retention,
    /// Retention is counted from here.
    began_at: Millis,
    /// `phase` is an index in [`PHASES`], `after` the last key that was read in it.
    cursor: PurgeCursor,
    /// Rows that the step may remove.
    rows: usize,
    /// Rows that the step may still read, and places that it may still look at: a topic and class, or a topic.
    left: usize,
    /// Positions in the topics and classes that the step finished.
    finished: Vec<(AgePrefix, Vec<u8>)>,
}

impl<'r> Purge<'r> {
    fn resume(retention: &'r Retention, now: Millis, mut cursor: PurgeCursor) -> Self {
        let began_at = *cursor.began_at.get_or_insert(now);
        Self { retention, began_at, cursor, rows: 0, left: 0, finished: Vec::new() }
    }

    /// `None`: the purge is done.
    fn phase(&self) -> Option<&'static Phase> {
        PHASES.get(usize::from(self.cursor.phase))
    }

    fn is_done(&self) -> bool {
        self.phase().is_none()
    }
}

impl Batch<'_> {
    /// One step of a purge.
    fn purge_rows(&mut self, scanned: &Scanned, purge: &mut Purge<'_>, rows: usize) -> Result<()> {
        (purge.rows, purge.left) = (rows, rows);
        let is_for_capacity_only = purge.cursor.is_for_capacity_only || self.node.clock.is_held();
        while purge.left > 0
            && let Some(phase) = purge.phase()
        {
            let is_phase_done = match phase {
                _ if is_for_capacity_only && !phase.is_for_capacity() => true,
                Phase::Age => self.purge_by_age(scanned, purge)?,
                Phase::RoomInTopics => self.make_room_in_topics(purge)?,
                Phase::RoomInNode => self.make_room_in_node(purge)?,
                Phase::Ids => self.forget_ids(purge)?,
                Phase::Outbox => self.drop_outbox(purge)?,
                Phase::FormerTopics => self.drop_former_topics(purge)?,
                Phase::Memories(table) => self.drop_memories(*table, purge)?,
            };
            if is_phase_done {
                purge.cursor.phase += 1;
                purge.cursor.after.clear();
            }
            self.update_stages()?;
        }
        Ok(())
    }

    // Retention.

    /// Purges rows of the current topic and class, then turns to the next.
    fn purge_by_age(&mut self, scanned: &Scanned, purge: &mut Purge<'_>) -> Result<bool> {
        let current = purge.cursor.after.first_chunk().copied();
        if let Some(prefix) = current {
            if !self.purge_ages_under(prefix, purge)? {
                return Ok(false);
            }
            purge.finished.push((prefix, std::mem::take(&mut purge.cursor.after)));
        }
        purge.left = purge.left.saturating_sub(1);
        let next = ages::prefix_after(self.view(), current)?;
        purge.cursor.after = next.map_or_else(Vec::new, |prefix| scanned.end(prefix));
        Ok(next.is_none())
    }

    /// Purges rows of one topic and class that are past retention and that no other topic keeps.
    fn purge_ages_under(&mut self, prefix: AgePrefix, purge: &mut Purge<'_>) -> Result<bool> {
        let class = ages::class_of(&prefix)?;
        let keep = purge.retention.in_topic(class, &self.topic_retention(ages::topic_of(prefix))?);
        let Some(cutoff) = keep.cutoff(purge.began_at) else { return Ok(true) };

        let (keys, is_last) = self.some_keys(Table::Ages, &prefix, purge)?;
        for key in keys {
            let no = EventNo::of_key(&key)?;
            let row = self.row(no)?;
            if row.ingested_at > cutoff {
                return Ok(true);
            }
            let row = StoredRow::read(no, row)?;
            let retentions = row.topics.iter().map(|topic| self.topic_retention(*topic)).collect::<Result<Vec<_>>>()?;
            if purge.retention.keep(class, &retentions).is_over(row.ingested_at, purge.began_at) {
                self.purge_row(row, Reason::Retention)?;
                purge.cursor.purged.by_retention += 1;
            }
            purge.cursor.after = key;
        }
        Ok(is_last)
    }

    // Capacity.

    fn make_room_in_topics(&mut self, purge: &mut Purge<'_>) -> Result<bool> {
        let (subscriptions, after) = (self.ctx.subscriptions, purge.cursor.after.clone());
        for topic in subscriptions.with_capacity().filter(|topic| topic.as_str().as_bytes() > after.as_slice()) {
            if purge.left == 0 {
                return Ok(false);
            }
            purge.left -= 1;
            if let Some(no) = self.find_topic(topic)?
                && !self.make_room(no, purge)?
            {
                return Ok(false);
            }
            self.update_stages()?;
            purge.cursor.after = topic.as_str().into();
        }
        Ok(true)
    }

    /// Evicts the oldest rows of a topic that may be evicted, while it is at its last stage and holds too much.
    fn make_room(&mut self, topic: TopicNo, purge: &mut Purge<'_>) -> Result<bool> {
        let mut oldest = None;
        while self.must_make_room(Some(topic))? {
            if purge.left == 0 {
                return Ok(false);
            }
            purge.left -= 1;
            let oldest = match &mut oldest {
                Some(oldest) => oldest,
                none => none.insert(Oldest::of(self.view(), topic)?),
            };
            let Some(no) = oldest.next(self.view())? else { return Ok(true) };
            let Some(row) = self.read_row(no)? else { continue };
            self.purge_row(row, Reason::Capacity)?;
            purge.cursor.purged.by_capacity += 1;
        }
        Ok(true)
    }

    /// Evicts the oldest rows of all topics that may be evicted, while the node is at its last stage and holds too much.
    /// A search over all topics finds as many as a step removes; it takes several steps if there are many topics.
    fn make_room_in_node(&mut self, purge: &mut Purge<'_>) -> Result<bool> {
        if !self.must_make_room(None)? {
            return Ok(true);
        }
        let mut search = OldestSearch::unpack(&purge.cursor.after)?;
        while purge.left > 0 && !search.is_done() {
            let looked_at = search.look_at_next(self.view(), STEP)?;
            purge.left = purge.left.saturating_sub(looked_at);
        }
        if !search.is_done() {
            purge.cursor.after = search.pack();
            return Ok(false);
        }
        let mut found = search.into_found();
        let is_last = found.is_empty();
        for _ in 0..purge.rows {
            let Some(no) = found.pop_first() else { break };
            if !self.must_make_room(None)? {
                return Ok(true);
            }
            let Some(row) = self.read_row(no)?.filter(|row| row.class().gives_way()) else { continue };
            self.purge_row(row, Reason::Capacity)?;
            purge.cursor.purged.by_capacity += 1;
        }
        // Rows that are left are removed by the next step; after them the search begins again.
        purge.cursor.after = if found.is_empty() { Vec::new() } else { OldestSearch::done(found).pack() };
        purge.left = 0;
        Ok(is_last)
    }

    // Ids, outbox rows, tombstones, vanish marks and floors.

    fn forget_ids(&mut self, purge: &mut Purge<'_>) -> Result<bool> {
        let Some(cutoff) = purge.retention.dedupe.cutoff(purge.began_at) else { return Ok(true) };
        let (keys, is_last) = self.some_keys(Table::Gone, &[], purge)?;
        for key in keys {
            let Some((seen, id)) = key.split_first_chunk::<8>() else { continue };
            if Millis(u64::from_be_bytes(*seen)) > cutoff {
                return Ok(true);
            }
            self.delete(Table::Gone, &key)?;
            match self.view().find::<KnownId>(id)? {
                Some(known) if known.record.last_seen_at > cutoff => {
                    // A later copy arrived: retention counts from the last one.
                    let later = [&known.record.last_seen_at.0.to_be_bytes(), id].concat();
                    self.put(Table::Gone, &later, &[])?;
                }
                Some(_) => {
                    self.delete(Table::Ids, id)?;
                    self.drop_remains(&unpack(Table::Gone.name(), id, take)?)?;
                    purge.cursor.purged.ids += 1;
                }
                None => {}
            }
            purge.cursor.after = key;
        }
        Ok(is_last)
    }

    fn drop_outbox(&mut self, purge: &mut Purge<'_>) -> Result<bool> {
        let (keys, is_last) = self.some_keys(Table::Outbox, &[], purge)?;
        for key in keys {
            let Some(record) = self.view().find::<OutboxRecord>(&key)? else { continue };
            if !purge.retention.outbox.is_over(record.written_at, purge.began_at) {
                return Ok(true);
            }
            self.delete(Table::Outbox, &key)?;
            self.node.outbox_dropped = key::seq_of(&key)?;
            purge.cursor.purged.outbox += 1;
            purge.cursor.after = key;
        }
        Ok(is_last)
    }

    fn drop_former_topics(&mut self, purge: &mut Purge<'_>) -> Result<bool> {
        let (keys, is_last) = self.some_keys(Table::FormerTopics, &[], purge)?;
        for key in keys {
            let (head, topic) = former_topics::read_key(&key)?;
            if head > self.node.outbox_dropped {
                return Ok(true);
            }
            self.delete(Table::TopicNames, &former_topics::name_key(topic))?;
            self.delete(Table::FormerTopics, &key)?;
            purge.cursor.after = key;
        }
        Ok(is_last)
    }

    /// Removes tombstones, vanish marks, remains, and floors without an effective version; they follow the retention of
    /// requests (P-5). Usually they are kept forever and nothing is read. The remains of one event go with its id.
    fn drop_memories(&mut self, table: Table, purge: &mut Purge<'_>) -> Result<bool> {
        if purge.retention.requests == Keep::Forever {
            return Ok(true);
        }
        let (keys, is_last) = self.some_keys(table, &[], purge)?;
        for key in keys {
            let Some(record) = self.view().get(table, &key)? else { continue };
            let noted_at = match table {
                Table::Tombstones => Some(TombstoneRecord::unpack(record)?.noted_at),
                Table::Vanished => Some(VanishRecord::unpack(record)?.noted_at),
                Table::Remains if matches!(remains::subject_of(&key)?, Subject::Event(_)) => None,
                Table::Remains => Some(RemainsRecord::unpack(record)?.noted_at),
                _ => Some(KeyRecord::unpack(record)?).filter(|key| key.current.is_none()).map(|key| key.raised_at),
            };
            if noted_at.is_some_and(|at| purge.retention.requests.is_over(at, purge.began_at)) {
                self.delete(table, &key)?;
                purge.cursor.purged.memories += 1;
            }
            purge.cursor.after = key;
        }
        Ok(is_last)
    }

    /// As many keys as the step has left, from the position of the purge; and whether these are the last.
    fn some_keys(&self, table: Table, prefix: &[u8], purge: &mut Purge<'_>) -> Result<(Vec<Vec<u8>>, bool)> {
        let keys = self.view().keys_after(table, prefix, &purge.cursor.after, purge.left)?;
        let is_last = keys.len() < purge.left;
        purge.left -= keys.len();
        Ok((keys, is_last))
    }
}

fn expiration_of(key: &[u8]) -> Result<Timestamp> {
    unpack(Table::Expiry.name(), key, take)
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Event, TopicId, capacity::Capacity};
    use kukuri_store::{
        StoreRules,
        conformance::build::{ALICE, BOB, NOW, admitted, bare, later, vanish},
        port::*,
    };

    use super::*;
    use crate::{Durability, LmdbOptions, LmdbStore};

    /// More than a step looks at.
    const TOPICS: u64 = 2_500;

    fn options(capacity: Option<u64>) -> LmdbOptions {
        let capacity = Capacity { max_events: capacity, max_bytes: None };
        let rules = StoreRules { capacity, ..StoreRules::default() };
        LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 28, rules, ..LmdbOptions::default() }
    }

    fn numbered(number: u64) -> TopicId {
        TopicId::new_unchecked(&format!("kukuri:{number:064x}"))
    }

    /// An event of this kind in a topic of its own.
    fn event(kind: u16, number: u64) -> Event {
        let author = if number.is_multiple_of(2) { ALICE } else { BOB };
        bare(kind)
            .by(author)
            .at(number % 900)
            .tag(["t", numbered(number).as_str()])
            .tag(["d", &number.to_string()])
            .build()
    }

    fn block_on<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    async fn filled(dir: &std::path::Path, capacity: Option<u64>, kind: impl Fn(u64) -> u16) -> LmdbStore {
        let store = LmdbStore::open(dir, options(capacity)).unwrap();
        for first in (0..TOPICS).step_by(500) {
            let batch = (first..first + 500).map(|number| admitted(&event(kind(number), number)));
            store.ingest(batch.collect(), NOW).await.unwrap();
        }
        store
    }

    /// Purges. Returns how many steps that took.
    async fn purge(store: &LmdbStore, retention: &Retention, now: Millis) -> (usize, Purged) {
        let (mut steps, mut cursor) = (0, PurgeCursor::default());
        loop {
            steps += 1;
            let step = store.purge_some(retention, now, cursor).await.unwrap();
            match step.next {
                Some(next) => {
                    assert!(next.after.len() < 10 * STEP, "the position is bounded");
                    cursor = next;
                }
                None => return (steps, step.purged),
            }
        }
    }

    #[test]
    fn step_of_a_purge_looks_at_a_bounded_number_of_topics() {
        // T-10, P-5
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let store = filled(dir.path(), None, |_| 30_023).await;
            let (steps, purged) = purge(&store, &Retention::default(), NOW).await;
            assert_eq!(purged.by_retention, 0);
            assert!(steps as u64 > TOPICS / STEP as u64, "{steps} steps for {TOPICS} topics that keep all");
        });
    }

    #[test]
    fn oldest_rows_of_many_topics_are_evicted_in_bounded_steps() {
        // T-10, P-6
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            // Every sixth event is a current version, which does not give way.
            let kind = |number: u64| if number.is_multiple_of(6) { 30_023 } else { 1 };
            let store = filled(dir.path(), Some(TOPICS), kind).await;
            drop(store);
            let store = LmdbStore::open(dir.path(), options(Some(1_500))).unwrap();
            let (steps, purged) = purge(&store, &Retention::default(), NOW).await;
            let left = 1_500 * 95 / 100;
            assert_eq!(purged.by_capacity, TOPICS - left);
            assert!(steps > 4, "{steps} steps to search {TOPICS} topics and evict {}", purged.by_capacity);
            let ids: Vec<_> = (0..TOPICS).map(|number| event(kind(number), number).id).collect();
            let found = store.get(&ids, NOW).await.unwrap();
            let gone: Vec<u64> = (0..TOPICS).filter(|number| found[*number as usize].is_none()).collect();
            let oldest = (0..TOPICS).filter(|number| !number.is_multiple_of(6));
            assert_eq!(gone, oldest.take(gone.len()).collect::<Vec<_>>(), "the oldest that give way");
            assert_eq!(
                store.list_topics(None, 10_000).await.unwrap().len() as u64,
                left,
                "topics without rows are gone"
            );
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        });
    }

    #[test]
    fn names_of_former_topics_go_with_their_outbox_rows() {
        // T-10
        let dir = tempfile::tempdir().unwrap();
        let len = |store: &LmdbStore, table: Table| {
            store.with_writer(move |writer| writer.tables.read(|view| view.len(table)).unwrap())
        };
        block_on(async {
            let store = filled(dir.path(), None, |_| 1).await;
            let farewells = [vanish().at(950).build(), vanish().by(BOB).at(950).build()];
            store.ingest(farewells.iter().map(admitted).collect(), NOW).await.unwrap();
            assert_eq!(len(&store, Table::Topics), 1, "kukuri:global has the requests");
            assert_eq!((len(&store, Table::FormerTopics), len(&store, Table::TopicNames)), (TOPICS, TOPICS + 1));
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
            let rows = store.outbox(kukuri_store::Seq(0), usize::MAX).await.unwrap();
            assert_eq!(rows.last().unwrap().topic, TopicId::global());
            assert!(rows.iter().any(|row| row.topic == numbered(7)), "rows still name their topics");
            drop(store);
            let store = LmdbStore::open(dir.path(), options(None)).unwrap();
            assert_eq!(len(&store, Table::Topics), 1, "after a restart");
            let day = 24 * 3_600;
            for days in 1..40 {
                store.observe_clock(later(days * day / 2)).await.unwrap();
            }
            store.confirm_clock(later(40 * day)).await.unwrap();
            purge(&store, &Retention::default(), later(40 * day)).await;
            assert_eq!((len(&store, Table::FormerTopics), len(&store, Table::TopicNames)), (0, 1));
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        });
    }

    #[test]
    fn exhausted_numbers_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), options(None)).unwrap();
        for is_topic in [true, false] {
            let error = store.with_writer(move |writer| {
                let mut batch = Batch::begin(writer.context(), NOW).unwrap();
                let last = if is_topic { &mut batch.node.last_topic.0 } else { &mut batch.node.last_author.0 };
                *last = u32::MAX;
                let put = kukuri_store::ingest::Ledger::put(&mut batch, &admitted(&event(1, 1)), &[numbered(1)]);
                put.unwrap_err().to_string()
            });
            assert!(error.starts_with("no numbers are left for new "), "{error}");
        }
    }
}
