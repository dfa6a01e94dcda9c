//! Concurrent writers in several processes, some frozen: consumers miss no row, and each key has one effective version.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant, SystemTime},
};

use kukuri_domain::{Filter, Kind, Millis, Viewer};
use kukuri_store::{
    Outcome, Query, Seq,
    conformance::build::{NOW, admitted, note, profile},
    port::*,
};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};
use kukuri_testing::long::scaled;
use kukuri_testing::test_name;

use crate::{
    patient,
    support::{Database, block_on},
};

/// Environment variable with the URL of a child's store. It is set only in child processes.
const PLACE: &str = "KUKURI_WRITERS_PLACE";
const NUMBER: &str = "KUKURI_WRITERS_NUMBER";
const PROCESSES: u64 = 4;
const BATCH: u64 = 5;

/// The number of batches per writer.
fn rounds() -> u64 {
    scaled(100).into()
}

fn child(test: &str, place: &str, number: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PLACE, place).env(NUMBER, number.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// A random duration of up to 6 ms.
fn a_moment() -> Duration {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    Duration::from_micros(u64::from(nanos / 100 % 6_000))
}

async fn open(url: &str, commit_delay: fn() -> Duration) -> PostgresStore {
    let options = PostgresOptions { readers: 2, commit_delay: Some(commit_delay), ..patient() };
    PostgresStore::connect(url, options).await.unwrap()
}

async fn write(store: &PostgresStore, writer: u64) {
    for round in 0..rounds() {
        let mut events: Vec<_> = (0..BATCH - 1)
            .map(|number| note(&format!("{writer} {round} {number}")).at(round).tag(["r", "link"]).build())
            .collect();
        // All writers replace the same key.
        events.push(profile(&format!("{writer} {round}")).at((round * 7 + writer) % 50).build());
        let batch = events.iter().map(admitted).collect();
        store.ingest(batch, Millis(NOW.0 + round)).await.unwrap();
        tokio::time::sleep(a_moment()).await;
    }
}

#[test]
fn outbox_reader_misses_no_row_with_eight_writers_in_four_processes() {
    // O-5, E-3
    let test = test_name!(outbox_reader_misses_no_row_with_eight_writers_in_four_processes);
    if let Ok(place) = env::var(PLACE) {
        let process: u64 = env::var(NUMBER).unwrap().parse().unwrap();
        return block_on(async {
            let (one, other) = (open(&place, a_moment).await, open(&place, a_moment).await);
            tokio::join!(write(&one, 2 * process), write(&other, 2 * process + 1));
        });
    }
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let mut children: Vec<Child> = (0..PROCESSES).map(|number| child(test, &database.url(), number)).collect();
        let (mut last, mut rows, mut looks) = (Seq::default(), Vec::new(), 0u64);
        loop {
            let are_done = children.iter_mut().all(|child| child.try_wait().unwrap().is_some());
            let more = store.outbox(last, 7).await.unwrap();
            for row in &more {
                assert_eq!(row.seq, last.next(), "a row became visible after one that follows it");
                last = row.seq;
            }
            looks += 1;
            if are_done && more.is_empty() {
                break;
            }
            rows.extend(more);
        }
        assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
        assert_eq!(last, store.stats().await.unwrap().head);
        assert!(looks > 100, "it has looked often enough to see something: {looks}");
        let notes = rows.iter().filter(|row| row.kind == Kind(1)).count() as u64;
        assert_eq!(notes, 2 * PROCESSES * rounds() * (BATCH - 1));
        let profiles = Query::of(Filter::new().with_kinds([Kind(0)]), Viewer::unauthenticated(), NOW);
        assert_eq!(store.query(&profiles).await.unwrap().events.len(), 1, "of all rivals one is left");
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
}

/// The line that a child prints when it holds the lock.
const HOLDING: &str = "holding";

/// The delay of a child's commits: that of its first event is a long one.
fn hold() -> Duration {
    static COMMITS: AtomicU32 = AtomicU32::new(0);
    // The first commit is that of opening the store.
    if COMMITS.fetch_add(1, Ordering::Relaxed) != 1 {
        return Duration::ZERO;
    }
    let mut stdout = std::io::stdout();
    stdout.write_all(format!("\n{HOLDING}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
    // Longer than the test needs to freeze the process, and than the server's timeout.
    Duration::from_secs(10)
}

fn no_delay() -> Duration {
    Duration::ZERO
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_writer_frozen_before_its_commit_delays_others_at_most_five_seconds() {
    // O-5
    let test = test_name!(a_writer_frozen_before_its_commit_delays_others_at_most_five_seconds);
    if let Ok(place) = env::var(PLACE) {
        let number = env::var(NUMBER).unwrap();
        let options = PostgresOptions {
            commit_delay: Some(hold),
            writer_idle_timeout: PostgresOptions::default().writer_idle_timeout,
            ..patient()
        };
        return block_on(async {
            let store = PostgresStore::connect(&place, options).await.unwrap();
            let outcome = store.ingest(vec![admitted(&note(&format!("frozen {number}")).build())], NOW).await;
            assert!(outcome.is_err(), "its session was ended: {outcome:?}");
            // The store continues with a new session.
            let thawed = note(&format!("thawed {number}")).build();
            let outcomes = store.ingest(vec![admitted(&thawed)], NOW).await.unwrap().outcomes;
            assert_eq!(outcomes, [Outcome::Stored]);
        });
    }
    block_on(async {
        let database = Database::new().await;
        let store = open(&database.url(), no_delay).await;
        // It has waited at all, and not for longer than it may. A busy machine may hold up this process or the server for
        // longer: the next attempt shows whether it was that.
        let allowed = Duration::from_millis(100)..Duration::from_secs(5);
        let mut waits: Vec<Duration> = Vec::new();
        while !waits.last().is_some_and(|waited| allowed.contains(waited)) {
            assert!(waits.len() < 5, "{waits:?}");
            let number = waits.len() as u64;
            let mut child = child(test, &database.url(), number);
            let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(said.by_ref().map_while(Result::ok).any(|line| line == HOLDING));
            signal(&child, "STOP");

            let begun = Instant::now();
            let waiting = note(&format!("waiting {number}")).build();
            let outcomes = store.ingest(vec![admitted(&waiting)], NOW).await.unwrap().outcomes;
            waits.push(begun.elapsed());
            assert_eq!(outcomes, [Outcome::Stored]);

            signal(&child, "CONT");
            let rest: Vec<String> = said.map_while(Result::ok).collect();
            assert!(child.wait().unwrap().success(), "{rest:#?}");
        }
        let mut seen: Vec<_> = store.outbox(Seq::default(), 100).await.unwrap().iter().map(|row| row.seq.0).collect();
        seen.sort_unstable();
        let expected: Vec<u64> = (1..=2 * waits.len() as u64).collect();
        assert_eq!(seen, expected, "what the frozen one was about to commit is not there");
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
}
