//! Tests that use the internals of this crate.

mod cancelled_queries;
mod faults;
mod plans;
mod state_lookup;
#[path = "../../tests/support/mod.rs"]
mod support;
