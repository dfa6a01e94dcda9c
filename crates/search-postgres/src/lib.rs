//! The search index on PostgreSQL, for nodes that run in several processes on one database.
//!
//! # Layout
//!
//! - `index`: the port of `kukuri_search`, put together from the rest.
//! - `open`: sessions and migrations. `error`: failures in the port's words.
//! - `writing`: changes, and a copy in the place of another. `row`: a document as columns.
//! - `searching`: which documents have the words, and which of them is best.
//!
//! See the crate's README for what is promised and measured.

mod error;
mod index;
mod open;
mod row;
mod searching;
mod writing;

pub use index::PostgresIndex;
pub use open::PostgresIndexOptions;
