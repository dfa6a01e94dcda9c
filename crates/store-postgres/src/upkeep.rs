//! Expiry and purges, in steps: each step is one transaction of bounded size and releases the writers' lock at its end.
//!
//! Every step is complete in itself: after an interruption the store is consistent and the next run continues.

use std::collections::HashSet;

use kukuri_domain::{
    EventId, Millis, Reason, Timestamp, TopicId,
    capacity::Stage,
    retention::{Retention, RetentionClass},
};
use kukuri_store::{DryRun, Purged, Seq, StageChange, StoreError, Swept, counters::Tally as _};
use sqlx::{PgConnection, Row as _, postgres::PgArguments, query::Query as SqlQuery};

use crate::{
    batch::{Batch, DryTxn},
    codes::{signed, stage_code, timestamp, unsigned},
    due::{Cutoffs, EXPIRED, oldest},
    error::Result,
    partitions::Partition,
    work::TopicNo,
    writer::Writer,
};

/// Most rows that a step removes: few enough for a slow disk to write within the statement timeout.
pub(crate) const STEP: i64 = 250;

/// Progress of a purge.
pub(crate) struct PurgeWork {
    pub(crate) retention: Retention,
    /// Start of the purge: retention is counted from here.
    pub(crate) began_at: Millis,
    phase: Phase,
    pub(crate) purged: Purged,
    /// All changes are rolled back at the end.
    pub(crate) is_dry_run: bool,
    /// Transaction of a dry run, between its steps.
    pub(crate) dry_txn: Option<DryTxn>,
}

impl PurgeWork {
    pub(crate) fn new(retention: Retention, began_at: Millis) -> Self {
        let purged = Purged::default();
        Self { retention, began_at, phase: Phase::Begin, purged, is_dry_run: false, dry_txn: None }
    }
}

enum Phase {
    Begin,
    /// Months that may be past retention, in reverse order.
    Months(Vec<Partition>),
    /// Rows past retention, class by class, after a position in the order of age.
    Ages {
        class: usize,
        after: (i64, i64),
    },
    /// Topics at their last stage, in reverse order; then the node.
    Room(Vec<(TopicNo, TopicId)>),
    Ids,
    Outbox,
    Memories {
        table: usize,
    },
    Done,
}

/// Outcome of a step.
pub(crate) enum Step {
    /// It wrote, and its phase may have more to do.
    More,
    /// It wrote, and its phase is done.
    Last,
    /// It had nothing to write: its phase is done.
    Nothing,
}

impl Step {
    /// `More` if the step found as many rows as it may remove.
    fn after(found: u64) -> Self {
        match signed(found) {
            0 => Self::Nothing,
            STEP.. => Self::More,
            _ => Self::Last,
        }
    }
}

