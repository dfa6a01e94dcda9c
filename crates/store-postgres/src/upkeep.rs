//! Expiry and purges, in steps: each step is one transaction of bounded size and releases the writers' lock at its end.
//!
//! Every step is complete in itself: after an interruption the store is consistent and the next run continues.

use std::collections::HashSet;

use kukuri_domain::{
    EventId, Millis, PublicKey, Reason, Timestamp, TopicId,
    capacity::Stage,
    retention::{Keep, Retention, RetentionClass},
};
use kukuri_store::{
    DryRun, PurgeCursor, PurgeStep, Seq, StageChange, StoreError, Swept,
    counters::Tally as _,
    ingest::{Ledger as _, leave_local_mark},
};

use crate::{
    batch::Batch,
    columns::{Column as _, ReadColumn as _, SqlQuery, number_at, query},
    due::{Cutoffs, EXPIRED, oldest},
    error::{Result, damaged},
    work::{Row, TopicNo},
    writer::Writer,
};

/// Most rows that a step removes: few enough for a slow disk to write within the statement timeout.
pub(crate) const STEP: i64 = 250;

/// The phases of a purge, in order.
const PHASES: [Phase; 13] = [
    Phase::Months,
    Phase::Age(RetentionClass::Regular),
    Phase::Age(RetentionClass::Request),
    Phase::Age(RetentionClass::Current),
    Phase::Age(RetentionClass::History),
    Phase::Topics,
    Phase::Node,
    Phase::Ids,
    Phase::Outbox,
    Phase::Memories(DROP_TOMBSTONES),
    Phase::Memories(DROP_VANISH_MARKS),
    Phase::Memories(DROP_REMAINS),
    Phase::Memories(DROP_FLOORS),
];

enum Phase {
    /// Drops months past retention, and updates the ids of dropped months.
    Months,
    /// Purges rows of a class past retention.
    Age(RetentionClass),
    /// Evicts rows of topics at their last stage.
    Topics,
    /// Evicts rows while the node is at its last stage.
    Node,
    Ids,
    Outbox,
    /// Deletes tombstones, vanish marks, remains or floors past the retention of requests (P-5).
    Memories(&'static str),
}

impl Phase {
    fn is_for_capacity(&self) -> bool {
        matches!(self, Self::Topics | Self::Node)
    }
}

/// A purge in progress.
pub(crate) struct Purge {
    pub(crate) retention: Retention,
    /// Start of the purge: retention is counted from here.
    pub(crate) began_at: Millis,
    /// Months are not dropped but purged row by row, which locks no table.
    pub(crate) is_dry_run: bool,
    /// `phase` is an index in [`PHASES`], `after` the position in it.
    pub(crate) cursor: PurgeCursor,
}

impl Purge {
    fn phase(&self) -> Option<&'static Phase> {
        PHASES.get(usize::from(self.cursor.phase))
    }

    fn add_stages(&mut self, stages: Vec<StageChange>) {
        let purged = &mut self.cursor.purged;
        purged.stages.extend(stages);
        purged.stages = StageChange::summed_up(std::mem::take(&mut purged.stages));
    }
}

/// Outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It wrote, and its phase may have more to do.
    More,
    /// It wrote, and its phase is done.
    Last,
    /// It wrote nothing, and its phase is done.
    Nothing,
    /// It wrote nothing, and its phase goes on at the next position.
    Skipped,
}

impl Step {
    /// `More` if the step found as many rows as it may remove.
    fn after(found: u64) -> Self {
        match found.to_sql() {
            0 => Self::Nothing,
            STEP.. => Self::More,
            _ => Self::Last,
        }
    }

    /// The outcome for a phase with many positions, of which this step is for one: when that is done, the next follows.
    pub(crate) fn at(self, position: Vec<u8>, purge: &mut Purge) -> Self {
        if self != Self::More {
            purge.cursor.after = position;
        }
        if self == Self::Nothing { Self::Skipped } else { Self::More }
    }
}

