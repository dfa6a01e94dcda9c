//! The embedded event store, on LMDB.
//!
//! # Layout
//!
//! - `store`: the port of `kukuri_store`, put together from the rest.
//! - `open`: who may write, whether the files are ours. `format`: their version, and migrations.
//! - `tables`, `key`, `record`, `pack`: what is on disk.
//! - `writer`: the one writer. `thread`: where it works. `batch`: one write transaction (`rows`, `counting`). `ingest`: events into it, by what is `known`. `gathering`: many batches of
//!   events in one. `ahead`: the file that makes them durable before it is committed. `unsettled`: what readers must know of them. `upkeep`: expiry and purges, by `ages`. `preview`: purges thought through.
//!   `room`: space to write in, and what is kept back for requests. `subscriptions`: topics that are taken in.
//! - `index`: which index rows an event has. `scan`: walking them. `plan`: the way to an answer. `query`: answering filters. `reading`: the rest.
//! - `traces`: what requests left in topics. `sharing`: what other nodes are told, and tell.
//! - `check`: whether all of it agrees.
//!
//! # Durable first, committed then
//!
//! A batch is decided on by `kukuri_domain`, one event after the other, and written in one LMDB transaction, which
//! ends with two syncs: one for the pages, one for the new root. LMDB pays per page it has to write, so large batches are
//! far cheaper per event than small ones. So several share a transaction: each is answered when it is in a file beside
//! the store, with one sync, and the transaction is committed a little later. After a crash the file tells the rest.
//!
//! # Reading
//!
//! Every index row carries kind, author and topic of its event, so that most filters are decided without a look at
//! the event itself. No filter holds a read transaction for longer than a step of a few thousand rows.

mod ages;
mod ahead;
mod archive;
mod batch;
mod check;
mod error;
mod files;
mod format;
mod gathering;
mod index;
mod ingest;
mod key;
mod known;
mod open;
mod pack;
mod plan;
mod preview;
mod query;
mod reading;
mod record;
mod room;
mod scan;
mod sharing;
mod store;
mod subscriptions;
mod tables;
mod thread;
mod traces;
mod unsettled;
mod upkeep;
mod writer;

pub use open::{LmdbOptions, Sync};
pub use store::LmdbStore;
