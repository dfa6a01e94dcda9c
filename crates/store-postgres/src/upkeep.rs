//! Expiry and purges, in steps: each is one transaction of bounded size, and between two the writers' lock is free.
//!
//! What a step did is complete in itself, so an interruption leaves nothing half done and the next run goes on.

use std::collections::HashSet;

use kukuri_domain::{
    EventId, Millis, Reason, Timestamp, TopicId,
    capacity::{Capacity, Stage},
    retention::{Keep, Retention, RetentionClass},
};
use kukuri_store::{Purged, Seq, StageChange, StoreError, Swept, report};
use sqlx::{PgConnection, Row as _, postgres::PgArguments, query::Query as SqlQuery};

use crate::{
    batch::{Batch, Committed},
    codes::{retention_code, signed, timestamp, unsigned},
    error::Result,
    records::select_rows,
    subscriptions::Subscriptions,
    work::TopicNo,
    writer::Writer,
};

/// The most rows a step takes away.
pub(crate) const STEP: i64 = 1_000;

impl Writer {
    /// Turns off what has expired.
    pub(crate) async fn expire(&self, now: Millis) -> Result<Swept> {
        let mut swept = Swept::default();
        loop {
            let mut batch = Batch::begin(self, now).await?;
            if batch.clock().held {
                batch.commit().await?;
                return Ok(Swept { held: true, ..swept });
            }
            let due = batch.rows(sqlx::query(DUE).bind(signed(now.seconds().0)).bind(STEP)).await?;
            for id in &due {
                batch.work.take_away(id, Reason::Expiration, None)?;
            }
            batch.work.update_stages()?;
            batch.commit().await?;
            swept.expired += due.len() as u64;
            if (due.len() as i64) < STEP {
                let mut connection = self.pool.acquire().await?;
                swept.next = next_expiration(&mut connection).await?;
                return Ok(swept);
            }
        }
    }

    /// Throws away what has stayed long enough or has to make room (P-5, P-6).
    pub(crate) async fn purge(&self, retention: &Retention, now: Millis) -> Result<Purged> {
        let mut purged = Purged::default();
        let mut batch = Batch::begin(self, now).await?;
        let valid = retention.validate(batch.work.subscriptions.retentions());
        if let Err(error) = valid {
            batch.abandon().await?;
            return Err(StoreError::from(error).into());
        }
        let is_held = batch.clock().held;
        if !is_held {
            // Purges come regularly: a month is there before the first event of it.
            batch.open_month().await?;
        }
        batch.commit().await?;
        if is_held {
            return Ok(Purged { held: true, ..purged });
        }
        if let Err(error) = self.flush().await {
            tracing::warn!(%error, "repeats could not be written; they stay counted");
        }
        self.drop_months(retention, now, &mut purged).await?;
        for class in RetentionClass::ALL {
            self.purge_by_age(class, retention, now, &mut purged).await?;
        }
        for topic in self.topics_by_id().await? {
            self.make_room(Some(topic), now, &mut purged).await?;
        }
        self.make_room(None, now, &mut purged).await?;
        self.forget_ids(retention, now, &mut purged).await?;
        self.drop_outbox(retention, now, &mut purged).await?;
        self.drop_memories(retention, now, &mut purged).await?;
        purged.stages = StageChange::summed_up(purged.stages);
        Ok(purged)
    }

    // Retention.

    async fn purge_by_age(
        &self,
        class: RetentionClass,
        retention: &Retention,
        now: Millis,
        purged: &mut Purged,
    ) -> Result<()> {
        let mut after = (-1, -1);
        loop {
            let mut batch = Batch::begin(self, now).await?;
            batch.read_all_topics().await?;
            let Some(cutoffs) = Cutoffs::of(class, retention, now, &batch.topic_names(), &batch.work.subscriptions)
            else {
                return batch.abandon().await;
            };
            let due = batch.rows(cutoffs.due(after, Some(STEP))).await?;
            for id in &due {
                let Some(row) = batch.work.row(id).cloned() else { continue };
                after = (signed(row.place.ingested_at.0), signed(row.place.no));
                // The statement finds candidates; the rule is the domain's.
                let mut policies = Vec::with_capacity(row.topics.len());
                for topic in &row.topics {
                    let topic = batch.work.topic_id(*topic)?;
                    policies.push(batch.work.subscriptions.policy(&topic).retention);
                }
                if retention.keep(class, &policies).is_over(row.place.ingested_at, now) {
                    batch.work.throw_away(id, Reason::Retention)?;
                    purged.by_retention += 1;
                }
            }
            batch.work.update_stages()?;
            let Committed { stages, .. } = batch.commit().await?;
            purged.stages.extend(stages);
            if (due.len() as i64) < STEP {
                return Ok(());
            }
        }
    }

