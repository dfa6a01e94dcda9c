//! The rules, from outside the crate. One program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

mod admission;
mod decision;
mod deletion_requests;
mod deletion_targets;
mod filter_matching;
mod filter_parsing;
mod limits;
mod malformed;
mod nostr_agrees;
mod origins;
mod sharing;
mod spelling;
mod topic_vectors;
mod topics;
