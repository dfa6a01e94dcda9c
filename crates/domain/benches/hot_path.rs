//! What every event goes through, measured against the `nostr` crate: the reason this crate has types of its own.
//!
//! Run with `cargo bench -p kukuri-domain --bench hot_path`.

#![allow(clippy::print_stdout, reason = "a measurement is read on the terminal")]
#![allow(clippy::unwrap_used, reason = "what is measured is well-formed")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use kukuri_domain::{Event, Filter, Kind, Letter, PublicKey, Timestamp, Verified};
use nostr::filter::MatchEventOptions;
use support::{ALICE, BOB, CAROL, NOW_SECONDS, TOPIC, note};

/// A round takes about this long: short, so that some pass undisturbed by other work. The fastest counts.
const ROUND: Duration = Duration::from_millis(4);
const ROUNDS: usize = 250;

fn main() {
    let theirs = reply();
    let ours = support::ours(&theirs);
    let json = ours.to_json();
    println!("an event of {} bytes with {} tags; ns per operation\n", json.len(), ours.tags.len());
    println!("{:<16} {:>9} {:>9} {:>7}", "", "ours", "nostr", "ratio");

    compare("parse", || Event::from_json(&json).is_ok(), || nostr::event::Event::from_json(&json).is_ok());
    compare(
        "parse + verify",
        || Event::from_json(&json).and_then(Verified::check).is_ok(),
        || nostr::event::Event::from_json(&json).and_then(|event| event.verify()).is_ok(),
    );
    compare("id", || ours.true_id() == ours.id, || theirs.verify_id());
    compare("write", || !ours.to_json().is_empty(), || !theirs.as_json().is_empty());

    let (our_filter, their_filter) = timeline();
    compare(
        "match a filter",
        || our_filter.matches(&ours, &[]),
        || their_filter.match_event(&theirs, MatchEventOptions::new()),
    );
}

/// A reply in a topic, as clients write them.
fn reply() -> nostr::event::Event {
    let (root, parent) = (note().signed().id.to_string(), note().by(BOB).signed().id.to_string());
    note()
        .tag(["e", &root, "wss://relay.example.com", "root"])
        .tag(["e", &parent, "", "reply"])
        .tag(["p", &BOB.hex()])
        .tag(["p", &CAROL.hex()])
        .tag(["t", "bitcoin"])
        .tag(["t", "東京"])
        .tag(["client", "kukuri"])
        .content("I read it twice.\nThe second half is better than the first. 👍")
        .nostr()
}

/// A timeline: two kinds, fifty authors, a topic, the last days.
fn timeline() -> (Filter, nostr::filter::Filter) {
    let authors: Vec<_> = (0..49).map(|byte| [byte; 32]).chain([*ALICE.key().as_bytes()]).collect();
    let ours = Filter::new()
        .with_kinds([Kind(1), Kind(6)])
        .with_authors(authors.iter().copied().map(PublicKey::from_bytes))
        .with_tag(Letter::T, [TOPIC])
        .with_since(Timestamp(NOW_SECONDS - 1_000));
    let theirs = nostr::filter::Filter::new()
        .kinds([1.into(), 6.into()])
        .authors(authors.iter().map(|key| nostr::key::PublicKey::from_slice(key).unwrap()))
        .custom_tag(nostr::filter::SingleLetterTag::LOWERCASE_T, TOPIC)
        .since((NOW_SECONDS - 1_000).into());
    (ours, theirs)
}

/// Prints what both take. Each must succeed: a failure would be fast.
fn compare(what: &str, ours: impl Fn() -> bool, theirs: impl Fn() -> bool) {
    let (our_times, their_times) = (calibrate(&ours), calibrate(&theirs));
    let mut fastest = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        fastest.0 = fastest.0.min(nanoseconds(&ours, our_times));
        fastest.1 = fastest.1.min(nanoseconds(&theirs, their_times));
    }
    let (ours, theirs) = fastest;
    println!("{what:<16} {ours:>9.0} {theirs:>9.0} {:>7.2}", ours / theirs);
}

/// What the operation takes, over so many times.
fn nanoseconds(operation: impl Fn() -> bool, times: u32) -> f64 {
    let begun = Instant::now();
    for _ in 0..times {
        assert!(black_box(operation()));
    }
    begun.elapsed().as_nanos() as f64 / f64::from(times)
}

/// How often the operation fits into a round.
fn calibrate(operation: impl Fn() -> bool) -> u32 {
    let (begun, mut times) = (Instant::now(), 0);
    while begun.elapsed() < ROUND {
        assert!(black_box(operation()));
        times += 1;
    }
    times
}
