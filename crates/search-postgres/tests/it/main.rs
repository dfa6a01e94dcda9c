//! The index on Postgres. One program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod own_runtime;
#[path = "../../../store-postgres/tests/support/mod.rs"]
mod support;

mod concurrent_writers;
mod suite;
