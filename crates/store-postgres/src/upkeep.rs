//! Expiry and purges, in steps: each is one transaction of bounded size, and between two the writers' lock is free.
//!
//! What a step did is complete in itself, so an interruption leaves nothing half done and the next run goes on.

use std::collections::HashSet;

use kukuri_domain::{
    EventId, Millis, Reason, Timestamp, TopicId,
    capacity::{Capacity, Stage},
    retention::{Retention, RetentionClass},
};
use kukuri_store::{Purged, Seq, StageChange, StoreError, Swept};
use sqlx::{PgConnection, Row as _, postgres::PgArguments, query::Query as SqlQuery};

use crate::{
    batch::{Batch, Committed},
    codes::{signed, stage_code, timestamp, unsigned},
    due::{Cutoffs, EXPIRED, oldest},
    error::Result,
    partitions::Partition,
    work::TopicNo,
    writer::Writer,
};

/// The most rows a step takes away: few enough for a slow disk to write within the time that a statement has.
pub(crate) const STEP: i64 = 250;

/// How far a purge has come.
pub(crate) struct PurgeWork {
    pub(crate) retention: Retention,
    /// When it began: what is kept is counted from here.
    pub(crate) began_at: Millis,
    phase: Phase,
    pub(crate) purged: Purged,
}

impl PurgeWork {
    pub(crate) fn new(retention: Retention, began_at: Millis) -> Self {
        Self { retention, began_at, phase: Phase::Begin, purged: Purged::default() }
    }
}

enum Phase {
    Begin,
    /// Months that may be over, the last one first.
    Months(Vec<Partition>),
    /// Rows that have stayed long enough, class by class, after a place in the order of age.
    Ages {
        class: usize,
        after: (i64, i64),
    },
    /// Topics at their last stage, the last one first; then the node.
    Room(Vec<(TopicNo, TopicId)>),
    Ids,
    Outbox,
    Memories {
        table: usize,
    },
    Done,
}

/// What a step came to.
pub(crate) enum Step {
    /// It wrote, and there may be more of its phase.
    More,
    /// It wrote the last of its phase.
    Last,
    /// There was nothing to write: the phase is over.
    Nothing,
}

impl Step {
    /// By whether as much was found as a step takes.
    fn after(found: u64) -> Self {
        match signed(found) {
            0 => Self::Nothing,
            STEP.. => Self::More,
            _ => Self::Last,
        }
    }
}

