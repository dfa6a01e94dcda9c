//! Months that are over: dropped whole, which costs the server next to nothing (P-7).
//!
//! What a topic keeps for longer is moved out of the way first, in steps. Then one transaction says what goes (P-8),
//! corrects the counters by what the partition's own say, and drops its tables.

use kukuri_domain::{Millis, Reason, capacity::Usage, retention::RetentionClass};
use sqlx::{Row as _, postgres::PgArguments, query::Query as SqlQuery};

use crate::{
    batch::{Batch, own},
    codes::{Class, reason_code, signed, unsigned},
    due::Cutoffs,
    error::Result,
    months,
    partitions::{self, Partition, TABLES},
    records::select_rows,
    upkeep::{PurgeWork, STEP, Step},
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
    /// Months before the one in which what comes in now has its place, the last one first.
    pub(crate) async fn past_months(&self, now: Millis) -> Result<Vec<Partition>> {
        let mut partitions = partitions::all(&mut *self.pool.acquire().await?).await?;
        let this_month = months::begin_of(self.stamp(now));
        partitions.retain(|partition| partition.ends_at <= this_month);
        partitions.reverse();
        Ok(partitions)
    }

    /// Drops the next month in which nothing is kept any more, or moves some of what is kept of it.
    pub(crate) async fn drop_some(&self, left: &mut Vec<Partition>, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        while let Some(partition) = left.last() {
            if partition.class == Class::Default && self.move_some(partition, work, now).await? {
                return Ok(Step::More);
            }
            let dropped = self.drop_if_over(partition, work, now).await;
            let partition = left.pop();
            match dropped {
                Ok(true) => return Ok(Step::More),
                Ok(false) => {}
                Err(error) if error.is_lock_timeout() => {
                    tracing::info!(?partition, "a month is over and still being read; it goes with a later purge");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Step::Nothing)
    }

    /// Returns whether it was dropped.
    async fn drop_if_over(&self, partition: &Partition, work: &mut PurgeWork, now: Millis) -> Result<bool> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(false) };
        batch.read_all_topics().await?;
        let held = batch.held_by(partition).await?;
        let rows = held.iter().filter(|held| held.topic == NODE).map(|held| held.usage.events).sum::<u64>();
        if rows > MOST_DROPPED || !batch.is_over(partition, rows, work).await? {
            batch.abandon().await?;
            return Ok(false);
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
        batch.drop_tables(partition).await?;
        batch.finish_step(work).await?;
        work.purged.by_retention += rows;
        if rows > 0 {
            tracing::info!(?partition, rows, "a month was dropped");
        }
        Ok(true)
    }

    /// Moves some of what a topic keeps for longer than the month lasts to the same month of the long class. Returns
    /// whether there was any.
    async fn move_some(&self, partition: &Partition, work: &mut PurgeWork, now: Millis) -> Result<bool> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(false) };
        batch.read_all_topics().await?;
        let cutoffs = batch.cutoffs(work);
        let Some(kept) = cutoffs.as_ref().and_then(|cutoffs| cutoffs.kept_longer(partition.ends_at)) else {
            batch.abandon().await?;
            return Ok(false);
        };
        let moved = batch.rows(kept_rows(partition, kept, STEP)).await?;
        if moved.is_empty() {
            batch.abandon().await?;
            return Ok(false);
        }
        partitions::open_one(Class::Long, partition.begins_at, batch.connection()).await?;
        batch.move_rows(&moved, Class::Long).await?;
        batch.commit().await?;
        Ok(true)
    }
}

impl Batch<'_> {
    fn cutoffs(&self, work: &PurgeWork) -> Option<Cutoffs> {
        let (class, topics) = (RetentionClass::Regular, self.topic_names());
        Cutoffs::of(class, &work.retention, work.began_at, &topics, &self.work.subscriptions)
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
    async fn is_over(&mut self, partition: &Partition, rows: u64, work: &PurgeWork) -> Result<bool> {
        if rows == 0 {
            return Ok(true);
        }
        let Some(cutoffs) = self.cutoffs(work) else { return Ok(false) };
        if partition.class != Class::Default || !cutoffs.is_over_by_default(partition.ends_at) {
            return Ok(false);
        }
        let kept = cutoffs.kept_longer(partition.ends_at).unwrap_or_default();
        Ok(kept_rows(partition, kept, 1).fetch_optional(&mut *self.txn).await?.is_none())
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

/// Regular rows of a month that one of these topics keeps for longer: after its cutoff.
fn kept_rows(
    partition: &Partition,
    kept: Vec<(TopicNo, i64)>,
    most: i64,
) -> SqlQuery<'static, sqlx::Postgres, PgArguments> {
    let (topics, cutoffs): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
    sqlx::query(KEPT)
        .bind(partition.class.as_str())
        .bind(signed(partition.begins_at.0))
        .bind(signed(partition.ends_at.0))
        .bind(topics)
        .bind(cutoffs)
        .bind(most)
}

const KEPT: &str = select_rows!(
    "FROM cn_relay.events e JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
     WHERE e.class = $1 AND e.ingested_at >= $2 AND e.ingested_at < $3 AND e.topics && $4::integer[] AND EXISTS ( \
         SELECT 1 FROM unnest(e.topics) AS t (topic) \
         JOIN unnest($4::integer[], $5::bigint[]) AS o (topic, cutoff) ON o.topic = t.topic \
         WHERE e.ingested_at > o.cutoff) \
     ORDER BY e.no LIMIT $6"
);
