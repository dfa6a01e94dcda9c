//! The embedded search index: tantivy, in a directory of the node.
//!
//! # Layout
//!
//! - `index`: the port of `kukuri_search`; which generation is searched and which is being built.
//! - `generation`: one index of tantivy: its files, its writer, its reader.
//! - `schema`: documents and searches in tantivy's terms. `tokens`: our analyzer as its tokenizer.

mod generation;
mod index;
mod schema;
mod tokens;

pub use index::TantivyIndex;
