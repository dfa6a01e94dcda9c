//! One write transaction: rows, indexes, outbox and counters change together or not at all (P-3).
//!
//! It begins with the writers' lock, of which there is one for all processes. So sequences are given out in the order
//! of commits (O-5), and of two rivals for a key the second sees the first.
//!
//! - This file: the transaction.
//! - `facts`: what is read before decisions.
//! - `writing`: what they changed, written; `rows`: of that, rows and their index rows; `traces`: what requests left.

mod facts;
mod rows;
mod traces;
mod writing;

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

/// The one lock of all who write, over all processes.
macro_rules! writers_lock {
    () => {
        "7742364213"
    };
}
pub(crate) use writers_lock;

/// What every transaction that changes events begins with. Whoever waits here waits for others, which may take longer
/// than a statement of one's own.
const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '60s'; SELECT pg_advisory_xact_lock(",
    writers_lock!(),
    "); SET LOCAL statement_timeout = DEFAULT"
);

/// What a batch leaves behind.
pub(crate) struct Committed {
    /// Capacity stages that changed.
    pub(crate) stages: Vec<StageChange>,
    /// The new head of the outbox.
    pub(crate) head: Seq,
}

/// A write transaction under way.
pub(crate) struct Batch<'w> {
    pub(crate) writer: &'w Writer,
    pub(crate) txn: Transaction<'static, Postgres>,
    pub(crate) work: Work,
    stored: Node,
    new_month: Option<Millis>,
    _turn: MutexGuard<'w, ()>,
}

impl<'w> Batch<'w> {
    /// Begins a transaction that takes note of the time.
    pub(crate) async fn begin(writer: &'w Writer, now: Millis) -> Result<Self> {
        let mut batch = Self::resume(writer).await?;
        batch.work.node.clock = batch.work.node.clock.tick(now);
        Ok(batch)
    }

    /// Begins one for which time does not go on. Not on half a copy, which is of no use yet.
    pub(crate) async fn resume(writer: &'w Writer) -> Result<Self> {
        let batch = Self::resume_any(writer).await?;
        if batch.work.node.loading {
            batch.abandon().await?;
            return Err(writer.unfinished());
        }
        Ok(batch)
    }

    /// Begins one whether or not another store is being loaded.
    pub(crate) async fn resume_any(writer: &'w Writer) -> Result<Self> {
        if writer.is_read_only {
            return Err(StoreError::ReadOnly.into());
        }
        let turn = writer.turn.lock().await;
        let mut txn = writer.pool.begin_with(BEGIN).await?;
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
        Ok(Self { writer, txn, work, stored: node, new_month: None, _turn: turn })
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.txn
    }

    /// Lets statements of this transaction take long: a request may name very much.
    pub(crate) async fn take_time(&mut self) -> Result<()> {
        sqlx::raw_sql("SET LOCAL statement_timeout = '10min'").execute(&mut *self.txn).await?;
        Ok(())
    }

    /// Makes sure that what comes in now has partitions to go to.
    pub(crate) async fn open_month(&mut self) -> Result<()> {
        let month = months::begin_of(self.work.stamp());
        if !self.writer.knows_month(month) {
            partitions::open(month, &mut self.txn).await?;
            self.new_month = Some(month);
        }
        Ok(())
    }

    /// Makes everything durable, and wakes those who follow.
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
        self.writer.saw(node.clock, node.head);
        Ok(Committed { stages: self.work.stages, head: node.head })
    }

    /// Leaves everything as it was.
    pub(crate) async fn abandon(self) -> Result<()> {
        Ok(self.txn.rollback().await?)
    }

    /// The clock as this transaction sees it.
    pub(crate) fn clock(&self) -> Clock {
        self.work.node.clock
    }
}

pub(crate) async fn read_node(connection: &mut PgConnection) -> Result<Node> {
    let row = sqlx::query("SELECT * FROM cn_relay.node").fetch_one(connection).await?;
    records::node(&row)
}

/// A statement that is put together from parts of this crate alone.
pub(crate) fn own(sql: String) -> AssertSqlSafe<String> {
    AssertSqlSafe(sql)
}
