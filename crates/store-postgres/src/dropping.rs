//! Months that are over: dropped whole, which costs the server next to nothing (P-7).
//!
//! What a topic keeps for longer is moved out of the way first, in steps. Then one transaction says what goes (P-8),
//! corrects the counters by what the partition's own say, and drops its tables.

use kukuri_domain::{
    Millis, Reason,
    capacity::Usage,
    retention::{Retention, RetentionClass},
};
use kukuri_store::Purged;
use sqlx::Row as _;

use crate::{
    batch::{Batch, Committed, own},
    codes::{Class, reason_code, signed, unsigned},
    error::Result,
    months,
    partitions::{self, Partition, TABLES},
    records::select_rows,
    upkeep::{Cutoffs, STEP},
    work::{NODE, TopicNo},
    writer::Writer,
};

/// A month with more rows is first made smaller row by row: while one is dropped, nobody can write.
const MOST_DROPPED: u64 = 500_000;
/// How long the tables of a month may be waited for. Whoever reads them for longer keeps them until the next purge. They
/// are read whole, by any plan.
const PATIENCE: &str = "SET LOCAL lock_timeout = '2s'; SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on";

/// What a partition holds, by its own counters.
struct Held {
    topic: TopicNo,
    class: usize,
    effective: u64,
    usage: Usage,
}

impl Writer {
    /// Drops every month in which nothing is kept any more.
    pub(crate) async fn drop_months(&self, retention: &Retention, now: Millis, purged: &mut Purged) -> Result<()> {
        let partitions = partitions::all(&mut *self.pool.acquire().await?).await?;
        // What comes in now must have a place to go to.
        let this_month = months::begin_of(self.stamp(now));
        for partition in partitions.into_iter().filter(|partition| partition.ends_at <= this_month) {
            if let Err(error) = self.drop_if_over(&partition, retention, now, purged).await {
                if !error.is_lock_timeout() {
                    return Err(error);
                }
                tracing::info!(?partition, "a month is over and still being read; it goes with a later purge");
            }
        }
        Ok(())
    }

    async fn drop_if_over(
        &self,
        partition: &Partition,
        retention: &Retention,
        now: Millis,
        purged: &mut Purged,
    ) -> Result<()> {
        if partition.class == Class::Default {
            self.move_kept(partition, retention, now).await?;
        }
        let mut batch = Batch::begin(self, now).await?;
        batch.read_all_topics().await?;
        let held = batch.held_by(partition).await?;
        let rows = held.iter().filter(|held| held.topic == NODE).map(|held| held.usage.events).sum::<u64>();
        if rows > MOST_DROPPED || !batch.is_over(partition, rows, retention, now).await? {
            return batch.abandon().await;
        }
        batch.take_time().await?;
        sqlx::raw_sql(PATIENCE).execute(batch.connection()).await?;
        for table in TABLES {
            // First of all: if it can't be had, nothing was done in vain.
            let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", partition.table(table));
            sqlx::raw_sql(own(lock)).execute(batch.connection()).await?;
        }
        batch.say_what_goes(partition).await?;
        batch.uncount(&held)?;
        batch.work.update_stages()?;
        batch.drop_tables(partition).await?;
        let Committed { stages, .. } = batch.commit().await?;
        purged.by_retention += rows;
        purged.stages.extend(stages);
        if rows > 0 {
            tracing::info!(?partition, rows, "a month was dropped");
        }
        Ok(())
    }

    /// Moves what a topic keeps for longer than the month lasts to the same month of the long class, in steps.
    async fn move_kept(&self, partition: &Partition, retention: &Retention, now: Millis) -> Result<()> {
        loop {
            let mut batch = Batch::begin(self, now).await?;
            batch.read_all_topics().await?;
            let cutoffs = batch.cutoffs(RetentionClass::Regular, retention, now);
            let Some(kept) = cutoffs.as_ref().and_then(|cutoffs| cutoffs.kept_longer(partition.ends_at)) else {
                return batch.abandon().await;
            };
            let (topics, cutoffs): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
            let moved = batch
                .rows(
                    sqlx::query(KEPT)
                        .bind(partition.class.as_str())
                        .bind(signed(partition.begins_at.0))
                        .bind(signed(partition.ends_at.0))
                        .bind(topics)
                        .bind(cutoffs)
                        .bind(STEP),
                )
                .await?;
            if moved.is_empty() {
                return batch.abandon().await;
            }
            partitions::open_one(Class::Long, partition.begins_at, batch.connection()).await?;
            batch.move_rows(&moved, Class::Long).await?;
            batch.commit().await?;
            if (moved.len() as i64) < STEP {
                return Ok(());
            }
        }
    }
}

