//! What the program can do beside running the node: one file per command.
//!
//! What only reads opens the store beside a running node. What changes something asks the node that runs, or does it
//! itself if none does (`control`). What needs the files for itself says so if a node runs. Which kind of store it is, only
//! `wiring::stores` knows.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod gossip;
pub(crate) mod import;
pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod migrate;
pub(crate) mod outbox;
mod progress;
pub(crate) mod retention;
pub(crate) mod stats;
mod table;
pub(crate) mod topic;

/// A runtime for a command: one thread is enough, but for what blocks.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
