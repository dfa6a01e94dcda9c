#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| kukuri_domain::fuzzing::filter::check(bytes));