    // Capacity.

    async fn topics_by_id(&self) -> Result<Vec<(TopicNo, TopicId)>> {
        let mut connection = self.pool.acquire().await?;
        let rows = sqlx::query("SELECT no, topic_id FROM cn_relay.topics WHERE stage = $1 ORDER BY topic_id")
            .bind(crate::codes::stage_code(Stage::Purging))
            .fetch_all(&mut *connection)
            .await?;
        rows.iter().map(|row| Ok((row.try_get("no")?, TopicId::trusted(row.try_get("topic_id")?)))).collect()
    }

    /// Throws away the oldest rows that give way, while a topic (or the node) at its last stage holds too much.
    async fn make_room(&self, topic: Option<(TopicNo, TopicId)>, now: Millis, purged: &mut Purged) -> Result<()> {
        loop {
            let mut batch = Batch::begin(self, now).await?;
            if let Some((_, id)) = &topic {
                batch.settle(&HashSet::from([id.clone()])).await?;
            }
            let place = topic.as_ref().map(|(no, id)| (*no, id));
            if !batch.must_make_room(place)? {
                return batch.abandon().await;
            }
            let oldest = batch.rows(oldest(place.map(|(no, _)| no), (-1, -1), Some(STEP))).await?;
            let mut is_done = oldest.is_empty();
            for id in &oldest {
                if !batch.must_make_room(place)? {
                    is_done = true;
                    break;
                }
                batch.work.throw_away(id, Reason::Capacity)?;
                purged.by_capacity += 1;
            }
            batch.work.update_stages()?;
            let Committed { stages, .. } = batch.commit().await?;
            purged.stages.extend(stages);
            if is_done {
                return Ok(());
            }
        }
    }

    // Memory of ids, outbox, requests.

    async fn forget_ids(&self, retention: &Retention, now: Millis, purged: &mut Purged) -> Result<()> {
        let Some(cutoff) = retention.dedupe.cutoff(now) else { return Ok(()) };
        self.delete_some(FORGET_IDS, cutoff, now, |batch, count| {
            batch.work.node.ids = batch.work.node.ids.saturating_sub(count);
            purged.ids += count;
        })
        .await
    }

    async fn drop_outbox(&self, retention: &Retention, now: Millis, purged: &mut Purged) -> Result<()> {
        let Some(cutoff) = retention.outbox.cutoff(now) else { return Ok(()) };
        loop {
            let mut batch = Batch::begin(self, now).await?;
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
            let Some(last) = last else { return batch.abandon().await };
            let drop = sqlx::query("DELETE FROM cn_relay.events_outbox WHERE seq <= $1").bind(last);
            drop.execute(batch.connection()).await?;
            batch.work.node.outbox_dropped = Seq(unsigned(last));
            batch.commit().await?;
            purged.outbox += unsigned(count);
            if count < STEP {
                return Ok(());
            }
        }
    }

    /// Tombstones, vanish marks, and floors without an effective version follow the requests (P-5).
    async fn drop_memories(&self, retention: &Retention, now: Millis, purged: &mut Purged) -> Result<()> {
        let Some(cutoff) = retention.requests.cutoff(now) else { return Ok(()) };
        for sql in [DROP_TOMBSTONES, DROP_MARKS, DROP_FLOORS] {
            self.delete_some(sql, cutoff, now, |_, count| purged.memories += count).await?;
        }
        Ok(())
    }

    /// Deletes what is no younger than a cutoff, in steps.
    async fn delete_some(
        &self,
        sql: &'static str,
        cutoff: Millis,
        now: Millis,
        mut note: impl FnMut(&mut Batch<'_>, u64),
    ) -> Result<()> {
        loop {
            let mut batch = Batch::begin(self, now).await?;
            let deleted = sqlx::query(sql).bind(signed(cutoff.0)).bind(STEP).execute(batch.connection()).await?;
            let count = deleted.rows_affected();
            if count == 0 {
                return batch.abandon().await;
            }
            note(&mut batch, count);
            batch.commit().await?;
            if (count as i64) < STEP {
                return Ok(());
            }
        }
    }
}

impl Batch<'_> {
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

