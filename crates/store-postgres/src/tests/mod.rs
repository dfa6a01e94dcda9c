//! Tests that use the internals of this crate.

mod cancelled_queries;
mod faults;
mod plans;
mod recall;
#[path = "../../tests/support/mod.rs"]
mod support;
