//! A wrong system clock, by libfaketime: while the node runs and when it starts, nothing is lost (P-5).

use std::{fs, path::PathBuf};

use crate::support::{Node, TOPIC, events::topic};
use kukuri_testing::{Client, eventually};
use nostr_sdk::{Event, EventBuilder, Keys, Timestamp};
use rustix::process::Signal;
use serde_json::json;

/// A node whose clock the test sets.
struct Clocked {
    node: Node,
    clock: PathBuf,
}

impl Clocked {
    /// Starts a node with this clock, in libfaketime's words: `+60d`, or `@1970-01-02 00:00:00`.
    fn start(clock: &str) -> Self {
        let node = Node::place_for("required", "");
        let mut clocked = Self { clock: node.place("clock"), node };
        clocked.set(clock);
        let library = format!("LD_PRELOAD={}", library().display());
        let file = format!("FAKETIME_TIMESTAMP_FILE={}", clocked.clock.display());
        // Timers go by the monotonic clock, which stays as it is.
        let monotonic = ["DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
        clocked.node.start_under(&["env", &library, &file, "FAKETIME_NO_CACHE=1", monotonic[0], monotonic[1]]);
        clocked.node.start_again();
        clocked
    }

    fn set(&self, clock: &str) {
        // Renamed, so that the node never reads half of it.
        let next = self.clock.with_extension("next");
        fs::write(&next, format!("{clock}\n")).unwrap();
        fs::rename(next, &self.clock).unwrap();
    }

    fn is_held(&self) -> bool {
        self.node.get("/healthz").1["clock_held"] == true
    }

    async fn count(&self) -> usize {
        self.node.client().await.request("all", &[json!({ "#t": [TOPIC] })]).await.len()
    }
}

fn library() -> PathBuf {
    let places = fs::read_dir("/usr/lib").unwrap().flatten();
    let mut places = places.map(|place| place.path().join("faketime/libfaketimeMT.so.1"));
    places.find(|library| library.exists()).expect("the package faketime, which `cargo xtask test` installs")
}

fn note_at(keys: &Keys, content: &str, created_at: u64) -> Event {
    let note = EventBuilder::text_note(content).tag(topic()).custom_created_at(Timestamp::from_secs(created_at));
    note.sign_with_keys(keys).unwrap()
}

async fn publish(client: &mut Client, event: &Event) {
    let (is_accepted, reason) = client.publish(event).await;
    assert!(is_accepted, "{reason}");
}

const LONG_AGO: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_ahead_purges_nothing_until_the_operator_confirms_it() {
    // P-5
    let mut clocked = Clocked::start("+0");
    let keys = Keys::generate();
    let mut client = clocked.node.client().await;
    for number in 0..5 {
        publish(&mut client, &note_at(&keys, &format!("note {number}"), LONG_AGO)).await;
    }
    assert!(!clocked.is_held());

    clocked.set("+60d");
    eventually("the jump is noticed", async || clocked.is_held()).await;
    publish(&mut client, &note_at(&keys, "while the clock is held", LONG_AGO)).await;
    for restart in ["killed", "killed again", "stopped"] {
        match restart {
            "stopped" => drop(clocked.node.stop(Signal::TERM).await),
            _ => clocked.node.kill(),
        }
        clocked.node.start_again();
        assert!(clocked.is_held(), "{restart}");
        let purge = clocked.node.run(&["retention", "run"]).ok();
        assert!(purge.contains("clock confirm"), "{purge}");
        assert_eq!(clocked.count().await, 6, "{restart}");
    }
    assert!(clocked.node.log().contains("clock confirm"), "the log names the remedy");
    let status = clocked.node.run(&["clock", "status"]).ok();
    assert!(status.contains("The clock is held") && status.contains("72 more hours"), "{status}");

    let confirmed = clocked.node.run(&["clock", "confirm"]).ok();
    assert!(confirmed.contains("The clock is trusted"), "{confirmed}");
    eventually("health shows it", async || !clocked.is_held()).await;
    let purge = clocked.node.run(&["retention", "run"]).ok();
    assert!(purge.lines().any(|line| line.contains("past their retention") && line.contains(" 6")), "{purge}");
    assert_eq!(clocked.count().await, 0);
    assert!(clocked.node.log().contains("trusted again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_seen_at_a_start_is_held_and_ends_when_the_clock_is_corrected() {
    // P-5
    let mut clocked = Clocked::start("+0");
    let mut client = clocked.node.client().await;
    publish(&mut client, &note_at(&Keys::generate(), "a note", LONG_AGO)).await;
    clocked.node.kill();
    clocked.set("+60d");
    clocked.node.start_again();
    assert!(clocked.is_held(), "when it answers the first request");
    clocked.node.stop(Signal::TERM).await;
    clocked.set("+1h");
    clocked.node.start_again();
    assert!(!clocked.is_held());
    clocked.node.run(&["retention", "run"]).ok();
    assert_eq!(clocked.count().await, 1);

    // Without a running node the command works on the store itself, by the clock of the command.
    clocked.node.stop(Signal::TERM).await;
    let status = clocked.node.run(&["clock", "status"]).ok();
    assert!(status.contains("The clock is trusted"), "{status}");
    assert!(clocked.node.run(&["clock", "confirm"]).ok().contains("The clock is trusted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_starts_serves_and_purges_nothing() {
    // P-5
    let mut clocked = Clocked::start("+0");
    let keys = Keys::generate();
    let mut client = clocked.node.client().await;
    publish(&mut client, &note_at(&keys, "by the right clock", LONG_AGO)).await;
    for (count, clock) in [(2, "-60d"), (3, "@1970-01-02 00:00:00")] {
        clocked.set(clock);
        publish(&mut client, &note_at(&keys, clock, LONG_AGO)).await;
        clocked.node.run(&["retention", "run"]).ok();
        assert_eq!(clocked.count().await, count, "{clock}, while it runs");
        clocked.node.kill();
        clocked.node.start_again();
        client = clocked.node.client().await;
        clocked.node.run(&["retention", "run"]).ok();
        assert!(!clocked.is_held(), "{clock}");
        assert_eq!(clocked.count().await, count, "{clock}, after a start");
    }
    clocked.set("+0");
    publish(&mut client, &note_at(&keys, "by the right clock again", LONG_AGO)).await;
    clocked.node.run(&["retention", "run"]).ok();
    assert!(!clocked.is_held(), "the right time is no jump");
    assert_eq!(clocked.count().await, 4);
    let checked = clocked.node.run(&["check"]).ok();
    assert!(checked.lines().all(|line| line.ends_with("all is well")), "{checked}");
}
