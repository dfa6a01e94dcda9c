//! The search index on PostgreSQL, for nodes that run in several processes on one database.
//!
//! # Layout
//!
//! - `index`: the port of `kukuri_search`.
//! - `open`: connection pools and migrations. `error`: failures, converted to the port's.
//! - `write`: changes to a copy, and the switch to a rebuilt one. `words`: the words of a document as columns.
//! - `search`: candidates by SQL, ranked here. `permit`: held until the server has ended the statement.
//!
//! See the crate's README for guarantees and figures.

mod error;
mod index;
mod open;
mod permit;
mod search;
mod words;
mod write;

pub use index::PostgresIndex;
pub use open::PostgresIndexOptions;
