//! Answers as large as they may be, from a store that has much more.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    env, fs,
    process::{Command, Stdio},
};

use kukuri_domain::{Filter, Letter, Viewer};
use kukuri_store::{
    Query, Rest, Store,
    conformance::build::{NOW, TOPIC, admitted, note},
};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use support::{Database, block_on};

/// Where a child's store is. A process that has it is a child.
const PLACE: &str = "KUKURI_ANSWERS_PLACE";
const EVENTS: u64 = 900;
const CONTENT: usize = 60_000;

/// The most memory this process has had, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1_024
}

#[test]
fn an_answer_takes_the_memory_it_may_have_not_that_of_all_that_matches() {
    // W-1, W-5
    const TEST: &str = "an_answer_takes_the_memory_it_may_have_not_that_of_all_that_matches";
    if let Ok(place) = env::var(PLACE) {
        return block_on(ask(&place));
    }
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
        for number in 0..EVENTS / 100 {
            let text = |place| format!("{number} {place} {}", "long ".repeat(CONTENT / 5));
            let events = (0..100).map(|place| note(&text(place)).at(number).build());
            store.ingest(events.map(|event| admitted(&event)).collect(), NOW).await.unwrap();
        }
        // What this process held while it wrote would hide what an answer takes.
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", TEST, "--nocapture"]).env(PLACE, database.url()).stdin(Stdio::null());
        assert!(child.status().unwrap().success());
    });
}

async fn ask(place: &str) {
    let store = PostgresStore::connect(place, PostgresOptions::default()).await.unwrap();
    let in_topic = Filter::new().with_tag(Letter::T, [TOPIC]);
    for filters in [vec![in_topic.clone()], vec![in_topic, Filter::new().with_limit(500)]] {
        let query = |bytes| Query { filters: filters.clone(), viewer: Viewer::stranger(), now: NOW, bytes };
        // Whatever the first question brings about is not counted.
        let small = Query { filters: filters.iter().cloned().map(|filter| filter.with_limit(1)).collect(), ..query(1) };
        store.query(&small).await.unwrap();
        let before = peak();
        let answer = store.query(&query(10 * CONTENT)).await.unwrap();
        assert!((4..10).contains(&answer.events.len()), "{} events", answer.events.len());
        assert_ne!(answer.rest, Rest::None);
        let more = peak() - before;
        assert!(more < 100 * CONTENT, "{more} bytes for an answer of {}, of {} in all", 10 * CONTENT, 900 * CONTENT);
    }
}