    fn must_make_room(&mut self, topic: Option<(TopicNo, &TopicId)>) -> Result<bool> {
        let (capacity, counters): (Capacity, _) = match topic {
            Some((no, id)) => (self.work.subscriptions.policy(id).capacity(), self.work.topic(no)?.counters),
            None => (self.work.rules.capacity, self.work.node.counters),
        };
        let purge_to = self.work.rules.thresholds.purge_to;
        Ok(counters.stage == Stage::Purging && capacity.is_exceeded(report::total(&counters.by_class), purge_to))
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

/// Up to when rows of a retention class have stayed long enough: by default, and in topics that differ.
pub(crate) struct Cutoffs {
    class: RetentionClass,
    /// -1 is never.
    default: i64,
    latest: i64,
    topics: Vec<TopicNo>,
    cutoffs: Vec<i64>,
}

impl Cutoffs {
    /// `None`: rows of this class stay forever everywhere.
    pub(crate) fn of(
        class: RetentionClass,
        retention: &Retention,
        now: Millis,
        topics: &[(TopicNo, TopicId)],
        subscriptions: &Subscriptions,
    ) -> Option<Self> {
        let cutoff = |keep: Keep| keep.cutoff(now).map_or(-1, |cutoff| signed(cutoff.0));
        let default = cutoff(retention.keep(class, []));
        let own =
            topics.iter().map(|(no, id)| (*no, cutoff(retention.in_topic(class, &subscriptions.policy(id).retention))));
        let (topics, cutoffs): (Vec<_>, Vec<_>) = own.filter(|(_, own)| *own != default).unzip();
        let latest = cutoffs.iter().copied().chain([default]).max().unwrap_or(-1);
        (latest >= 0).then_some(Self { class, default, latest, topics, cutoffs })
    }

    /// Whether everything that came in before a moment has stayed long enough, where no topic differs.
    pub(crate) fn is_over_by_default(&self, end: Millis) -> bool {
        signed(end.0) <= self.default.saturating_add(1)
    }

    /// Topics that keep some of what came in before a moment, with their cutoffs. `None`: there are no such topics, or
    /// they are not the only ones.
    pub(crate) fn kept_longer(&self, end: Millis) -> Option<Vec<(TopicNo, i64)>> {
        if !self.is_over_by_default(end) {
            return None;
        }
        let own = self.topics.iter().copied().zip(self.cutoffs.iter().copied());
        let kept: Vec<_> = own.filter(|(_, cutoff)| signed(end.0) > cutoff.saturating_add(1)).collect();
        (!kept.is_empty()).then_some(kept)
    }

    /// Rows after a place that no topic keeps any longer.
    pub(crate) fn due(&self, after: (i64, i64), most: Option<i64>) -> SqlQuery<'static, sqlx::Postgres, PgArguments> {
        sqlx::query(OVER)
            .bind(retention_code(self.class))
            .bind(self.latest)
            .bind(after.0)
            .bind(after.1)
            .bind(self.topics.clone())
            .bind(self.cutoffs.clone())
            .bind(self.default)
            .bind(most)
    }
}

/// Rows of a topic, or of the node, that give way, the oldest first.
pub(crate) fn oldest(
    topic: Option<TopicNo>,
    after: (i64, i64),
    most: Option<i64>,
) -> SqlQuery<'static, sqlx::Postgres, PgArguments> {
    let gives_way = RetentionClass::ALL.into_iter().filter(|class| class.gives_way()).map(retention_code);
    sqlx::query(OLDEST).bind(gives_way.collect::<Vec<_>>()).bind(topic).bind(after.0).bind(after.1).bind(most)
}

// Rows are found first, by an index and no more than asked for; what is remembered of them is looked up then.
const DUE: &str = select_rows!(
    "FROM (SELECT * FROM cn_relay.events WHERE effective AND expires_at IS NOT NULL AND expires_at <= $1 \
         ORDER BY expires_at LIMIT $2) e \
     JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.no"
);
const OVER: &str = select_rows!(
    "FROM (SELECT * FROM cn_relay.events o WHERE o.retention = $1 AND o.ingested_at <= $2 \
         AND (o.ingested_at, o.no) > ($3, $4) AND NOT EXISTS ( \
             SELECT 1 FROM unnest(o.topics) AS t (topic) \
             LEFT JOIN unnest($5::integer[], $6::bigint[]) AS c (topic, cutoff) ON c.topic = t.topic \
             WHERE o.ingested_at > coalesce(c.cutoff, $7)) \
         ORDER BY o.ingested_at, o.no LIMIT $8) e \
     JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.ingested_at, e.no"
);
const OLDEST: &str = select_rows!(
    "FROM (SELECT o.* FROM unnest($1::smallint[]) AS c (class) CROSS JOIN LATERAL ( \
             SELECT * FROM cn_relay.events WHERE retention = c.class \
             AND ($2::integer IS NULL OR topics @> ARRAY[$2::integer]) AND (ingested_at, no) > ($3, $4) \
             ORDER BY ingested_at, no LIMIT $5) o \
         ORDER BY o.ingested_at, o.no LIMIT $5) e \
     JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.ingested_at, e.no"
);
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
