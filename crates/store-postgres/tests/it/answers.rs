//! Memory of an answer at its size limit, from a much larger store.

use std::{
    env, fs,
    process::{Command, Stdio},
};

use kukuri_domain::{Filter, Letter, Viewer};
use kukuri_store::{
    Completeness, Query,
    conformance::build::{NOW, TOPIC, admitted, note},
    port::*,
};
use kukuri_store_postgres::PostgresStore;
use kukuri_testing::test_name;

use crate::{
    patient,
    support::{Database, block_on},
};

/// Environment variable with the URL of a child's store. It is set only in child processes.
const PLACE: &str = "KUKURI_ANSWERS_PLACE";
const EVENTS: u64 = 900;
const CONTENT: usize = 60_000;

/// Peak memory of this process, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1_024
}

#[test]
fn memory_of_an_answer_is_bounded_by_its_bytes() {
    // W-1, W-5
    if let Ok(place) = env::var(PLACE) {
        return block_on(ask(&place));
    }
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        for number in 0..EVENTS / 100 {
            let text = |place| format!("{number} {place} {}", "long ".repeat(CONTENT / 5));
            let events = (0..100).map(|place| note(&text(place)).at(number).build());
            store.ingest(events.map(|event| admitted(&event)).collect(), NOW).await.unwrap();
        }
        // In a child process: the memory this process used for writing would hide the memory of an answer.
        let mut child = Command::new(env::current_exe().unwrap());
        child
            .args(["--exact", test_name!(memory_of_an_answer_is_bounded_by_its_bytes), "--nocapture"])
            .env(PLACE, database.url())
            .stdin(Stdio::null());
        assert!(child.status().unwrap().success());
    });
}

async fn ask(place: &str) {
    let store = PostgresStore::connect(place, patient()).await.unwrap();
    let in_topic = Filter::new().with_tag(Letter::T, [TOPIC]);
    for filters in [vec![in_topic.clone()], vec![in_topic, Filter::new().with_limit(500)]] {
        let query = |bytes| Query {
            filters: filters.clone(),
            bytes,
            ..Query::of(Filter::new(), Viewer::unauthenticated(), NOW)
        };
        // The first query also allocates memory that later queries reuse; it is not measured.
        let small = Query { filters: filters.iter().cloned().map(|filter| filter.with_limit(1)).collect(), ..query(1) };
        store.query(&small).await.unwrap();
        let before = peak();
        let answer = store.query(&query(10 * CONTENT)).await.unwrap();
        assert!((4..10).contains(&answer.events.len()), "{} events", answer.events.len());
        assert_ne!(answer.rest, Completeness::Complete);
        let more = peak() - before;
        assert!(more < 100 * CONTENT, "{more} bytes for an answer of {}, of {} in all", 10 * CONTENT, 900 * CONTENT);
    }
}
