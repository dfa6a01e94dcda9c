//! Tests that look inside.

mod faults;
mod leaving;
mod plans;
#[path = "../../tests/support/mod.rs"]
mod support;
