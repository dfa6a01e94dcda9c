//! One write transaction: rows, indexes, outbox and counters change together or not at all (P-3).
//!
//! It begins with the writers' lock, which is unique across all processes. So sequences are assigned in commit order
//! (O-5), and of two concurrent versions of a key the second transaction sees the first.
//!
//! - This file: the transaction.
//! - `facts`: reads before decisions.
//! - `write`: writes the changes; `rows`: rows and their index rows; `traces`: traces of requests; `remains`: of events
//!   without a row.

#[cfg(test)]
pub(crate) use facts::{AUTHORS, VERSIONS};
pub(crate) use facts::{KEYS, SLOW_ROW_COUNT};
pub(crate) use remains::remains;
mod facts;
mod remains;
mod rows;
mod traces;
mod write;

use std::sync::Arc;

use kukuri_domain::{Millis, clock::Clock};
use kukuri_store::{Seq, StageChange, StoreError};
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::sync::MutexGuard;

use crate::{
    error::Result,
    months, partitions, records, subscriptions,
    work::{Node, Work},
    writer::Writer,
};

/// Maximum rows that one statement changes. A request that names more takes several: preparing a statement must not take as
/// long as a session may be idle (O-5).
pub(crate) const STATEMENT_ROWS: usize = if cfg!(test) { 50 } else { 20_000 };

/// Takes the writers' lock, shared by all processes, until the end of the transaction. It is a table: an advisory lock
/// could be held by anybody who may connect to the database.
macro_rules! lock_writers {
    () => {
        "LOCK TABLE cn_relay.writers_lock IN EXCLUSIVE MODE"
    };
}
pub(crate) use lock_writers;

/// Begins every transaction that changes events. Waiting for the lock means waiting for other writers, which may take
/// longer than the statement timeout allows for one's own statements.
const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '60s'; ",
    lock_writers!(),
    "; SET LOCAL statement_timeout = DEFAULT"
);

/// Result of a committed batch.
pub(crate) struct Committed {
    /// Capacity stages that changed.
    pub(crate) stages: Vec<StageChange>,
    /// The new head of the outbox.
    pub(crate) head: Seq,
}

/// A write transaction in progress. Dropping it rolls it back.
pub(crate) struct Batch<'w> {
    pub(crate) writer: &'w Writer,
    pub(crate) txn: Transaction<'static, Postgres>,
    pub(crate) work: Work,
    stored: Node,
    new_month: Option<Millis>,
    _turn: MutexGuard<'w, ()>,
}

impl<'w> Batch<'w> {
    /// Begins a transaction and advances the clock to `now`.
    pub(crate) async fn begin(writer: &'w Writer, now: Millis) -> Result<Self> {
        let mut batch = Self::resume(writer).await?;
        batch.tick(now);
        Ok(batch)
    }

    /// Begins a transaction without advancing the clock. Fails while a load is unfinished.
    pub(crate) async fn resume(writer: &'w Writer) -> Result<Self> {
        let batch = Self::resume_any(writer).await?;
        if batch.work.node.loading { Err(writer.unfinished()) } else { Ok(batch) }
    }

    /// Begins a transaction even while a load is unfinished.
    pub(crate) async fn resume_any(writer: &'w Writer) -> Result<Self> {
        if writer.is_read_only {
            return Err(StoreError::ReadOnly.into());
        }
        let turn = writer.turn.lock().await;
        let mut txn = writer.pool.begin_with(BEGIN).await?;
        let work = read_work(writer, &mut txn).await?;
        Ok(Self { writer, txn, stored: work.node, work, new_month: None, _turn: turn })
    }

    /// Continues the transaction as if it had just begun: changes that were not written are forgotten.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.work = read_work(self.writer, &mut self.txn).await?;
        self.stored = self.work.node;
        Ok(())
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.txn
    }

    pub(crate) fn clock(&self) -> Clock {
        self.work.node.clock
    }

    pub(crate) fn tick(&mut self, now: Millis) {
        self.work.node.clock = self.work.rules.tick(self.clock(), self.work.node.head, now);
    }

    /// Raises the statement timeout of this transaction: a request may name very many rows.
    pub(crate) async fn raise_timeout(&mut self) -> Result<()> {
        sqlx::raw_sql("SET LOCAL statement_timeout = '10min'").execute(&mut *self.txn).await?;
        Ok(())
    }

    /// Computes changes that take long on another thread. Meanwhile statements show the server that this process is alive: a
    /// session that is idle in its transaction loses the writers' lock (O-5).
    pub(crate) async fn compute<T: Send + 'static>(
        &mut self,
        change: impl FnOnce(&mut Work) -> T + Send + 'static,
    ) -> Result<T> {
        let (mut work, delay) = (std::mem::take(&mut self.work), self.writer.compute_delay);
        let mut computing = tokio::task::spawn_blocking(move || {
            std::thread::sleep(delay);
            let result = change(&mut work);
            (work, result)
        });
        loop {
            tokio::select! {
                computed = &mut computing => {
                    let (work, result) = computed.map_err(|_| StoreError::Panicked)?;
                    self.work = work;
                    return Ok(result);
                }
                () = tokio::time::sleep(self.writer.keep_alive_interval) => {
                    sqlx::raw_sql("SELECT 1").execute(&mut *self.txn).await?;
                }
            }
        }
    }

    /// Ensures that incoming events have partitions.
    pub(crate) async fn open_month(&mut self) -> Result<()> {
        let month = months::begin_of(self.clock().latest);
        if !self.writer.months.lock().contains(&month) {
            partitions::open(month, &mut self.txn).await?;
            self.new_month = Some(month);
        }
        Ok(())
    }

    /// Writes all changes, commits durably, and wakes outbox followers.
    pub(crate) async fn commit(mut self) -> Result<Committed> {
        self.write().await?;
        let (node, stored) = (self.work.node, self.stored);
        if node.head != stored.head {
            self.notify("cn_relay_outbox", node.head.0).await?;
        }
        if node.subscriptions_version != stored.subscriptions_version {
            self.notify("cn_relay_subscriptions", node.subscriptions_version).await?;
        }
        if let Some(delay) = self.writer.commit_delay {
            tokio::time::sleep(delay()).await;
        }
        self.txn.commit().await?;
        self.writer.months.lock().extend(self.new_month);
        self.writer.note_commit(node.clock, node.head);
        Ok(Committed { stages: self.work.stages, head: node.head })
    }

    async fn notify(&mut self, channel: &str, number: u64) -> Result<()> {
        let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(number.to_string());
        notify.execute(&mut *self.txn).await?;
        Ok(())
    }
}

/// The state of the node and its subscriptions.
async fn read_work(writer: &Writer, connection: &mut PgConnection) -> Result<Work> {
    let node = read_node(connection).await?;
    let version = node.subscriptions_version;
    let cached = writer.subscriptions.lock().clone().filter(|(cached, _)| *cached == version);
    let subscriptions = match cached {
        Some((_, subscriptions)) => subscriptions,
        None => {
            let read = Arc::new(subscriptions::load(connection).await?);
            *writer.subscriptions.lock() = Some((version, Arc::clone(&read)));
            read
        }
    };
    Ok(Work { rules: Arc::clone(&writer.rules), subscriptions, node, ..Work::default() })
}

pub(crate) async fn read_node(connection: &mut PgConnection) -> Result<Node> {
    records::node(&sqlx::query("SELECT * FROM cn_relay.node").fetch_one(connection).await?)
}