impl Writer {
    /// One step of the expiry sweep: retires expired events. Returns whether more are left.
    pub(crate) async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        let mut batch = Batch::begin(self, now).await?;
        if batch.clock().is_held() {
            batch.commit().await?;
            return Ok((Swept { held: true, ..Swept::default() }, false));
        }
        let due = batch.rows(query(EXPIRED).bind(now.seconds().to_sql()).bind(STEP)).await?;
        for id in &due {
            let row = batch.row(id)?;
            batch.work.retire(row, Reason::Expiration, None)?;
        }
        batch.work.update_stages()?;
        batch.commit().await?;
        let next = query(
            "SELECT expires_at FROM cn_relay.events WHERE effective AND expires_at IS NOT NULL \
             ORDER BY expires_at LIMIT 1",
        );
        let next = self.pool.fetch_all(next).await?;
        let next: Option<Timestamp> = next.first().map(|row| row.read("expires_at")).transpose()?;
        Ok((Swept { expired: due.len() as u64, next, held: false }, due.len() as i64 == STEP))
    }

    /// Leaves a vanish mark without a request, and removes what it covers (N-2).
    pub(crate) async fn leave_vanish_mark(
        &self,
        author: &PublicKey,
        until: Timestamp,
        now: Millis,
    ) -> Result<Vec<StageChange>> {
        let mut batch = Batch::begin(self, now).await?;
        batch.read_vanish_facts(author, until).await?;
        leave_local_mark(&mut batch.work, author, until)?;
        Ok(batch.commit().await?.stages)
    }

    /// One step of a purge (P-5, P-6).
    pub(crate) async fn purge_some(
        &self,
        retention: Retention,
        now: Millis,
        mut cursor: PurgeCursor,
    ) -> Result<PurgeStep> {
        if cursor.began_at.is_none() {
            let mut batch = Batch::begin(self, now).await?;
            batch.validate(&retention)?;
            // Purges run regularly, so every month has its partition before its first event.
            batch.open_month().await?;
            batch.commit().await?;
            self.write_duplicate_counts_or_warn().await;
        }
        let began_at = *cursor.began_at.get_or_insert(now);
        let mut purge = Purge { retention, began_at, is_dry_run: false, cursor };
        while purge.phase().is_some() {
            let mut batch = Batch::begin(self, now).await?;
            if batch.purge_step(&mut purge).await? {
                purge.add_stages(batch.commit().await?.stages);
                break;
            }
            batch.rollback().await?;
        }
        Ok(PurgeStep { purged: purge.cursor.purged.clone(), next: purge.phase().is_some().then_some(purge.cursor) })
    }

    /// Purges in a transaction that is rolled back. It blocks writers, so it stops after about `max_rows` rows.
    pub(crate) async fn dry_run_purge(&self, retention: Retention, now: Millis, max_rows: usize) -> Result<DryRun> {
        self.write_duplicate_counts_or_warn().await;
        let mut batch = Batch::begin(self, now).await?;
        batch.validate(&retention)?;
        let mut purge = Purge { retention, began_at: now, is_dry_run: true, cursor: PurgeCursor::default() };
        let mut rows = 0;
        while purge.phase().is_some() && rows < max_rows {
            if batch.purge_step(&mut purge).await? {
                batch.write().await?;
                purge.add_stages(std::mem::take(&mut batch.work.stages));
                rows += STEP as usize;
            }
            batch.restart().await?;
            batch.tick(now);
        }
        batch.rollback().await?;
        Ok(DryRun { is_complete: purge.phase().is_none(), purged: purge.cursor.purged })
    }
}

