//! Feeds any bytes to the property of `properties/filter.rs`.

#![no_main]

#[path = "../properties/filter.rs"]
mod filter;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| filter::check(bytes));