impl Batch<'_> {
    fn cutoffs(&self, class: RetentionClass, retention: &Retention, now: Millis) -> Option<Cutoffs> {
        Cutoffs::of(class, retention, now, &self.topic_names(), &self.work.subscriptions)
    }

    async fn held_by(&mut self, partition: &Partition) -> Result<Vec<Held>> {
        let rows = sqlx::query("SELECT * FROM cn_relay.partition_counters WHERE class = $1 AND begins_at = $2")
            .bind(partition.class.as_str())
            .bind(signed(partition.begins_at.0))
            .fetch_all(&mut *self.txn)
            .await?;
        let read = |row: &sqlx::postgres::PgRow| {
            Ok(Held {
                topic: row.try_get("topic")?,
                class: unsigned(row.try_get::<i16, _>("retention")?.into()) as usize,
                effective: unsigned(row.try_get("effective")?),
                usage: Usage { events: unsigned(row.try_get("events")?), bytes: unsigned(row.try_get("bytes")?) },
            })
        };
        rows.iter().map(read).collect()
    }

    /// Whether nothing in a month is kept: it is empty, or of regular events that have stayed long enough.
    async fn is_over(&mut self, partition: &Partition, rows: u64, retention: &Retention, now: Millis) -> Result<bool> {
        if rows == 0 {
            return Ok(true);
        }
        let Some(cutoffs) = self.cutoffs(RetentionClass::Regular, retention, now) else { return Ok(false) };
        if partition.class != Class::Default || !cutoffs.is_over_by_default(partition.ends_at) {
            return Ok(false);
        }
        let kept = cutoffs.kept_longer(partition.ends_at).unwrap_or_default();
        let (topics, cutoffs): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        let kept = sqlx::query(KEPT)
            .bind(partition.class.as_str())
            .bind(signed(partition.begins_at.0))
            .bind(signed(partition.ends_at.0))
            .bind(topics)
            .bind(cutoffs)
            .bind(1i64);
        Ok(kept.fetch_optional(&mut *self.txn).await?.is_none())
    }

    /// Every visible row of a month is announced as purged; no id leads there any more.
    async fn say_what_goes(&mut self, partition: &Partition) -> Result<()> {
        let events = partition.table("events");
        let announce = format!(
            "INSERT INTO cn_relay.events_outbox \
             (seq, created_at, ingested_at, written_at, kind, op, event_id, topic_id, effective_key, reason) \
             SELECT $1 + row_number() OVER (ORDER BY e.no, t.place), e.created_at, e.ingested_at, $2, e.kind, \
             'delete', e.id, n.topic_id, NULL, $3 \
             FROM {events} e CROSS JOIN LATERAL unnest(e.topics) WITH ORDINALITY AS t (no, place) \
             JOIN cn_relay.topics n ON n.no = t.no WHERE e.effective"
        );
        let announced = sqlx::query(own(announce))
            .bind(signed(self.work.node.head.0))
            .bind(signed(self.work.stamp().0))
            .bind(Reason::Retention.as_str())
            .execute(&mut *self.txn)
            .await?;
        self.work.node.head.0 += announced.rows_affected();
        let forget = format!(
            "UPDATE cn_relay.event_dedupe d SET reason = CASE WHEN e.effective THEN $1 ELSE d.reason END, \
             cause = CASE WHEN e.effective THEN NULL ELSE d.cause END, \
             since = CASE WHEN e.effective THEN $2 ELSE d.since END, class = NULL, ingested_at = NULL, no = NULL \
             FROM {events} e WHERE d.event_id = e.id"
        );
        sqlx::query(own(forget))
            .bind(reason_code(Reason::Retention))
            .bind(signed(self.work.stamp().0))
            .execute(&mut *self.txn)
            .await?;
        Ok(())
    }

    fn uncount(&mut self, held: &[Held]) -> Result<()> {
        held.iter().try_for_each(|held| self.work.lose(held.topic, held.class, held.effective, held.usage))
    }

    async fn drop_tables(&mut self, partition: &Partition) -> Result<()> {
        for table in ["partition_counters", "partitions"] {
            let forget = format!("DELETE FROM cn_relay.{table} WHERE class = $1 AND begins_at = $2");
            sqlx::query(own(forget))
                .bind(partition.class.as_str())
                .bind(signed(partition.begins_at.0))
                .execute(&mut *self.txn)
                .await?;
        }
        let tables: Vec<String> = TABLES.iter().map(|table| partition.table(table)).collect();
        sqlx::raw_sql(own(format!("DROP TABLE {}", tables.join(", ")))).execute(&mut *self.txn).await?;
        Ok(())
    }
}

/// Regular rows of a month that some topic keeps for longer.
const KEPT: &str = select_rows!(
    "FROM cn_relay.events e JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
     WHERE e.class = $1 AND e.ingested_at >= $2 AND e.ingested_at < $3 AND e.topics && $4::integer[] AND EXISTS ( \
         SELECT 1 FROM unnest(e.topics) AS t (topic) \
         JOIN unnest($4::integer[], $5::bigint[]) AS o (topic, cutoff) ON o.topic = t.topic \
         WHERE e.ingested_at > o.cutoff) \
     ORDER BY e.no LIMIT $6"
);