impl Batch<'_> {
    fn validate(&self, retention: &Retention) -> Result<()> {
        Ok(retention.validate(self.work.subscriptions.retentions()).map_err(StoreError::from)?)
    }

    /// One step of a purge. Returns whether there is anything to write.
    async fn purge_step(&mut self, purge: &mut Purge) -> Result<bool> {
        purge.cursor.purged.held = self.clock().is_held();
        let is_for_capacity_only = purge.cursor.is_for_capacity_only || self.clock().is_held();
        let step = match purge.phase() {
            None => Step::Nothing,
            Some(phase) if is_for_capacity_only && !phase.is_for_capacity() => Step::Nothing,
            Some(Phase::Months) => self.drop_some(purge).await?,
            Some(Phase::Age(class)) => self.purge_by_age(*class, purge).await?,
            Some(Phase::Topics) => self.make_room_in_topics(purge).await?,
            Some(Phase::Node) => self.make_room(None, purge).await?,
            Some(Phase::Ids) => {
                let count = self.delete_some(FORGET_IDS, purge.retention.dedupe, purge).await?;
                self.work.node.ids = self.work.node.ids.saturating_sub(count);
                purge.cursor.purged.ids += count;
                Step::after(count)
            }
            Some(Phase::Outbox) => self.drop_outbox(purge).await?,
            Some(Phase::Memories(sql)) => {
                let count = self.delete_some(sql, purge.retention.requests, purge).await?;
                purge.cursor.purged.memories += count;
                Step::after(count)
            }
        };
        if matches!(step, Step::Last | Step::Nothing) {
            purge.cursor.phase += 1;
            purge.cursor.after.clear();
        }
        Ok(matches!(step, Step::More | Step::Last))
    }

    /// Evicts rows of the next topic at its last stage.
    async fn make_room_in_topics(&mut self, purge: &mut Purge) -> Result<Step> {
        let topic = query(
            "SELECT no, topic_id FROM cn_relay.topics WHERE topic_id = ANY($3) AND stage = $1 \
             AND topic_id > convert_from($2, 'UTF8') ORDER BY topic_id LIMIT 1",
        );
        let with_capacity: Vec<String> =
            self.work.subscriptions.with_capacity().map(|topic| topic.as_str().to_owned()).collect();
        let topic = topic.bind(Stage::Purging.to_sql()).bind(&purge.cursor.after).bind(with_capacity);
        let Some(topic) = topic.fetch_optional(self.session()).await? else { return Ok(Step::Nothing) };
        let (no, id): (TopicNo, TopicId) = (topic.read("no")?, topic.read("topic_id")?);
        self.read_references(&HashSet::from([id.clone()])).await?;
        Ok(self.make_room(Some(no), purge).await?.at(id.as_str().into(), purge))
    }

    async fn purge_by_age(&mut self, class: RetentionClass, purge: &mut Purge) -> Result<Step> {
        self.read_topics_with_retention().await?;
        let (retention, since) = (&purge.retention, purge.began_at);
        let Some(cutoffs) = Cutoffs::of(class, retention, since, &self.work) else { return Ok(Step::Nothing) };
        let after = (number_at(&purge.cursor.after, 0), number_at(&purge.cursor.after, 8));
        let due = self.rows(cutoffs.due(after, STEP)).await?;
        for id in &due {
            let row = self.row(id)?;
            purge.cursor.after = [row.place.ingested_at.to_sql(), row.place.no.to_sql()].map(i64::to_be_bytes).concat();
            // The statement finds candidates; the domain decides.
            let mut policies = Vec::with_capacity(row.topics.len());
            for topic in &row.topics {
                let topic = self.work.topic_id(*topic)?;
                policies.push(self.work.subscriptions.policy(&topic).retention);
            }
            if retention.keep(class, &policies).is_over(row.place.ingested_at, since) {
                self.work.purge_row(row, Reason::Retention)?;
                purge.cursor.purged.by_retention += 1;
            }
        }
        self.work.update_stages()?;
        Ok(Step::after(due.len() as u64))
    }

    /// Evicts the oldest rows that may be evicted, while a topic (or the node) at its last stage holds too much.
    async fn make_room(&mut self, topic: Option<TopicNo>, purge: &mut Purge) -> Result<Step> {
        if !self.work.must_make_room(topic)? {
            return Ok(Step::Nothing);
        }
        let mut evicted = 0;
        for id in self.rows(oldest(topic, STEP)).await? {
            if !self.work.must_make_room(topic)? {
                break;
            }
            let row = self.row(&id)?;
            self.work.purge_row(row, Reason::Capacity)?;
            evicted += 1;
        }
        purge.cursor.purged.by_capacity += evicted;
        self.work.update_stages()?;
        Ok(Step::after(evicted))
    }

    async fn drop_outbox(&mut self, purge: &mut Purge) -> Result<Step> {
        let Some(cutoff) = purge.retention.outbox.cutoff(purge.began_at) else { return Ok(Step::Nothing) };
        // `written_at` rises with the sequence: the oldest rows come first.
        let row = query(
            "SELECT count(*) AS count, max(seq) AS last FROM (SELECT seq, written_at FROM cn_relay.events_outbox \
             ORDER BY seq LIMIT $2) first WHERE written_at <= $1",
        );
        let row = row.bind(cutoff.to_sql()).bind(STEP).fetch_one(self.session()).await?;
        let (count, last): (u64, Option<Seq>) = (row.read("count")?, row.read("last")?);
        let Some(last) = last else { return Ok(Step::Nothing) };
        let drop = query("DELETE FROM cn_relay.events_outbox WHERE seq <= $1").bind(last.to_sql());
        drop.execute(self.session()).await?;
        self.work.node.outbox_dropped = last;
        purge.cursor.purged.outbox += count;
        Ok(Step::after(count))
    }

    /// Deletes rows that are past their retention. Returns how many.
    async fn delete_some(&mut self, sql: &'static str, keep: Keep, purge: &Purge) -> Result<u64> {
        let Some(cutoff) = keep.cutoff(purge.began_at) else { return Ok(0) };
        let deleted = query(sql).bind(cutoff.to_sql()).bind(STEP).execute(self.session()).await?;
        Ok(deleted)
    }

    /// Reads the rows of a statement with the keys and topics they refer to. Returns their ids, in order.
    pub(crate) async fn rows(&mut self, query: SqlQuery<'_>) -> Result<Vec<EventId>> {
        let ids = self.read_rows(query).await?;
        self.read_references(&HashSet::new()).await?;
        Ok(ids)
    }

    /// A row that was read before.
    fn row(&self, id: &EventId) -> Result<Row> {
        self.work.row(id).cloned().ok_or_else(|| damaged(format!("row {id} was not read")))
    }
}

