//! Feeds any bytes to the property of `properties/event.rs`.

#![no_main]

#[path = "../properties/event.rs"]
mod event;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| event::check(bytes));
