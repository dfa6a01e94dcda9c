//! One write transaction: rows, indexes, outbox and counters change together or not at all (P-3).
//!
//! It begins with the writers' lock, which is unique across all processes. So sequences are assigned in commit order
//! (O-5), and of two concurrent versions of a key the second transaction sees the first.
//!
//! - This file: the transaction.
//! - `facts`: reads before decisions.
//! - `write`: writes the changes; `rows`: rows and their index rows; `traces`: traces of requests.

mod facts;
mod rows;
mod traces;
mod write;

use std::sync::Arc;

use kukuri_domain::{Millis, clock::Clock};
use kukuri_store::{Seq, StageChange, StoreError};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use tokio::sync::MutexGuard;

use crate::{
    error::Result,
    months, partitions, records, subscriptions,
    work::{Node, Work},
    writer::Writer,
};

/// The writers' lock, shared by all processes.
macro_rules! writers_lock {
    () => {
        "7742364213"
    };
}
pub(crate) use writers_lock;

/// Begins every transaction that changes events. Waiting for the lock means waiting for other writers, which may take
/// longer than the statement timeout allows for one's own statements.
const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '60s'; SELECT pg_advisory_xact_lock(",
    writers_lock!(),
    "); SET LOCAL statement_timeout = DEFAULT"
);

/// Result of a committed batch.
pub(crate) struct Committed {
    /// Capacity stages that changed.
    pub(crate) stages: Vec<StageChange>,
    /// The new head of the outbox.
    pub(crate) head: Seq,
}

/// A write transaction in progress.
pub(crate) struct Batch<'w> {
    pub(crate) writer: &'w Writer,
    pub(crate) txn: Transaction<'static, Postgres>,
    pub(crate) work: Work,
    stored: Node,
    new_month: Option<Millis>,
    /// `None` within a dry run, whose caller holds the turn.
    turn: Option<MutexGuard<'w, ()>>,
}

impl<'w> Batch<'w> {
    /// Begins a transaction and advances the clock to `now`.
    pub(crate) async fn begin(writer: &'w Writer, now: Millis) -> Result<Self> {
        let mut batch = Self::resume(writer).await?;
        batch.work.node.clock = batch.work.node.clock.tick(now);
        Ok(batch)
    }

    /// Begins a transaction without advancing the clock. Fails while a load is unfinished.
    pub(crate) async fn resume(writer: &'w Writer) -> Result<Self> {
        let batch = Self::resume_any(writer).await?;
        if batch.work.node.loading {
            batch.abandon().await?;
            return Err(writer.unfinished());
        }
        Ok(batch)
    }

    /// Begins a transaction even while a load is unfinished.
    pub(crate) async fn resume_any(writer: &'w Writer) -> Result<Self> {
        if writer.is_read_only {
            return Err(StoreError::ReadOnly.into());
        }
        let turn = writer.turn.lock().await;
        let txn = writer.pool.begin_with(BEGIN).await?;
        Self::within(writer, txn, Some(turn)).await
    }

    /// Wraps a transaction that has already begun.
    async fn within(
        writer: &'w Writer,
        mut txn: Transaction<'static, Postgres>,
        turn: Option<MutexGuard<'w, ()>>,
    ) -> Result<Self> {
        let node = read_node(&mut txn).await?;
        let known = writer.known_subscriptions(node.subscriptions_version);
        let subscriptions = match known {
            Some(known) => known,
            None => {
                let read = Arc::new(subscriptions::load(&mut txn).await?);
                writer.keep_subscriptions(node.subscriptions_version, Arc::clone(&read));
                read
            }
        };
        let work = Work::new(Arc::clone(&writer.rules), subscriptions, node);
        Ok(Self { writer, txn, work, stored: node, new_month: None, turn })
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.txn
    }

    /// Raises the statement timeout of this transaction: a request may name very many rows.
    pub(crate) async fn take_time(&mut self) -> Result<()> {
        sqlx::raw_sql("SET LOCAL statement_timeout = '10min'").execute(&mut *self.txn).await?;
        Ok(())
    }

    /// Ensures that incoming events have partitions.
    pub(crate) async fn open_month(&mut self) -> Result<()> {
        let month = months::begin_of(self.clock().latest);
        if !self.writer.knows_month(month) {
            partitions::open(month, &mut self.txn).await?;
            self.new_month = Some(month);
        }
        Ok(())
    }

    /// Writes all changes, commits durably, and wakes outbox followers.
    pub(crate) async fn commit(mut self) -> Result<Committed> {
        self.write().await?;
        let node = self.work.node;
        if node.head != self.stored.head {
            sqlx::query("SELECT pg_notify('cn_relay_outbox', $1)")
                .bind(node.head.to_string())
                .execute(&mut *self.txn)
                .await?;
        }
        if node.subscriptions_version != self.stored.subscriptions_version {
            sqlx::query("SELECT pg_notify('cn_relay_subscriptions', $1)")
                .bind(node.subscriptions_version.to_string())
                .execute(&mut *self.txn)
                .await?;
        }
        self.writer.delay_commit().await;
        self.txn.commit().await?;
        if let Some(month) = self.new_month {
            self.writer.note_month(month);
        }
        self.writer.note_commit(node.clock, node.head);
        Ok(Committed { stages: self.work.stages, head: node.head })
    }

    /// Rolls back.
    pub(crate) async fn abandon(self) -> Result<()> {
        Ok(self.txn.rollback().await?)
    }

    // Steps of a purge: each in its own transaction, or all in one that is rolled back.

    pub(crate) async fn begin_step(writer: &'w Writer, dry_run: &mut Option<DryTxn>, now: Millis) -> Result<Self> {
        let Some(DryTxn(txn)) = dry_run.take() else { return Self::begin(writer, now).await };
        let mut batch = Self::within(writer, txn, None).await?;
        batch.work.node.clock = batch.work.node.clock.tick(now);
        Ok(batch)
    }

    /// Ends a step and writes its changes.
    pub(crate) async fn end_step(mut self, dry_run: &mut Option<DryTxn>) -> Result<Vec<StageChange>> {
        if self.turn.is_some() {
            return Ok(self.commit().await?.stages);
        }
        self.write().await?;
        *dry_run = Some(DryTxn(self.txn));
        Ok(self.work.stages)
    }

    /// Ends a step that changed nothing.
    pub(crate) async fn skip_step(self, dry_run: &mut Option<DryTxn>) -> Result<()> {
        if self.turn.is_some() {
            return self.abandon().await;
        }
        *dry_run = Some(DryTxn(self.txn));
        Ok(())
    }

    /// The transaction for a dry run, and the turn, which the caller must hold until the dry run ends.
    pub(crate) fn into_dry_run(self) -> (DryTxn, Option<MutexGuard<'w, ()>>) {
        (DryTxn(self.txn), self.turn)
    }

    pub(crate) fn clock(&self) -> Clock {
        self.work.node.clock
    }
}

/// The transaction of a dry run. Dropping it rolls it back.
pub(crate) struct DryTxn(pub(crate) Transaction<'static, Postgres>);

pub(crate) async fn read_node(connection: &mut PgConnection) -> Result<Node> {
    let row = sqlx::query("SELECT * FROM cn_relay.node").fetch_one(connection).await?;
    records::node(&row)
}

/// Marks SQL that is built only from parts of this crate as safe.
pub(crate) fn own(sql: String) -> AssertSqlSafe<String> {
    AssertSqlSafe(sql)
}
