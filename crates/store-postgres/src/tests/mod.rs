//! Tests that look inside.

mod faults;
mod plans;
#[path = "../../tests/support/mod.rs"]
mod support;
