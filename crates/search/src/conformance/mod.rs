//! The suite that every index passes.
//!
//! # Layout
//!
//! - `life`: it finds what a look at every document finds, whatever was changed before.
//! - `rank`: what is better stands first.
//! - `follow`: behind a consumer of a store that lives, it ends with what is effective, whatever happened meanwhile.
//! - `relevance`: what people look for, and find.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test may stop where it is surprised"
)]

mod follow;
mod life;
mod rank;
mod relevance;

use kukuri_domain::{EventId, Timestamp, TopicId};

pub use follow::{Following, follow, followings};
pub use life::{Life, live, lives};
pub use rank::rank;
pub use relevance::relevance;

/// The time of the tests.
pub const NOW: Timestamp = Timestamp(1_700_000_000);

/// An id with this number.
fn id(number: u8) -> EventId {
    EventId::from_bytes([number; 32])
}

/// A topic with this number.
fn topic(number: u8) -> TopicId {
    TopicId::trusted(&format!("kukuri:{}", format!("{number:02x}").repeat(32)))
}

/// How many cases of a property are tried: so many, unless `KUKURI_TEST_PROPERTY_CASES` says otherwise. A case is a whole
/// life on a disk, so one in a hundred of what that asks for.
pub fn cases(usual: u32) -> u32 {
    kukuri_store::conformance::case_count().map_or(usual, |all| (all / 100).max(1))
}
