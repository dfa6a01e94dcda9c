//! Instructions of the hot path, counted by callgrind. `cargo xtask counts` is the way to run this.
//!
//! Instructions are the same on a busy machine, so that a change that makes an operation dearer is seen at once. They say
//! nothing of caches, system calls and disks: `cargo xtask bench` measures those.
//!
//! The counts in this file depend on the compiler (rust-toolchain.toml), on Cargo.lock, on the C library (glibc 2.36) and on
//! the processor that valgrind shows to the program: the same on all that have AVX2. When one of these changes, or an
//! operation is meant to cost more, replace them by those that the benchmark prints, divided by the repetitions.
//!
//! - [`samples`]: events, the same in every run.
//! - [`rules`]: `kukuri_domain`. [`messages`]: parsing, live subscriptions and frames. [`storing`]: the embedded store.
//!
//! Nothing here asks for the time or for random numbers. Signatures are a library's business, and are not counted.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark may stop where it is surprised; gungraun's macros")]

mod messages;
mod rules;
mod samples;
mod storing;

use std::hint::black_box;

use gungraun::{
    Callgrind, EntryPoint, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

/// Repetitions of most operations.
const TIMES: u32 = 100;

/// An operation may cost this much more than its count below.
const MAX_INCREASE_PERCENT: u64 = 5;

/// The C library chooses by the processor how it copies and compares. Here it takes the instructions of every x86-64 processor; and
/// not `rep movsb`, of which callgrind counts every byte.
const PLAIN_LIBC: &str = "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2,-ERMS,-FSRM,-SSSE3,-SSE4_2";

/// An operation that cost `each` instructions, repeated `times` times.
fn kept(times: u32, each: u64) -> LibraryBenchmarkConfig {
    // Work that a store hands to its thread counts too.
    let mut callgrind = Callgrind::with_args(["--cache-sim=no", "--toggle-collect=*::thread_start*"]);
    callgrind.entry_point(EntryPoint::Custom("*::counted".to_owned()));
    let limit = u64::from(times) * each * (100 + MAX_INCREASE_PERCENT) / 100;
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind.hard_limits([(EventKind::Ir, limit)])).env("GLIBC_TUNABLES", PLAIN_LIBC);
    config
}

#[library_benchmark]
#[bench::parse_event(args = (messages::parse_event), config = kept(TIMES, 19_420))]
#[bench::parse_request(args = (messages::parse_request), config = kept(TIMES, 25_334))]
#[bench::screen(args = (rules::screen), config = kept(TIMES, 4_278))]
#[bench::hash_id(args = (rules::hash_id), config = kept(TIMES, 36_139))]
#[bench::decide_regular(args = (rules::decide_regular), config = kept(TIMES, 959))]
#[bench::decide_version(args = (rules::decide_version), config = kept(TIMES, 983))]
#[bench::decide_deletion(args = (rules::decide_deletion), config = kept(TIMES, 49_273))]
#[bench::match_filter(args = (rules::match_filter), config = kept(TIMES, 1_302))]
#[bench::live_to_none_of_200(args = (|| messages::publish(0, 200, 50)), config = kept(1_000, 4_995))]
#[bench::live_to_200(args = (|| messages::publish(200, 0, 1)), config = kept(20, 85_616))]
#[bench::live_to_200_of_10200(args = (|| messages::publish(200, 10_000, 1)), config = kept(20, 85_589))]
#[bench::encode_ok(args = (messages::encode_ok), config = kept(TIMES, 2_538))]
#[bench::encode_live(args = (messages::encode_live), config = kept(TIMES, 460))]
#[bench::encode_answer_of_50(args = (messages::encode_answer), config = kept(TIMES, 25_551))]
#[bench::store_event(args = (storing::ingest), config = kept(512, 55_783))]
#[bench::query_newest_50(args = (storing::newest), config = kept(20, 263_542))]
#[bench::query_50_ids(args = (storing::by_ids), config = kept(20, 408_667))]
fn operation(run: fn()) {
    run();
}

library_benchmark_group!(name = operations, setup = storing::fill(), benchmarks = [operation]);
main!(library_benchmark_groups = operations);

/// Callgrind counts while this function is on a thread's stack.
#[inline(never)]
fn counted(operation: &mut dyn FnMut()) {
    operation();
}

/// Counts an operation on each of these. It must succeed: a failure would be cheap. The first is not counted, so that
/// everything that is made at first use is there.
fn count_each<T>(inputs: Vec<T>, mut operation: impl FnMut(T) -> bool) {
    let mut inputs = inputs.into_iter();
    assert!(black_box(operation(black_box(inputs.next().unwrap()))));
    let mut failed = 0;
    counted(&mut || {
        for input in inputs.by_ref() {
            failed += u32::from(!black_box(operation(black_box(input))));
        }
    });
    assert_eq!(failed, 0, "operations that failed");
}

/// Counts an operation that needs no input of its own.
fn count(times: u32, mut operation: impl FnMut() -> bool) {
    count_each(vec![(); times as usize + 1], |()| operation());
}
