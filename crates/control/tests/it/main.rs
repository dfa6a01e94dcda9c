//! What the control plane promises, on both databases.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod actions;
mod admission;
mod idempotency;
mod jobs;
mod people;
mod personal_data;
mod policies;
#[path = "../../../store-postgres/tests/support/mod.rs"]
mod postgres;
mod quotas;
mod requests;
mod retention;
mod stories;
mod support;
mod tables;
mod topic_names;
