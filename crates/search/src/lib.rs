//! Search: what of an event can be found, by what, and what of it is shown.
//!
//! # Layout
//!
//! - [`analyzer`]: text to tokens; `folding`: what is compared as the same.
//! - [`index`]: the port to an index; `ranking`: what counts beside words. [`tantivy`]: the embedded one.
//! - [`following`]: the consumer that keeps an index up to date; `mark`: whose index it is. [`finder`]: hits that may be shown.
//! - `conformance` (a feature, for tests): the suite that every index passes.
//! - [`document`]: the text of an event. [`query`]: what is looked for. [`snippet`]: why it was found.

pub mod analyzer;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod document;
pub mod finder;
mod folding;
pub mod following;
pub mod index;
mod mark;
pub mod query;
pub mod ranking;
pub mod snippet;
pub mod tantivy;

pub use self::tantivy::TantivyIndex;
pub use document::Text;
pub use finder::{FindError, Finder, Findings, Found};
pub use following::IndexSink;
pub use index::{Change, Document, Hit, IndexError, IndexStats, Place, Search, SearchIndex};
pub use query::{QueryError, SearchQuery};
pub use snippet::Snippet;