impl Writer {
    /// One step of the expiry sweep: retires expired events. Returns whether more are left.
    pub(crate) async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        let mut batch = Batch::begin(self, now).await?;
        if batch.clock().held {
            batch.commit().await?;
            return Ok((Swept { held: true, ..Swept::default() }, false));
        }
        let due = batch.rows(sqlx::query(EXPIRED).bind(signed(now.seconds().0)).bind(STEP)).await?;
        for id in &due {
            let row = batch.work.read_before(id)?;
            batch.work.retire(row, Reason::Expiration, None)?;
        }
        batch.work.update_stages()?;
        batch.commit().await?;
        let next = next_expiration(&mut *self.pool.acquire().await?).await?;
        Ok((Swept { expired: due.len() as u64, next, held: false }, due.len() as i64 == STEP))
    }

    /// One step of a purge (P-5, P-6). Returns whether more is left. Skips phases that have nothing to do.
    pub(crate) async fn purge_some(&self, work: &mut PurgeWork, now: Millis) -> Result<bool> {
        loop {
            let mut phase = std::mem::replace(&mut work.phase, Phase::Done);
            let step = match &mut phase {
                Phase::Begin => self.begin_purge(work, now).await?,
                Phase::Months(left) => self.drop_some(left, work, now).await?,
                Phase::Ages { class, after } => {
                    self.purge_by_age(RetentionClass::ALL[*class], after, work, now).await?
                }
                Phase::Room(topics) => self.make_room(topics.last(), work, now).await?,
                Phase::Ids => self.forget_ids(work, now).await?,
                Phase::Outbox => self.drop_outbox(work, now).await?,
                Phase::Memories { table } => self.drop_memories(MEMORIES[*table], work, now).await?,
                Phase::Done => Step::Nothing,
            };
            work.purged.stages = StageChange::summed_up(std::mem::take(&mut work.purged.stages));
            if work.purged.held {
                return Ok(false);
            }
            work.phase = match step {
                Step::More => phase,
                Step::Last | Step::Nothing => self.after(phase, work).await?,
            };
            match (&work.phase, step) {
                (Phase::Done, _) => return Ok(false),
                (_, Step::Nothing) => {}
                _ => return Ok(true),
            }
        }
    }

    /// Purges in a transaction that is rolled back. It blocks writers, so it stops after about `max_rows` rows. Months
    /// are not dropped but purged row by row, which locks no table.
    pub(crate) async fn dry_run_purge(&self, retention: Retention, now: Millis, max_rows: usize) -> Result<DryRun> {
        if let Err(error) = self.flush().await {
            tracing::warn!(%error, "can't write the counts of repeated events; trying again later");
        }
        let (txn, _turn) = Batch::resume(self).await?.into_dry_run();
        let mut work = PurgeWork { is_dry_run: true, dry_txn: Some(txn), ..PurgeWork::new(retention, now) };
        let (mut rows, mut more) = (0, true);
        while more && rows < max_rows {
            more = self.purge_some(&mut work, now).await?;
            rows += STEP as usize;
        }
        if let Some(DryTxn(txn)) = work.dry_txn {
            txn.rollback().await?;
        }
        Ok(DryRun { purged: work.purged, is_complete: !more })
    }

    /// The phase after this one.
    async fn after(&self, phase: Phase, work: &mut PurgeWork) -> Result<Phase> {
        Ok(match phase {
            Phase::Begin if work.is_dry_run => Phase::Months(Vec::new()),
            Phase::Begin => Phase::Months(self.past_months(work.began_at).await?),
            Phase::Months(_) => Phase::Ages { class: 0, after: (-1, -1) },
            Phase::Ages { class, .. } if class + 1 < RetentionClass::ALL.len() => {
                Phase::Ages { class: class + 1, after: (-1, -1) }
            }
            Phase::Ages { .. } => Phase::Room(self.purging_topics(work).await?),
            Phase::Room(mut topics) => match topics.pop() {
                Some(_) => Phase::Room(topics),
                None => Phase::Ids,
            },
            Phase::Ids => Phase::Outbox,
            Phase::Outbox => Phase::Memories { table: 0 },
            Phase::Memories { table } if table + 1 < MEMORIES.len() => Phase::Memories { table: table + 1 },
            Phase::Memories { .. } | Phase::Done => Phase::Done,
        })
    }

    /// Begins the transaction of a step. `None`: the clock is held, and nothing may be purged.
    pub(crate) async fn begin_step(&self, work: &mut PurgeWork, now: Millis) -> Result<Option<Batch<'_>>> {
        let batch = Batch::begin_step(self, &mut work.dry_txn, now).await?;
        if !batch.clock().held {
            return Ok(Some(batch));
        }
        batch.end_step(&mut work.dry_txn).await?;
        work.purged.held = true;
        Ok(None)
    }

    async fn begin_purge(&self, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let mut batch = Batch::begin_step(self, &mut work.dry_txn, now).await?;
        if let Err(error) = work.retention.validate(batch.work.subscriptions.retentions()) {
            batch.skip_step(&mut work.dry_txn).await?;
            return Err(StoreError::from(error).into());
        }
        work.purged.held = batch.clock().held;
        if !work.purged.held && !work.is_dry_run {
            // Purges run regularly, so every month has its partition before its first event.
            batch.open_month().await?;
        }
        batch.end_step(&mut work.dry_txn).await?;
        if !work.purged.held
            && !work.is_dry_run
            && let Err(error) = self.flush().await
        {
            tracing::warn!(%error, "can't write the counts of repeated events; trying again later");
        }
        Ok(Step::Nothing)
    }

    // Retention.

    async fn purge_by_age(
        &self,
        class: RetentionClass,
        after: &mut (i64, i64),
        work: &mut PurgeWork,
        now: Millis,
    ) -> Result<Step> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(Step::Nothing) };
        batch.read_all_topics().await?;
        let (retention, since) = (&work.retention, work.began_at);
        let cutoffs = Cutoffs::of(class, retention, since, &batch.topic_names(), &batch.work.subscriptions);
        let Some(cutoffs) = cutoffs else {
            batch.skip_step(&mut work.dry_txn).await?;
            return Ok(Step::Nothing);
        };
        let due = batch.rows(cutoffs.due(*after, STEP)).await?;
        let mut gone = 0;
        for id in &due {
            let Some(row) = batch.work.row(id).cloned() else { continue };
            *after = (signed(row.place.ingested_at.0), signed(row.place.no));
            // The statement finds candidates; the domain decides.
            let mut policies = Vec::with_capacity(row.topics.len());
            for topic in &row.topics {
                let topic = batch.work.topic_id(*topic)?;
                policies.push(batch.work.subscriptions.policy(&topic).retention);
            }
            if retention.keep(class, &policies).is_over(row.place.ingested_at, since) {
                batch.work.purge_row(row, Reason::Retention)?;
                gone += 1;
            }
        }
        work.purged.by_retention += gone;
        batch.finish_step(work).await?;
        Ok(Step::after(due.len() as u64))
    }

    // Capacity.

    async fn purging_topics(&self, work: &mut PurgeWork) -> Result<Vec<(TopicNo, TopicId)>> {
        let purging = sqlx::query("SELECT no, topic_id FROM cn_relay.topics WHERE stage = $1 ORDER BY topic_id DESC")
            .bind(stage_code(Stage::Purging));
        let rows = match &mut work.dry_txn {
            Some(DryTxn(txn)) => purging.fetch_all(&mut **txn).await?,
            None => purging.fetch_all(&mut *self.pool.acquire().await?).await?,
        };
        rows.iter().map(|row| Ok((row.try_get("no")?, TopicId::trusted(row.try_get("topic_id")?)))).collect()
    }

    /// Evicts the oldest rows that may be evicted, while a topic (or the node) at its last stage holds too much.
    async fn make_room(&self, topic: Option<&(TopicNo, TopicId)>, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(Step::Nothing) };
        if let Some((_, id)) = topic {
            batch.read_references(&HashSet::from([id.clone()])).await?;
        }
        let number = topic.map(|(no, _)| *no);
        if !batch.work.must_make_room(number)? {
            batch.skip_step(&mut work.dry_txn).await?;
            return Ok(Step::Nothing);
        }
        let oldest = batch.rows(oldest(number, (-1, -1), STEP)).await?;
        let mut gone = 0;
        for id in &oldest {
            if !batch.work.must_make_room(number)? {
                break;
            }
            let row = batch.work.read_before(id)?;
            batch.work.purge_row(row, Reason::Capacity)?;
            gone += 1;
        }
        work.purged.by_capacity += gone;
        batch.finish_step(work).await?;
        Ok(Step::after(gone))
    }

    // Ids, outbox rows, tombstones, vanish marks and floors.

    async fn forget_ids(&self, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(cutoff) = work.retention.dedupe.cutoff(work.began_at) else { return Ok(Step::Nothing) };
        let forgotten = self.delete_some(FORGET_IDS, cutoff, work, now).await?;
        work.purged.ids += forgotten;
        Ok(Step::after(forgotten))
    }

    async fn drop_outbox(&self, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(cutoff) = work.retention.outbox.cutoff(work.began_at) else { return Ok(Step::Nothing) };
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(Step::Nothing) };
        // `written_at` rises with the sequence: the oldest rows come first.
        let row = sqlx::query(
            "SELECT count(*) AS count, max(seq) AS last FROM (SELECT seq, written_at FROM cn_relay.events_outbox \
             ORDER BY seq LIMIT $2) first WHERE written_at <= $1",
        )
        .bind(signed(cutoff.0))
        .bind(STEP)
        .fetch_one(batch.connection())
        .await?;
        let (count, last): (i64, Option<i64>) = (row.try_get("count")?, row.try_get("last")?);
        let Some(last) = last else {
            batch.skip_step(&mut work.dry_txn).await?;
            return Ok(Step::Nothing);
        };
        let drop = sqlx::query("DELETE FROM cn_relay.events_outbox WHERE seq <= $1").bind(last);
        drop.execute(batch.connection()).await?;
        batch.work.node.outbox_dropped = Seq(unsigned(last));
        batch.end_step(&mut work.dry_txn).await?;
        work.purged.outbox += unsigned(count);
        Ok(Step::after(unsigned(count)))
    }

    /// Removes tombstones, vanish marks, and floors without an effective version; they follow the retention of requests
    /// (P-5).
    async fn drop_memories(&self, sql: &'static str, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(cutoff) = work.retention.requests.cutoff(work.began_at) else { return Ok(Step::Nothing) };
        let dropped = self.delete_some(sql, cutoff, work, now).await?;
        work.purged.memories += dropped;
        Ok(Step::after(dropped))
    }

    /// One step: deletes rows that are not newer than a cutoff. Returns how many.
    async fn delete_some(&self, sql: &'static str, cutoff: Millis, work: &mut PurgeWork, now: Millis) -> Result<u64> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(0) };
        let deleted = sqlx::query(sql).bind(signed(cutoff.0)).bind(STEP).execute(batch.connection()).await?;
        let count = deleted.rows_affected();
        if count == 0 {
            batch.skip_step(&mut work.dry_txn).await?;
            return Ok(0);
        }
        if sql == FORGET_IDS {
            batch.work.node.ids = batch.work.node.ids.saturating_sub(count);
        }
        batch.end_step(&mut work.dry_txn).await?;
        Ok(count)
    }
}

