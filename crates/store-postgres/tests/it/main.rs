//! The store on Postgres. One test program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod archive;
mod conformance;
mod connecting;
mod durability;
mod months;
mod opening;
mod restart;
mod statements;
mod writers;
