//! The embedded search index: tantivy, in a directory of the node.
//!
//! # Layout
//!
//! - `index`: the port of `kukuri_search`; which generation is searched and which is being built.
//! - `generation`: one index of tantivy: its files, its writer, its reader.
//! - `schema`: documents and searches in tantivy's terms.

mod generation;
mod index;
mod schema;

pub use index::TantivyIndex;