impl Batch<'_> {
    /// Ends a step that removed rows.
    pub(crate) async fn finish_step(mut self, work: &mut PurgeWork) -> Result<()> {
        self.work.update_stages()?;
        let stages = self.end_step(&mut work.dry_txn).await?;
        work.purged.stages.extend(stages);
        Ok(())
    }

    /// Loads the rows of a statement with the keys and topics they refer to. Returns their ids, in order.
    pub(crate) async fn rows(&mut self, query: SqlQuery<'_, sqlx::Postgres, PgArguments>) -> Result<Vec<EventId>> {
        let rows = query.fetch_all(&mut *self.txn).await?;
        self.put_rows(&rows)?;
        self.read_references(&HashSet::new()).await?;
        rows.iter().map(|row| Ok(crate::codes::event_id(row.try_get("id")?))).collect()
    }

    pub(crate) fn topic_names(&self) -> Vec<(TopicNo, TopicId)> {
        self.work.topic_nos.iter().map(|(id, no)| (*no, id.clone())).collect()
    }
}

pub(crate) async fn next_expiration(connection: &mut PgConnection) -> Result<Option<Timestamp>> {
    let next = sqlx::query_scalar(
        "SELECT expires_at FROM cn_relay.events WHERE effective AND expires_at IS NOT NULL \
         ORDER BY expires_at LIMIT 1",
    );
    let next: Option<i64> = next.fetch_optional(connection).await?;
    Ok(next.map(timestamp))
}

