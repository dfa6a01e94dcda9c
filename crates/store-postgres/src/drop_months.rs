//! Dropping months past their retention: whole partitions, at almost no cost to the server (P-7).
//!
//! Rows that a topic keeps for longer are moved to another class first, in steps. Then one transaction announces the
//! purged events (P-8), adjusts the counters by the partition's own counters, and detaches its tables. Only the
//! announcement grows with the number of rows: one outbox row per event.
//!
//! Updating the states of a month's ids takes one change per row. So the drop keeps the rows in a side table that no
//! filter reads, and the view `cn_relay.ids` reports their ids as purged from that moment on. Later steps update the
//! ids and then delete the side table.

use std::time::Duration;

use futures_util::TryStreamExt;
use kukuri_domain::{Reason, retention::RetentionClass};
use kukuri_store::counters::Tally as _;

use crate::{
    batch::Batch,
    columns::{Class, Column as _, ReadColumn as _, from_columns, number_at, query},
    due::Cutoffs,
    error::{Failure, Result},
    months,
    partitions::{self, Partition, TABLES},
    records::select_rows,
    upkeep::{Purge, STEP, Step},
    work::{Delta, NODE, TopicNo},
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

/// What a partition holds of a topic (0 is the node) and retention class.
type PartitionCounter = (TopicNo, RetentionClass, Delta);

impl Batch<'_> {
    /// Updates ids of a dropped month, or drops the next month, or performs one step of that. The position in the phase
    /// is the start and the class of the last month.
    pub(crate) async fn drop_some(&mut self, purge: &mut Purge) -> Result<Step> {
        if self.update_some_ids(purge).await? {
            return Ok(Step::More);
        }
        if purge.is_dry_run {
            return Ok(Step::Nothing);
        }
        let next = query(
            "SELECT * FROM cn_relay.partitions WHERE ends_at <= $1 AND (begins_at, class) > ($2, convert_from($3, 'UTF8')) \
             ORDER BY begins_at, class LIMIT 1",
        );
        // Only months before the one that receives events now.
        let next = next.bind(months::begin_of(self.clock().latest).to_sql()).bind(number_at(&purge.cursor.after, 0));
        let next = next.bind(purge.cursor.after.get(8..).unwrap_or_default()).fetch_optional(self.session()).await?;
        let Some(next) = next else { return Ok(Step::Nothing) };
        let month = Partition::read(&next)?;
        let step = match self.drop_month(&month, purge).await {
            Err(error) if error.is_lock_timeout() => {
                tracing::info!(?month, "can't drop a monthly partition that is being read; the next purge retries");
                Step::Nothing
            }
            step => step?,
        };
        let position = [&month.begins_at.to_sql().to_be_bytes(), month.class.as_str().as_bytes()].concat();
        Ok(step.at(position, purge))
    }

    async fn drop_month(&mut self, month: &Partition, purge: &mut Purge) -> Result<Step> {
        self.read_topics_with_retention().await?;
        let counters = self.partition_counters(month).await?;
        let rows =
            counters.iter().filter(|(topic, ..)| *topic == NODE).map(|(.., held)| held.events as u64).sum::<u64>();
        let has_rows = rows > 0;
        if has_rows {
            let Some(mut kept) = self.kept_longer(month, purge) else { return Ok(Step::Nothing) };
            // By the counters: no scan for topics without rows here.
            kept.retain(|(topic, _)| counters.iter().any(|(other, _, held)| other == topic && held.events > 0));
            if self.move_some(month, kept).await? {
                return Ok(Step::More);
            }
            if rows > MAX_DROPPED_ROWS {
                return Ok(Step::Nothing);
            }
        }
        self.raise_timeout().await?;
        self.session().run(LOCK_SETTINGS).await?;
        if has_rows {
            // Tests whether the tables can be locked, before any work is done. The locks are released at once, so that
            // readers need not wait for the announcement.
            self.lock_tables(month).await?;
            self.session().run(RELEASE_LOCKS).await?;
            self.announce_month(month).await?;
        }
        self.lock_tables(month).await?;
        self.read_topics(&counters.iter().map(|(topic, ..)| *topic).collect::<Vec<_>>()).await?;
        for (topic, class, held) in counters {
            let lost = Delta { effective: -held.effective, events: -held.events, bytes: -held.bytes };
            self.work.change_counters(topic, class, lost)?;
        }
        self.work.update_stages()?;
        self.detach_month(month, has_rows).await?;
        purge.cursor.purged.by_retention += rows;
        if has_rows {
            tracing::info!(?month, rows, "dropped a monthly partition past its retention");
        }
        Ok(Step::Last)
    }

    /// Topics that keep rows of this month for longer than the default. `None`: the month is within the default
    /// retention.
    fn kept_longer(&self, month: &Partition, purge: &Purge) -> Option<Vec<(TopicNo, i64)>> {
        if month.class != Class::Default {
            return None;
        }
        let cutoffs = Cutoffs::of(RetentionClass::Regular, &purge.retention, purge.began_at, &self.work);
        cutoffs?.kept_longer(month.ends_at)
    }

    async fn partition_counters(&mut self, month: &Partition) -> Result<Vec<PartitionCounter>> {
        let rows = query("SELECT * FROM cn_relay.partition_counters WHERE class = $1 AND begins_at = $2");
        let mut rows = rows.bind(month.class.to_sql()).bind(month.begins_at.to_sql()).fetch(self.session()).await?;
        let mut counters = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let held = from_columns!(row => Delta { effective, events, bytes });
            // A topic may be gone of which nothing is left here.
            if held != Delta::default() {
                counters.push((row.read("topic")?, row.read("retention")?, held));
            }
        }
        Ok(counters)
    }

    /// One step: moves rows that these topics keep to the same month of the long class. Returns whether it moved any.
    async fn move_some(&mut self, month: &Partition, kept: Vec<(TopicNo, i64)>) -> Result<bool> {
        if kept.is_empty() {
            return Ok(false);
        }
        let (topics, cutoffs): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        let moved = query(KEPT).bind(month.class.to_sql()).bind(month.begins_at.to_sql());
        let moved = moved.bind(month.ends_at.to_sql()).bind(topics).bind(cutoffs).bind(STEP);
        let moved = self.rows(moved).await?;
        if moved.is_empty() {
            return Ok(false);
        }
        partitions::open_one(Class::Long, month.begins_at, self.session()).await?;
        self.move_rows(&moved, Class::Long).await?;
        Ok(true)
    }

    async fn lock_tables(&mut self, month: &Partition) -> Result<()> {
        let class = month.class.as_str();
        let tables = TABLES.map(|table| format!("ONLY cn_relay.{table}_{class}, {}", month.table(table)));
        let lock = format!("SAVEPOINT before; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
        for left in (0..MAX_LOCK_TRIES).rev() {
            let locked = self.session().run(lock.clone()).await;
            match locked.map_err(Failure::from) {
                Err(error) if error.is_lock_timeout() && left > 0 => {
                    self.session().run(RELEASE_LOCKS).await?;
                    tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
                }
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    /// Announces every visible row of a month as purged.
    async fn announce_month(&mut self, month: &Partition) -> Result<()> {
        let events = month.table("events");
        let announce = format!(
            "INSERT INTO cn_relay.events_outbox \
             (seq, created_at, ingested_at, written_at, kind, op, event_id, topic_id, effective_key, reason) \
             SELECT $1 + row_number() OVER (ORDER BY e.no, t.place), e.created_at, e.ingested_at, $2, e.kind, \
             'delete', e.id, n.topic_id, NULL, $3 \
             FROM {events} e CROSS JOIN LATERAL unnest(e.topics) WITH ORDINALITY AS t (no, place) \
             JOIN cn_relay.topics n ON n.no = t.no WHERE e.effective"
        );
        let (head, now) = (self.work.node.head.to_sql(), self.clock().latest.to_sql());
        let announce = query(announce).bind(head).bind(now).bind(Reason::Retention.as_str());
        self.work.node.head.0 += announce.execute(self.session()).await?;
        Ok(())
    }

    /// Detaches a month from the tables and drops it. Its rows, if any, stay in a side table.
    async fn detach_month(&mut self, month: &Partition, has_rows: bool) -> Result<()> {
        let [events, indexes @ ..] = TABLES.map(|table| month.table(table));
        let mut dropped = indexes.to_vec();
        if has_rows {
            let (class, side_table) = (month.class.as_str(), month.side_table());
            let detach = format!(
                "ALTER TABLE cn_relay.events_{class} DETACH PARTITION {events}; \
                 ALTER TABLE {events} RENAME TO {side_table}"
            );
            self.session().run(detach).await?;
            let leave = query(
                "INSERT INTO cn_relay.leaving (class, begins_at, ends_at, name, left_at, reason, after_at, after_no) \
                 SELECT class, begins_at, ends_at, name, $3, $4, -1, -1 FROM cn_relay.partitions \
                 WHERE class = $1 AND begins_at = $2",
            );
            let leave = leave.bind(month.class.to_sql()).bind(month.begins_at.to_sql());
            let leave = leave.bind(self.clock().latest.to_sql()).bind(Reason::Retention.to_sql());
            leave.execute(self.session()).await?;
        } else {
            dropped.push(events);
        }
        self.session().run(format!("DROP TABLE {}", dropped.join(", "))).await?;
        self.forget_month("partition_counters", month).await?;
        self.forget_month("partitions", month).await
    }

    /// Deletes a month from a list of months.
    async fn forget_month(&mut self, table: &str, month: &Partition) -> Result<()> {
        let forget = format!("DELETE FROM cn_relay.{table} WHERE class = $1 AND begins_at = $2");
        let forget = query(forget).bind(month.class.to_sql()).bind(month.begins_at.to_sql());
        forget.execute(self.session()).await?;
        Ok(())
    }

    /// One step of the id updates for a dropped month, so that its ids no longer refer to rows. Returns whether there
    /// was any work.
    async fn update_some_ids(&mut self, purge: &Purge) -> Result<bool> {
        let next = query("SELECT * FROM cn_relay.leaving ORDER BY begins_at, class LIMIT 1");
        let Some(leaving) = next.fetch_optional(self.session()).await? else { return Ok(false) };
        let month = Partition::read(&leaving)?;
        let side_table = month.side_table();
        let update = format!(
            "WITH next AS MATERIALIZED (SELECT ingested_at, no, id FROM cn_relay.{side_table} \
                 WHERE class = $1 AND (ingested_at, no) > ($3, $4) ORDER BY ingested_at, no LIMIT $5), \
             updated AS (UPDATE cn_relay.event_dedupe d SET since = CASE WHEN d.reason IS NULL THEN l.left_at \
                 ELSE d.since END, reason = coalesce(d.reason, l.reason), class = NULL, ingested_at = NULL, no = NULL \
                 FROM next e, cn_relay.leaving l WHERE d.event_id = e.id AND l.class = $1 AND l.begins_at = $2) \
             UPDATE cn_relay.leaving l SET after_at = e.ingested_at, after_no = e.no \
             FROM (SELECT * FROM next ORDER BY ingested_at DESC, no DESC LIMIT 1) e \
             WHERE l.class = $1 AND l.begins_at = $2 RETURNING (SELECT count(*) FROM next)"
        );
        let update = query(update).bind(month.class.to_sql()).bind(month.begins_at.to_sql());
        let update = update.bind(leaving.read::<i64>("after_at")?).bind(leaving.read::<i64>("after_no")?).bind(STEP);
        let updated = update.fetch_optional(self.session()).await?;
        let updated: Option<i64> = updated.map(|row| row.get(0)).transpose()?;
        if updated != Some(STEP) {
            if !purge.is_dry_run {
                let drop = format!("DROP TABLE cn_relay.{side_table}");
                self.session().run(drop).await?;
            }
            self.forget_month("leaving", &month).await?;
        }
        Ok(true)
    }
}

/// Regular rows of a month that are newer than the cutoff of one of these topics.
const KEPT: &str = select_rows!(
    "FROM cn_relay.events e JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
     WHERE e.class = $1 AND e.ingested_at >= $2 AND e.ingested_at < $3 AND e.topics && $4::integer[] AND EXISTS ( \
         SELECT 1 FROM unnest(e.topics) AS t (topic) \
         JOIN unnest($4::integer[], $5::bigint[]) AS o (topic, cutoff) ON o.topic = t.topic \
         WHERE e.ingested_at > o.cutoff) \
     ORDER BY e.no LIMIT $6"
);
