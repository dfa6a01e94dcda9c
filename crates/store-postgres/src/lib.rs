//! The event store on PostgreSQL.
//!
//! # Layout
//!
//! - `store`: implements the port of `kukuri_store`.
//! - `open`: sessions, migrations and the durability check; `kukuri_postgres` connects. `follow`: commits of other
//!   processes. `archive`: dump and load of a whole store.
//! - `writer`: state between transactions. `batch`: one write transaction (`facts`, `write`). `work`: its facts and
//!   changes in memory, the ledger of `kukuri_store`'s ingest procedure. `ingest`: a batch of events. `upkeep`: expiry
//!   and purges; `due`: candidate rows. `partitions`, `months`: tables by month; `drop_months`: dropping months past
//!   retention.
//! - `plan`: the SQL for a filter. `query`: answers to filters. `attempt`: sessions and budgets of queries. `state_lookup`:
//!   states of ids. `lookup`: other reads.
//!   `subscriptions`: the topics that this node carries. `sharing`: exchange with other nodes.
//! - `columns`, `records`: values as columns and rows. `check`: consistency check.
//!
//! # One batch, one transaction, one writer
//!
//! `kukuri_domain` decides on the events of a batch one after the other, from facts that are read for the whole batch
//! at once. The changes are written with one statement per table. Every such transaction first takes a lock that is
//! unique in the database, so outbox sequences become visible in order (O-5), with any number of processes.

mod archive;
mod attempt;
mod batch;
mod check;
mod columns;
mod drop_months;
mod due;
mod error;
mod follow;
mod ingest;
mod lookup;
mod months;
mod open;
mod partitions;
mod plan;
mod query;
mod records;
mod sharing;
mod state_lookup;
mod store;
mod subscriptions;
#[cfg(test)]
mod tests;
mod upkeep;
mod work;
mod writer;

pub use open::PostgresOptions;
pub use store::PostgresStore;
