//! The HTTP API on the model store. One program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

mod bootstrap;
mod description;
mod errors;
mod feed;
mod finding_topics;
mod followers;
mod idempotency;
mod members;
mod people;
mod personal_data;
mod search;
mod socket;
mod visibility;
