#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| kukuri_api::fuzzing::request::check(bytes));
