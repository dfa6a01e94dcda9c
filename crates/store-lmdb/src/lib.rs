//! The embedded event store, on LMDB.
//!
//! # Layout
//!
//! - `store`: implements the port of `kukuri_store`.
//! - `open`: the writer's lock and the check that the files belong to a store. `format`: their version, and migrations.
//! - `tables`, `key`, `record`, `pack`: the on-disk layout.
//! - `writer`: the only writer. `writer_thread`: the thread it runs on. `batch`: one write transaction, the ledger of
//!   `kukuri_store`'s ingest procedure (`ledger`, `rows`). `ingest`: a batch in its own transaction. `wal`: the
//!   write-ahead log and group commit. `upkeep`: expiry and purges, by `ages`. `space`: disk space, and the reserve for
//!   requests. `subscriptions`: the topics that this node carries.
//! - `former_topics`: topics without a record. `hidden`: hidden rows by owner and time.
//! - `index`: the index rows of an event. `scan`: range scans over them. `plan`: the query planner. `query`: the scan of a
//!   filter. `answering`: answers to queries within their budget. `grant`: the work of one step, in rows. `lookup`: reads by
//!   id, by number, and reports.
//! - `traces`: traces that requests leave in topics. `remains`: of events without a row. `sharing`: exchange with other nodes.
//! - `check`: consistency check.
//! - `fuzzing` (a feature): what must hold for any bytes on disk, and for any query.
//!
//! # Acknowledge after the WAL append, commit later
//!
//! `kukuri_domain` decides on a batch, one event after the other, and the batch is written in one LMDB transaction. A
//! commit costs two syncs, one for the pages and one for the new root, and LMDB writes whole pages: large batches are
//! far cheaper per event than small ones. So several batches share a transaction. Each is acknowledged after one append
//! to the WAL with one sync, and the transaction is committed a little later. A crash replays the WAL. See `wal`.
//!
//! # Reading
//!
//! Every index row carries kind, author and topic of its event, so that most filters are decided without reading the
//! event itself. No filter holds a read transaction for longer than a step of a few thousand rows.

mod ages;
mod answering;
mod archive;
mod batch;
mod check;
mod error;
mod files;
mod format;
mod former_topics;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grant;
mod hidden;
mod index;
mod ingest;
mod key;
mod lookup;
mod open;
mod pack;
mod plan;
mod query;
mod record;
mod remains;
mod scan;
mod sharing;
mod space;
mod store;
mod subscriptions;
mod tables;
mod traces;
mod upkeep;
mod wal;
mod writer;
mod writer_thread;

pub use open::{Durability, LmdbOptions};
pub use store::LmdbStore;
