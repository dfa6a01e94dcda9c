//! The conformance suite of all indexes.
//!
//! # Layout
//!
//! - `index_history`: after random changes, rebuilds and reopens, searches find the same as a scan of all documents.
//! - `store_history`: behind a consumer, through crashes, replays and rebuilds, an index ends with the effective events.
//! - `ranking`: better hits come first.
//! - `relevance`: a hand-written corpus with queries and their expected hits.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test may stop where it is surprised"
)]

mod index_history;
mod ranking;
mod relevance;
mod store_history;

use kukuri_domain::{EventId, Timestamp, TopicId};

pub use index_history::{IndexHistory, index_histories, run_index_history};
pub use ranking::ranking;
pub use relevance::relevance;
pub use store_history::{StoreHistory, run_store_history, store_histories};

/// The current time in the tests.
pub const NOW: Timestamp = Timestamp(1_700_000_000);

fn id(number: u8) -> EventId {
    EventId::from_bytes([number; 32])
}

fn topic(number: u8) -> TopicId {
    TopicId::new_unchecked(&format!("kukuri:{}", format!("{number:02x}").repeat(32)))
}
