//! The event store on PostgreSQL.
//!
//! # Layout
//!
//! - `store`: the port of `kukuri_store`, put together from the rest.
//! - `open`: sessions, and what the server must promise; `kukuri_postgres` opens them. `schema`: migrations.
//!   `follow`: hearing of other processes. `archive`: everything, read piece by piece and loaded into another store.
//! - `writer`: what writing holds between transactions. `batch`: one write transaction (`facts`, `writing`). `work`: what it
//!   knows and has changed, in memory (`rows`, `loading`, `counting`). `ingest`: events into it. `upkeep`: expiry and purges; `due`: what has to go.
//!   `preview`: purges thought through. `partitions`, `months`: tables by month; `dropping`: months that are over;
//!   `leaving`: what is left of them.
//! - `plan`: the way to an answer, as SQL. `query`: answering filters. `recalling`: ids. `reading`: the rest.
//!   `subscriptions`: topics that are taken in. `sharing`: what other nodes are told, and tell.
//! - `records`, `codes`, `copy`: values as columns. `check`: whether all of it agrees.
//!
//! # One batch, one transaction, one writer
//!
//! A batch is decided on by `kukuri_domain`, one event after the other, from facts that were read for all of it at once,
//! and written with one statement per table. Every such transaction first takes a lock of which the database has one:
//! so outbox sequences become visible in their order (O-5), with any number of processes.

mod archive;
mod batch;
mod check;
mod codes;
mod copy;
mod dropping;
mod due;
mod error;
mod follow;
mod ingest;
mod leaving;
mod months;
mod open;
mod partitions;
mod plan;
mod preview;
mod query;
mod reading;
mod recalling;
mod records;
mod schema;
mod sharing;
mod store;
mod subscriptions;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]
mod tests;
mod upkeep;
mod work;
mod writer;

pub use open::PostgresOptions;
pub use store::PostgresStore;
