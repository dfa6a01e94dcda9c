#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| kukuri_relay::fuzzing::client_message::check(bytes));
