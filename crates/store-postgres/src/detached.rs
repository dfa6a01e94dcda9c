//! Detached months: the state of their ids, updated in steps.
//!
//! Dropping a month takes constant time, however many rows it has. Updating the state of its ids takes one change per
//! row. So the drop keeps the rows in a side table that no filter reads, and the view `cn_relay.ids` reports their ids
//! as purged from that moment on. Later steps update the ids and then delete the side table.

use kukuri_domain::{Millis, Reason};
use sqlx::Row as _;

use crate::{
    batch::{Batch, own},
    codes::{reason_code, signed},
    error::Result,
    partitions::{self, Partition, TABLES},
    upkeep::{PurgeWork, STEP},
    writer::Writer,
};

impl Writer {
    /// One step of the id updates for a detached month. Returns whether there was any work.
    pub(crate) async fn update_some_ids(&self, work: &mut PurgeWork, now: Millis) -> Result<bool> {
        let Some(mut batch) = self.begin_step(work, now).await? else { return Ok(false) };
        let next = sqlx::query("SELECT * FROM cn_relay.leaving ORDER BY begins_at, class LIMIT 1");
        let Some(leaving) = next.fetch_optional(batch.connection()).await? else {
            batch.skip_step(&mut work.dry_txn).await?;
            return Ok(false);
        };
        let partition = partitions::read(&leaving)?;
        if !batch.update_ids(&partition, (leaving.try_get("after_at")?, leaving.try_get("after_no")?)).await? {
            if !work.is_dry_run {
                batch.drop_aside(&partition).await?;
            }
            batch.forget_month(&partition).await?;
        }
        batch.end_step(&mut work.dry_txn).await?;
        Ok(true)
    }
}

impl Batch<'_> {
    /// Detaches a month from the tables and drops it. Its rows, if any, stay in a side table.
    pub(crate) async fn detach_month(&mut self, partition: &Partition, rows: u64) -> Result<()> {
        for table in ["partition_counters", "partitions"] {
            let forget = format!("DELETE FROM cn_relay.{table} WHERE class = $1 AND begins_at = $2");
            sqlx::query(own(forget))
                .bind(partition.class.as_str())
                .bind(signed(partition.begins_at.0))
                .execute(&mut *self.txn)
                .await?;
        }
        let [events, indexes @ ..] = TABLES.map(|table| partition.table(table));
        let mut gone = indexes.to_vec();
        if rows > 0 {
            let class = partition.class.as_str();
            let detach = format!(
                "ALTER TABLE cn_relay.events_{class} DETACH PARTITION {events}; ALTER TABLE {events} RENAME TO {}",
                partition.aside()
            );
            sqlx::raw_sql(own(detach)).execute(&mut *self.txn).await?;
            self.note_leaving(partition).await?;
        } else {
            gone.push(events);
        }
        sqlx::raw_sql(own(format!("DROP TABLE {}", gone.join(", ")))).execute(&mut *self.txn).await?;
        Ok(())
    }

    async fn note_leaving(&mut self, partition: &Partition) -> Result<()> {
        sqlx::query(
            "INSERT INTO cn_relay.leaving (class, begins_at, ends_at, name, left_at, reason, after_at, after_no) \
             VALUES ($1, $2, $3, $4, $5, $6, -1, -1)",
        )
        .bind(partition.class.as_str())
        .bind(signed(partition.begins_at.0))
        .bind(signed(partition.ends_at.0))
        .bind(&partition.name)
        .bind(signed(self.clock().latest.0))
        .bind(reason_code(Reason::Retention))
        .execute(&mut *self.txn)
        .await?;
        Ok(())
    }

    /// Updates the ids of the rows after a position in a detached month, so that they no longer refer to rows. Returns
    /// whether more may be left.
    async fn update_ids(&mut self, partition: &Partition, after: (i64, i64)) -> Result<bool> {
        let settle = format!(
            "WITH next AS MATERIALIZED (SELECT ingested_at, no, id FROM cn_relay.{} \
                 WHERE class = $1 AND (ingested_at, no) > ($3, $4) ORDER BY ingested_at, no LIMIT $5), \
             settled AS (UPDATE cn_relay.event_dedupe d SET since = CASE WHEN d.reason IS NULL THEN l.left_at \
                 ELSE d.since END, reason = coalesce(d.reason, l.reason), class = NULL, ingested_at = NULL, no = NULL \
                 FROM next e, cn_relay.leaving l WHERE d.event_id = e.id AND l.class = $1 AND l.begins_at = $2) \
             UPDATE cn_relay.leaving l SET after_at = e.ingested_at, after_no = e.no \
             FROM (SELECT * FROM next ORDER BY ingested_at DESC, no DESC LIMIT 1) e \
             WHERE l.class = $1 AND l.begins_at = $2 RETURNING (SELECT count(*) FROM next)",
            partition.aside()
        );
        let settle = sqlx::query_scalar(own(settle))
            .bind(partition.class.as_str())
            .bind(signed(partition.begins_at.0))
            .bind(after.0)
            .bind(after.1)
            .bind(STEP);
        let settled: Option<i64> = settle.fetch_optional(&mut *self.txn).await?;
        Ok(settled == Some(STEP))
    }

    async fn drop_aside(&mut self, partition: &Partition) -> Result<()> {
        sqlx::raw_sql(own(format!("DROP TABLE cn_relay.{}", partition.aside()))).execute(&mut *self.txn).await?;
        Ok(())
    }

    async fn forget_month(&mut self, partition: &Partition) -> Result<()> {
        sqlx::query("DELETE FROM cn_relay.leaving WHERE class = $1 AND begins_at = $2")
            .bind(partition.class.as_str())
            .bind(signed(partition.begins_at.0))
            .execute(&mut *self.txn)
            .await?;
        Ok(())
    }
}