const MEMORIES: [&str; 3] = [DROP_TOMBSTONES, DROP_MARKS, DROP_FLOORS];

const FORGET_IDS: &str = "DELETE FROM cn_relay.event_dedupe WHERE event_id IN ( \
     SELECT event_id FROM cn_relay.event_dedupe WHERE no IS NULL AND last_seen_at <= $1 \
     ORDER BY last_seen_at LIMIT $2)";
const DROP_TOMBSTONES: &str = "DELETE FROM cn_relay.deletion_tombstones WHERE (target, is_address, requester) IN ( \
     SELECT target, is_address, requester FROM cn_relay.deletion_tombstones WHERE noted_at <= $1 LIMIT $2)";
const DROP_MARKS: &str = "DELETE FROM cn_relay.vanish_marks WHERE pubkey IN ( \
     SELECT pubkey FROM cn_relay.vanish_marks WHERE noted_at <= $1 LIMIT $2)";
const DROP_FLOORS: &str = "DELETE FROM cn_relay.floors WHERE key IN ( \
     SELECT f.key FROM cn_relay.floors f WHERE f.raised_at <= $1 \
     AND NOT EXISTS (SELECT 1 FROM cn_relay.replaceable_current r WHERE r.key = f.key) \
     AND NOT EXISTS (SELECT 1 FROM cn_relay.addressable_current a WHERE a.key = f.key) LIMIT $2)";