/// The remains of an event (its id after `e`) go with its id.
const FORGET_IDS: &str = "WITH forgotten AS (DELETE FROM cn_relay.event_dedupe WHERE event_id IN ( \
     SELECT event_id FROM cn_relay.event_dedupe WHERE no IS NULL AND last_seen_at <= $1 \
     ORDER BY last_seen_at LIMIT $2) RETURNING event_id), \
     without AS (DELETE FROM cn_relay.remains WHERE subject IN (SELECT '\\x65'::bytea || event_id FROM forgotten)) \
     SELECT event_id FROM forgotten";
const DROP_REMAINS: &str = "DELETE FROM cn_relay.remains WHERE (subject, topic_id) IN ( \
     SELECT subject, topic_id FROM cn_relay.remains \
     WHERE noted_at <= $1 AND substr(subject, 1, 1) <> '\\x65' LIMIT $2)";
const DROP_TOMBSTONES: &str = "DELETE FROM cn_relay.deletion_tombstones WHERE (target, is_address, requester) IN ( \
     SELECT target, is_address, requester FROM cn_relay.deletion_tombstones WHERE noted_at <= $1 LIMIT $2)";
const DROP_VANISH_MARKS: &str = "DELETE FROM cn_relay.vanish_marks WHERE pubkey IN ( \
     SELECT pubkey FROM cn_relay.vanish_marks WHERE noted_at <= $1 LIMIT $2)";
const DROP_FLOORS: &str = "DELETE FROM cn_relay.floors WHERE key IN ( \
     SELECT f.key FROM cn_relay.floors f WHERE f.raised_at <= $1 \
     AND NOT EXISTS (SELECT 1 FROM cn_relay.replaceable_current r WHERE r.key = f.key) \
     AND NOT EXISTS (SELECT 1 FROM cn_relay.addressable_current a WHERE a.key = f.key) LIMIT $2)";
