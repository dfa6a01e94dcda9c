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
pub(crate) use remains::{load_remains, remains};
pub(crate) use rows::put_row;
pub(crate) use traces::put_traces;
mod facts;
mod remains;
mod rows;
mod traces;
mod write;

use std::sync::Arc;

use kukuri_domain::{Millis, clock::Clock};
use kukuri_postgres::{PooledSession, Session, SqlRow, plain};
use kukuri_store::{Seq, StageChange, StoreError};
use tokio::sync::MutexGuard;

use crate::{
    columns::{SqlQuery, query},
    error::{Result, damaged},
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
    pub(crate) session: PooledSession,
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
        Ok(Self::begin_with(writer, Vec::new()).await?.0)
    }

    /// Begins a transaction, even while a load is unfinished, and sends these statements with its beginning. Returns their
    /// rows.
    async fn begin_with(writer: &'w Writer, statements: Vec<SqlQuery<'_>>) -> Result<(Self, Vec<Vec<SqlRow>>)> {
        if writer.is_read_only {
            return Err(StoreError::ReadOnly.into());
        }
        let turn = writer.turn.lock().await;
        let session = writer.pool.acquire().await?;
        let begin = [plain(BEGIN), query(NODE)].into_iter().chain(statements);
        let mut answers = session.pipeline(begin.collect()).await?.into_iter();
        let node = answers.by_ref().take(2).flatten().next();
        let node = records::node(&node.ok_or_else(|| damaged("the node has no row"))?)?;
        let work = new_work(writer, &session, node).await?;
        let batch = Self { writer, session, stored: work.node, work, new_month: None, _turn: turn };
        Ok((batch, answers.collect()))
    }

    /// Ends the transaction without any change.
    pub(crate) async fn rollback(self) -> Result<()> {
        Ok(self.session.rollback().await?)
    }

    /// Continues the transaction as if it had just begun: changes that were not written are forgotten.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.work = new_work(self.writer, &self.session, read_node(&self.session).await?).await?;
        self.stored = self.work.node;
        Ok(())
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn clock(&self) -> Clock {
        self.work.node.clock
    }

    pub(crate) fn tick(&mut self, now: Millis) {
        self.work.node.clock = self.work.rules.tick(self.clock(), self.work.node.head, now);
    }

    /// Raises the statement timeout of this transaction: a request may name very many rows.
    pub(crate) async fn raise_timeout(&mut self) -> Result<()> {
        self.session.run("SET LOCAL statement_timeout = '10min'").await?;
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
                    self.session.run("SELECT 1").await?;
                }
            }
        }
    }

    /// Ensures that incoming events have partitions.
    pub(crate) async fn open_month(&mut self) -> Result<()> {
        let month = months::begin_of(self.clock().latest);
        if !self.writer.months.lock().contains(&month) {
            partitions::open(month, &self.session).await?;
            self.new_month = Some(month);
        }
        Ok(())
    }

    /// Writes all changes, commits durably, and wakes outbox followers.
    pub(crate) async fn commit(mut self) -> Result<Committed> {
        let (node, stored) = (self.work.node, self.stored);
        let mut last = Vec::new();
        if node.head != stored.head {
            last.push(notify("cn_relay_outbox", node.head.0));
        }
        if node.subscriptions_version != stored.subscriptions_version {
            last.push(notify("cn_relay_subscriptions", node.subscriptions_version));
        }
        match self.writer.commit_delay {
            None => {
                last.push(plain("COMMIT"));
                self.write_and(last).await?;
                self.session.release();
            }
            Some(delay) => {
                self.write_and(last).await?;
                tokio::time::sleep(delay()).await;
                self.session.commit().await?;
            }
        }
        self.writer.months.lock().extend(self.new_month);
        self.writer.note_commit(node.clock, node.head);
        Ok(Committed { stages: self.work.stages, head: node.head })
    }
}

fn notify(channel: &'static str, number: u64) -> SqlQuery<'static> {
    query("SELECT pg_notify($1, $2)").bind(channel).bind(number.to_string())
}

/// An empty unit of work on the state of the node and its subscriptions.
async fn new_work(writer: &Writer, session: &Session, node: Node) -> Result<Work> {
    let version = node.subscriptions_version;
    let cached = writer.subscriptions.lock().clone().filter(|(cached, _)| *cached == version);
    let subscriptions = match cached {
        Some((_, subscriptions)) => subscriptions,
        None => {
            let read = Arc::new(subscriptions::load(session).await?);
            *writer.subscriptions.lock() = Some((version, Arc::clone(&read)));
            read
        }
    };
    Ok(Work { rules: Arc::clone(&writer.rules), subscriptions, node, ..Work::default() })
}

/// The row of the node.
pub(crate) const NODE: &str = "SELECT * FROM cn_relay.node";

pub(crate) async fn read_node(session: &Session) -> Result<Node> {
    records::node(&query(NODE).fetch_one(session).await?)
}
