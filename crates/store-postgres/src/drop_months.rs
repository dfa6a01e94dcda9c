//! Dropping months past their retention: whole partitions, at almost no cost to the server (P-7).
//!
//! Rows that a topic keeps for longer are moved to another class first, in steps. Then one transaction announces the
//! purged events (P-8), adjusts the counters by the partition's own counters, and detaches its tables. The state of its
//! ids is updated later, in steps (`detached`). Only the announcement grows with the number of rows: one outbox row per
//! event.

use std::time::Duration;

use kukuri_domain::{Millis, Reason, capacity::Usage, retention::RetentionClass};
use sqlx::Row as _;

use crate::{
    batch::{Batch, own},
    codes::{Class, signed, unsigned},
    due::Cutoffs,
    error::{Failure, Result},
    months,
    partitions::{self, Partition, TABLES},
    records::select_rows,
    upkeep::{PurgeWork, STEP, Step},
    work::{NODE, TopicNo},
    writer::Writer,
};

/// A larger month is first purged row by row. The announcement blocks all writers, which may wait for at most five
/// seconds (O-5); each row takes about 7 µs.
const MAX_DROPPED_ROWS: u64 = 500_000;
/// Timeout and attempts for locking each table of a month. A reader that holds a table for longer delays the drop until
/// the next purge. Readers lock tables in any order, so a deadlock with one is possible: the timeout is shorter than
/// the second after which the server detects a deadlock and ends one side. The month itself is read whole, by any plan.
const LOCK_SETTINGS: &str =
    "SET LOCAL lock_timeout = '100ms'; SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on";
const MAX_LOCK_TRIES: u32 = 20;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);
const RELEASE_LOCKS: &str = "ROLLBACK TO SAVEPOINT before";

/// Contents of a partition according to its own counters.
struct Held {
    topic: TopicNo,
    class: usize,
    effective: u64,
    usage: Usage,
}

impl Writer {
    /// Months before the one that receives events now, in reverse order: the oldest is popped first.
    pub(crate) async fn past_months(&self, now: Millis) -> Result<Vec<Partition>> {
        let mut partitions = partitions::all(&mut *self.pool.acquire().await?).await?;
        let this_month = months::begin_of(self.stamp(now));
        partitions.retain(|partition| partition.ends_at <= this_month);
        partitions.reverse();
        Ok(partitions)
    }

    /// Drops the next month past retention, or performs one step of that.
    pub(crate) async fn drop_some(&self, left: &mut Vec<Partition>, work: &mut PurgeWork, now: Millis) -> Result<Step> {
        if self.update_some_ids(work, now).await? {
            return Ok(Step::More);
        }
        while let Some(partition) = left.last() {
            match self.leave(partition, work, now).await {
                Ok(Left::Partly) => return Ok(Step::More),
                Ok(Left::Whole) => {
                    left.pop();
                    return Ok(Step::More);
                }
                Ok(Left::Not) => {}
                Err(error) if error.is_lock_timeout() => {
                    tracing::info!(
                        ?partition,
                        "can't drop a month that is being read; trying again with the next purge"
                    );
                }
                Err(error) => return Err(error),
            }
            left.pop();
        }
        Ok(Step::Nothing)
    }

    async fn leave(&self, partition: &Partition, work: &mut PurgeWork, now: Millis) -> Result<Left> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(Left::Not) };
        batch.read_all_topics().await?;
        let held = batch.held_by(partition).await?;
        let rows = held.iter().filter(|held| held.topic == NODE).map(|held| held.usage.events).sum::<u64>();
        if rows > 0 {
            let Some(mut kept) = batch.kept_longer(partition, work) else {
                batch.skip_step(&mut work.dry_txn).await?;
                return Ok(Left::Not);
            };
            // By the counters: no scan for topics without rows here.
            kept.retain(|(topic, _)| held.iter().any(|held| held.topic == *topic && held.usage.events > 0));
            if batch.move_some(partition, kept).await? {
                batch.end_step(&mut work.dry_txn).await?;
                return Ok(Left::Partly);
            }
            if rows > MAX_DROPPED_ROWS {
                batch.skip_step(&mut work.dry_txn).await?;
                return Ok(Left::Not);
            }
        }
        batch.take_time().await?;
        sqlx::raw_sql(LOCK_SETTINGS).execute(batch.connection()).await?;
        if rows > 0 {
            batch.try_lock_tables(partition).await?;
            batch.announce_month(partition).await?;
        }
        batch.lock_tables(partition).await?;
        batch.uncount(&held)?;
        batch.detach_month(partition, rows).await?;
        batch.finish_step(work).await?;
        work.purged.by_retention += rows;
        if rows > 0 {
            tracing::info!(?partition, rows, "dropped a month");
        }
        Ok(Left::Whole)
    }
}

