//! Operations of the hot path, for callgrind to count their instructions. `cargo xtask counts` is the way to run them.
//!
//! # Layout
//!
//! - `samples`: made-up events, the same in every run.
//! - `rules`: what `kukuri_domain` does with an event. `talking`: messages, live subscriptions and frames. `storing`: the
//!   embedded store.
//! - `examples/counts.rs`: the program. `kept.txt`: what they cost. `profile.toml`: how they are built.
//!
//! Nothing here asks for the time or for random numbers. Signatures are a library's business, and are not counted.

mod rules;
mod samples;
mod storing;
mod talking;

use std::{hint::black_box, path::Path};

use anyhow::{Context, ensure};

pub use storing::fill;

/// Something to be counted.
pub struct Operation {
    /// What it is called.
    pub name: &'static str,
    /// Does it, with the store that [`fill`] made in this directory. Returns how many times.
    pub run: fn(&Path) -> anyhow::Result<u32>,
}

/// What is counted, in the order in which a node does it.
pub const OPERATIONS: [Operation; 17] = [
    Operation { name: "parse-event", run: |_| talking::parse_event() },
    Operation { name: "parse-request", run: |_| talking::parse_request() },
    Operation { name: "screen", run: |_| rules::screen() },
    Operation { name: "hash-id", run: |_| rules::hash_id() },
    Operation { name: "decide-regular", run: |_| rules::decide_regular() },
    Operation { name: "decide-version", run: |_| rules::decide_version() },
    Operation { name: "decide-deletion", run: |_| rules::decide_deletion() },
    Operation { name: "match-filter", run: |_| rules::match_filter() },
    Operation { name: "live-to-none-of-200", run: |_| talking::publish(0, 200, 50) },
    Operation { name: "live-to-200", run: |_| talking::publish(200, 0, 1) },
    Operation { name: "live-to-200-of-10200", run: |_| talking::publish(200, 10_000, 1) },
    Operation { name: "encode-ok", run: |_| talking::encode_ok() },
    Operation { name: "encode-live", run: |_| talking::encode_live() },
    Operation { name: "encode-answer-of-50", run: |_| talking::encode_answer() },
    Operation { name: "store-event", run: storing::ingest },
    Operation { name: "query-newest-50", run: storing::newest },
    Operation { name: "query-50-ids", run: storing::by_ids },
];

/// Callgrind counts while this is on a thread's stack: the name is its mark, so it has to stay a function.
#[inline(never)]
fn counted(operation: &mut dyn FnMut()) {
    operation();
}

/// Counts an operation on each of these. It must succeed: a failure would be cheap. The first is not counted, so that what
/// is made at first use is there.
fn count_each<T>(inputs: Vec<T>, mut operation: impl FnMut(T) -> bool) -> anyhow::Result<u32> {
    let mut inputs = inputs.into_iter();
    let first = inputs.next().context("something to do")?;
    ensure!(black_box(operation(black_box(first))), "an operation that is to be counted failed");
    let (mut times, mut succeeded) = (0, 0);
    counted(&mut || {
        for input in inputs.by_ref() {
            times += 1;
            succeeded += u32::from(black_box(operation(black_box(input))));
        }
    });
    ensure!(times == succeeded, "{} of {times} operations failed", times - succeeded);
    Ok(times)
}

/// Counts an operation that needs nothing of its own.
fn count(times: usize, mut operation: impl FnMut() -> bool) -> anyhow::Result<u32> {
    count_each(vec![(); times + 1], |()| operation())
}
