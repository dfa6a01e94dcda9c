//! Tests that look inside.

mod faults;
mod leaving;
mod plans;
mod recalling;
#[path = "../../tests/support/mod.rs"]
mod support;