impl Writer {
    /// Turns off some of what has expired. Returns whether there is more.
    pub(crate) async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        let mut batch = Batch::begin(self, now).await?;
        if batch.clock().held {
            batch.commit().await?;
            return Ok((Swept { held: true, ..Swept::default() }, false));
        }
        let due = batch.rows(sqlx::query(EXPIRED).bind(signed(now.seconds().0)).bind(STEP)).await?;
        for id in &due {
            batch.work.take_away(id, Reason::Expiration, None)?;
        }
        batch.work.update_stages()?;
        batch.commit().await?;
        let next = next_expiration(&mut *self.pool.acquire().await?).await?;
        Ok((Swept { expired: due.len() as u64, next, held: false }, due.len() as i64 == STEP))
    }

    /// Does some of what a purge has to do (P-5, P-6). Returns whether there is more. Phases without anything to do are
    /// passed at once.
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

    /// What a purge does after a phase.
    async fn after(&self, phase: Phase, work: &PurgeWork) -> Result<Phase> {
        Ok(match phase {
            Phase::Begin => Phase::Months(self.past_months(work.began_at).await?),
            Phase::Months(_) => Phase::Ages { class: 0, after: (-1, -1) },
            Phase::Ages { class, .. } if class + 1 < RetentionClass::ALL.len() => {
                Phase::Ages { class: class + 1, after: (-1, -1) }
            }
            Phase::Ages { .. } => Phase::Room(self.purging_topics().await?),
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

    /// A step's transaction. `None`: the clock is held, and nothing may be thrown away.
    pub(crate) async fn begin_step(&self, work: &mut PurgeWork, now: Millis) -> Result<Option<Batch<'_>>> {
        let batch = Batch::begin(self, now).await?;
        if !batch.clock().held {
            return Ok(Some(batch));
        }
        batch.commit().await?;
        work.purged.held = true;
        Ok(None)
    }

    async fn begin_purge(&self, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let mut batch = Batch::begin(self, now).await?;
        if let Err(error) = work.retention.validate(batch.work.subscriptions.retentions()) {
            batch.abandon().await?;
            return Err(StoreError::from(error).into());
        }
        work.purged.held = batch.clock().held;
        if !work.purged.held {
            // Purges come regularly: a month is there before the first event of it.
            batch.open_month().await?;
        }
        batch.commit().await?;
        if !work.purged.held
            && let Err(error) = self.flush().await
        {
            tracing::warn!(%error, "repeats could not be written; they stay counted");
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
            batch.abandon().await?;
            return Ok(Step::Nothing);
        };
        let due = batch.rows(cutoffs.due(*after, Some(STEP))).await?;
        let mut gone = 0;
        for id in &due {
            let Some(row) = batch.work.row(id).cloned() else { continue };
            *after = (signed(row.place.ingested_at.0), signed(row.place.no));
            // The statement finds candidates; the rule is the domain's.
            let mut policies = Vec::with_capacity(row.topics.len());
            for topic in &row.topics {
                let topic = batch.work.topic_id(*topic)?;
                policies.push(batch.work.subscriptions.policy(&topic).retention);
            }
            if retention.keep(class, &policies).is_over(row.place.ingested_at, since) {
                batch.work.throw_away(id, Reason::Retention)?;
                gone += 1;
            }
        }
        work.purged.by_retention += gone;
        batch.finish_step(work).await?;
        Ok(Step::after(due.len() as u64))
    }

    // Capacity.

    async fn purging_topics(&self) -> Result<Vec<(TopicNo, TopicId)>> {
        let rows = sqlx::query("SELECT no, topic_id FROM cn_relay.topics WHERE stage = $1 ORDER BY topic_id DESC")
            .bind(stage_code(Stage::Purging))
            .fetch_all(&mut *self.pool.acquire().await?)
            .await?;
        rows.iter().map(|row| Ok((row.try_get("no")?, TopicId::trusted(row.try_get("topic_id")?)))).collect()
    }

    /// Throws away the oldest rows that give way, while a topic (or the node) at its last stage holds too much.
    async fn make_room(&self, topic: Option<&(TopicNo, TopicId)>, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(Step::Nothing) };
        if let Some((_, id)) = topic {
            batch.settle(&HashSet::from([id.clone()])).await?;
        }
        if !batch.must_make_room(topic)? {
            batch.abandon().await?;
            return Ok(Step::Nothing);
        }
        let oldest = batch.rows(oldest(topic.map(|(no, _)| *no), (-1, -1), Some(STEP))).await?;
        let mut gone = 0;
        for id in &oldest {
            if !batch.must_make_room(topic)? {
                break;
            }
            batch.work.throw_away(id, Reason::Capacity)?;
            gone += 1;
        }
        work.purged.by_capacity += gone;
        batch.finish_step(work).await?;
        Ok(Step::after(gone))
    }

    // Memory of ids, outbox, requests.

    async fn forget_ids(&self, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(cutoff) = work.retention.dedupe.cutoff(work.began_at) else { return Ok(Step::Nothing) };
        let forgotten = self.delete_some(FORGET_IDS, cutoff, work, now).await?;
        work.purged.ids += forgotten;
        Ok(Step::after(forgotten))
    }

    async fn drop_outbox(&self, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(cutoff) = work.retention.outbox.cutoff(work.began_at) else { return Ok(Step::Nothing) };
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(Step::Nothing) };
        // Times of writing rise with the sequence: what is old enough comes first.
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
            batch.abandon().await?;
            return Ok(Step::Nothing);
        };
        let drop = sqlx::query("DELETE FROM cn_relay.events_outbox WHERE seq <= $1").bind(last);
        drop.execute(batch.connection()).await?;
        batch.work.node.outbox_dropped = Seq(unsigned(last));
        batch.commit().await?;
        work.purged.outbox += unsigned(count);
        Ok(Step::after(unsigned(count)))
    }

    /// Tombstones, vanish marks, and floors without an effective version follow the requests (P-5).
    async fn drop_memories(&self, sql: &'static str, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        let Some(cutoff) = work.retention.requests.cutoff(work.began_at) else { return Ok(Step::Nothing) };
        let dropped = self.delete_some(sql, cutoff, work, now).await?;
        work.purged.memories += dropped;
        Ok(Step::after(dropped))
    }

    /// Deletes some of what is no younger than a cutoff. Returns how much.
    async fn delete_some(&self, sql: &'static str, cutoff: Millis, work: &mut PurgeWork, now: Millis) -> Result<u64> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(0) };
        let deleted = sqlx::query(sql).bind(signed(cutoff.0)).bind(STEP).execute(batch.connection()).await?;
        let count = deleted.rows_affected();
        if count == 0 {
            batch.abandon().await?;
            return Ok(0);
        }
        if sql == FORGET_IDS {
            batch.work.node.ids = batch.work.node.ids.saturating_sub(count);
        }
        batch.commit().await?;
        Ok(count)
    }
}

impl Batch<'_> {
    /// Ends a step that took rows away.
    pub(crate) async fn finish_step(mut self, work: &mut PurgeWork) -> Result<()> {
        self.work.update_stages()?;
        let Committed { stages, .. } = self.commit().await?;
        work.purged.stages.extend(stages);
        Ok(())
    }

    /// Takes in the rows of a statement, with what they refer to. Returns their ids, in order.
    pub(crate) async fn rows(&mut self, query: SqlQuery<'_, sqlx::Postgres, PgArguments>) -> Result<Vec<EventId>> {
        let rows = query.fetch_all(&mut *self.txn).await?;
        self.put_rows(&rows)?;
        self.settle(&HashSet::new()).await?;
        rows.iter().map(|row| Ok(crate::codes::event_id(row.try_get("id")?))).collect()
    }

    pub(crate) fn topic_names(&self) -> Vec<(TopicNo, TopicId)> {
        self.work.topic_nos.iter().map(|(id, no)| (*no, id.clone())).collect()
    }

    fn must_make_room(&mut self, topic: Option<&(TopicNo, TopicId)>) -> Result<bool> {
        let (capacity, counters): (Capacity, _) = match topic {
            Some((no, id)) => (self.work.subscriptions.policy(id).capacity(), self.work.topic(*no)?.counters),
            None => (self.work.rules.capacity, self.work.node.counters),
        };
        Ok(counters.must_make_room(capacity, &self.work.rules.thresholds))
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