/// Outcome of an attempt to drop a month.
enum Left {
    /// Kept: some rows are within retention, or the month is too large.
    Not,
    /// One step moved some of the rows that are kept for longer.
    Partly,
    /// Dropped.
    Whole,
}

impl Batch<'_> {
    /// Topics that keep rows of this month for longer than the default. `None`: the month is within the default
    /// retention.
    fn kept_longer(&self, partition: &Partition, work: &PurgeWork) -> Option<Vec<(TopicNo, i64)>> {
        if partition.class != Class::Default {
            return None;
        }
        let (class, topics) = (RetentionClass::Regular, self.topic_names());
        let cutoffs = Cutoffs::of(class, &work.retention, work.began_at, &topics, &self.work.subscriptions);
        cutoffs?.kept_longer(partition.ends_at)
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

    /// One step: moves rows that these topics keep to the same month of the long class. Returns whether it moved any.
    async fn move_some(&mut self, partition: &Partition, kept: Vec<(TopicNo, i64)>) -> Result<bool> {
        if kept.is_empty() {
            return Ok(false);
        }
        let (topics, cutoffs): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        let moved = sqlx::query(KEPT)
            .bind(partition.class.as_str())
            .bind(signed(partition.begins_at.0))
            .bind(signed(partition.ends_at.0))
            .bind(topics)
            .bind(cutoffs)
            .bind(STEP);
        let moved = self.rows(moved).await?;
        if moved.is_empty() {
            return Ok(false);
        }
        partitions::open_one(Class::Long, partition.begins_at, self.connection()).await?;
        self.move_rows(&moved, Class::Long).await?;
        Ok(true)
    }

    /// Tests whether the tables can be locked, before any work is done. The locks are released at once, so that readers
    /// need not wait for the announcement.
    async fn try_lock_tables(&mut self, partition: &Partition) -> Result<()> {
        self.lock_tables(partition).await?;
        sqlx::raw_sql(RELEASE_LOCKS).execute(&mut *self.txn).await?;
        Ok(())
    }

    async fn lock_tables(&mut self, partition: &Partition) -> Result<()> {
        let class = partition.class.as_str();
        let tables = TABLES.map(|table| format!("ONLY cn_relay.{table}_{class}, {}", partition.table(table)));
        let lock = format!("SAVEPOINT before; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
        for left in (0..MAX_LOCK_TRIES).rev() {
            match sqlx::raw_sql(own(lock.clone())).execute(&mut *self.txn).await.map_err(Failure::from) {
                Err(error) if error.is_lock_timeout() && left > 0 => {
                    sqlx::raw_sql(RELEASE_LOCKS).execute(&mut *self.txn).await?;
                    tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
                }
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    /// Announces every visible row of a month as purged.
    async fn announce_month(&mut self, partition: &Partition) -> Result<()> {
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
            .bind(signed(self.clock().latest.0))
            .bind(Reason::Retention.as_str())
            .execute(&mut *self.txn)
            .await?;
        self.work.node.head.0 += announced.rows_affected();
        Ok(())
    }

    fn uncount(&mut self, held: &[Held]) -> Result<()> {
        held.iter().try_for_each(|held| self.work.lose(held.topic, held.class, held.effective, held.usage))
    }
}

/// Regular rows of a month that one of these topics keeps for longer: those after its cutoff.
const KEPT: &str = select_rows!(
    "FROM cn_relay.events e JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
     WHERE e.class = $1 AND e.ingested_at >= $2 AND e.ingested_at < $3 AND e.topics && $4::integer[] AND EXISTS ( \
         SELECT 1 FROM unnest(e.topics) AS t (topic) \
         JOIN unnest($4::integer[], $5::bigint[]) AS o (topic, cutoff) ON o.topic = t.topic \
         WHERE e.ingested_at > o.cutoff) \
     ORDER BY e.no LIMIT $6"
);
