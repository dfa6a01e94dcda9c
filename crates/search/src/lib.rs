//! Search: the text of events that can be found, the port to an index, the consumer that fills it, and the finder that reads
//! every hit from the store before it is shown.
//!
//! # Layout
//!
//! - [`document`]: the searchable text of an event. [`analyzer`]: text to tokens; `folding`: case, width and accents.
//! - [`query`]: the words of a search. [`snippet`]: the piece of a text that matches. [`ranking`]: recency and title weight.
//! - [`index`]: the port. `kukuri-search-tantivy` and `kukuri-search-postgres` implement it.
//! - [`index_consumer`]: `index-v1`, which fills an index from the outbox; `fingerprint`: which store an index belongs to.
//! - [`index_service`]: `index-v1` as a service of the node; `verify`: compares an index with the store.
//! - [`finder`]: hits, read from the store, that a viewer may see; `unindexed`: events that the index has not reached.
//! - `conformance` (a feature, for tests): the suite that every index passes.
//! - `fuzzing` (a feature): what must hold for any text.

pub mod analyzer;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod document;
pub mod finder;
mod fingerprint;
mod folding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod index;
pub mod index_consumer;
pub mod index_service;
pub mod query;
pub mod ranking;
pub mod snippet;
mod unindexed;
mod verify;

pub use document::Text;
pub use finder::{FindError, Finder, Findings, Found, Searching};
pub use index::{
    Document, DocumentChange, Hit, IndexError, IndexPosition, IndexStats, Search, SearchIndex, SearchPermit,
};
pub use index_consumer::IndexSink;
pub use index_service::IndexService;
pub use query::{QueryError, SearchQuery};
pub use snippet::Snippet;
