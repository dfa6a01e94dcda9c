//! Costly queries: they pass a gate, and run on a thread of their own (Y-1, Y-2, Y-4).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
    time::Instant,
};

use async_trait::async_trait;
use kukuri_domain::{Event, Filter, Kind, Letter, Timestamp, Viewer};
use kukuri_store::{
    Budget, Completeness, Query, ReadGate, ReadPermit, ReadStage, Result, StoreError,
    conformance::build::{ALICE, NOW, OTHER_TOPIC, TOPIC, admitted, at, bare, note},
    port::*,
};
use kukuri_store_lmdb::LmdbStore;
use support::{block_on, quick};

const EVENTS: u64 = 6_000;

/// Admits everything, and notes on which threads permits are given back.
#[derive(Default)]
struct Gate {
    stages: Mutex<Vec<ReadStage>>,
    returned: Arc<Mutex<Vec<ThreadId>>>,
}

struct Permit(Arc<Mutex<Vec<ThreadId>>>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

#[async_trait]
impl ReadGate for Gate {
    async fn enter(&self, stage: ReadStage, _: usize, _: Option<Instant>) -> Option<ReadPermit> {
        self.stages.lock().unwrap().push(stage);
        Some(Box::new(Permit(Arc::clone(&self.returned))))
    }
}

fn store_with_events() -> (tempfile::TempDir, LmdbStore) {
    store_with((0..EVENTS).map(|n| note(&n.to_string()).at(n % 900).build()))
}

fn store_with(events: impl IntoIterator<Item = Event>) -> (tempfile::TempDir, LmdbStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    let events: Vec<_> = events.into_iter().map(|event| admitted(&event)).collect();
    block_on(async {
        for batch in events.chunks(2_000) {
            store.ingest(batch.to_vec(), NOW).await.unwrap();
        }
    });
    (dir, store)
}

fn query_of(filters: Vec<Filter>, budget: Budget) -> Query {
    Query { filters, budget, ..Query::of(Filter::new(), Viewer::unauthenticated(), NOW) }
}

/// The number of events that answer a query with this budget.
fn count_found(store: &LmdbStore, filters: Vec<Filter>, budget: Budget) -> Result<usize> {
    block_on(store.query(&query_of(filters, budget))).map(|answer| answer.events.len())
}

/// Whether a query of these filters waits for a permit; and the number of events that answer it.
fn is_costly(store: &LmdbStore, filters: Vec<Filter>) -> (bool, usize) {
    let gate = Arc::new(Gate::default());
    let budget = Budget { gate: Some(Arc::clone(&gate) as _), ..Budget::default() };
    let found = count_found(store, filters, budget).unwrap();
    let stages = gate.stages.lock().unwrap();
    (*stages == [ReadStage::Costly], found)
}

fn here() -> Filter {
    Filter::new().with_tag(Letter::T, [TOPIC])
}

#[test]
fn only_a_costly_query_waits_for_a_permit_and_it_runs_on_a_thread_of_its_own() {
    let (_dir, store) = store_with_events();
    block_on(async {
        let gate = Arc::new(Gate::default());
        let query = |filter| Query {
            budget: Budget { gate: Some(Arc::clone(&gate) as _), ..Budget::default() },
            ..Query::of(filter, Viewer::unauthenticated(), NOW)
        };
        // As most REQs are: the newest of a topic, up to the default limit.
        assert_eq!(store.query(&query(here().with_limit(500))).await.unwrap().events.len(), 500);
        let window = here().with_since(at(10)).with_until(at(20));
        assert_eq!(store.count(&query(window), None).await.unwrap().events, 77);
        assert_eq!(*gate.stages.lock().unwrap(), [], "no permit for a few rows");

        assert_eq!(store.count(&query(here()), None).await.unwrap().events, EVENTS);
        assert_eq!(store.ids(&query(here()), 10_000).await.unwrap().unwrap().len() as u64, EVENTS);
        let unlikely = here().with_tag(Letter::from_name("x").unwrap(), ["none"]);
        assert_eq!(store.query(&query(unlikely)).await.unwrap().events.len(), 0, "a tag that nothing has is cheap");
        assert_eq!(*gate.stages.lock().unwrap(), [ReadStage::Costly; 2]);
        let returned = gate.returned.lock().unwrap();
        assert_eq!(returned.len(), 2, "permits are given back");
        assert!(returned.iter().all(|thread| *thread != thread::current().id()), "not on the runtime's thread");
    });
}

#[test]
fn a_spent_budget_leaves_the_newest_of_every_filter() {
    // Y-2, W-1
    let (_dir, store) = store_with_events();
    block_on(async {
        let spent = |filters, rows| Query {
            filters,
            budget: Budget { rows, ..Budget::default() },
            ..Query::of(Filter::new(), Viewer::unauthenticated(), NOW)
        };
        let answer = store.query(&spent(vec![here()], 3_000)).await.unwrap();
        assert_eq!(answer.rest, Completeness::BudgetSpent);
        assert!((2_900..3_000).contains(&answer.events.len()), "{}", answer.events.len());
        // A share for each: a filter does not use up what others need.
        let answer = store.query(&spent(vec![here(); 3], 3_000)).await.unwrap();
        assert!((900..1_000).contains(&answer.events.len()), "{}", answer.events.len());
        // One filter has found old events, the other is far from them: nothing behind that place is sent.
        let old = here().with_until(at(100)).with_limit(200);
        let answer = store.query(&spent(vec![old, here()], 2_000)).await.unwrap();
        let last = answer.events.last().unwrap().created_at;
        assert!((1_500..1_600).contains(&answer.events.len()), "{}", answer.events.len());
        assert!(last > at(600), "{last:?}");

        let costly = spent(vec![here()], 3_000);
        assert!(matches!(store.count(&costly, None).await, Err(StoreError::TooCostly)));
        assert!(matches!(store.ids(&costly, 10_000).await, Err(StoreError::TooCostly)));
        let elsewhere = Filter::new().with_tag(Letter::T, [OTHER_TOPIC]);
        assert_eq!(store.count(&spent(vec![elsewhere], 3_000), None).await.unwrap().events, 0);
    });
}

#[test]
fn a_deadline_that_has_passed_ends_a_query_after_one_step() {
    // Y-2
    let (_dir, store) = store_with_events();
    block_on(async {
        let late = Query {
            budget: Budget { deadline: Some(Instant::now()), ..Budget::default() },
            ..Query::of(here(), Viewer::unauthenticated(), NOW)
        };
        let answer = store.query(&late).await.unwrap();
        assert_eq!(answer.rest, Completeness::BudgetSpent);
        assert!((4_000..4_096).contains(&answer.events.len()), "{}", answer.events.len());
        assert!(matches!(store.count(&late, None).await, Err(StoreError::TooCostly)));
    });
}

#[test]
fn ranges_of_very_many_kinds_are_found_within_the_budget() {
    // Y-2, M10: more kinds than a step looks at.
    const KINDS: u64 = 5_000;
    let kind = |n: u64| Kind(50_000 + n as u16);
    let (_dir, store) = store_with((0..KINDS).map(|n| bare(kind(n).0).at(n % 900).tag(["t", TOPIC]).build()));
    let never = || Filter::new().with_since(Timestamp(9_999_999_999));
    let some_kinds = |count| Filter::new().with_kinds((0..count).map(kind));
    for (what, filters, expected) in [
        ("20 filters that nothing matches", vec![never(); 20], (true, 0)),
        ("the newest of any kind", vec![Filter::new().with_limit(1)], (true, 1)),
        ("any kind in a time", vec![Filter::new().with_since(at(10)).with_until(at(12))], (true, 18)),
        ("300 kinds", vec![some_kinds(300)], (true, 300)),
        ("200 kinds", vec![some_kinds(200)], (false, 200)),
        ("200 kinds in each of 20 filters", vec![some_kinds(200).with_since(Timestamp(9_999_999_999)); 20], (true, 0)),
    ] {
        assert_eq!(is_costly(&store, filters), expected, "{what}");
    }
    let newest = block_on(store.query(&query_of(vec![Filter::new().with_limit(1)], Budget::default()))).unwrap();
    assert_eq!(newest.events[0].created_at, at(899));

    let rows = |rows| Budget { rows, ..Budget::default() };
    assert_eq!(count_found(&store, vec![never()], rows(6_000)).unwrap(), 0, "a seek for each kind");
    let late = Budget { deadline: Some(Instant::now()), ..Budget::default() };
    for (what, filters, budget) in [
        ("fewer rows than kinds", vec![never()], rows(4_500)),
        ("fewer rows than kinds, for each filter", vec![never(); 3], rows(13_500)),
        ("the deadline has passed", vec![never()], late),
    ] {
        let answer = count_found(&store, filters, budget);
        assert!(matches!(answer, Err(StoreError::TooCostly)), "{what}: {answer:?}");
    }
}

#[test]
fn ranges_of_an_author_in_many_topics_are_found_within_the_budget() {
    // Y-2, M10
    let topic = |n: u64| format!("kukuri:{n:064x}");
    let (_dir, store) = store_with((0..600).map(|n| bare(1).at(n).tag(["t", &topic(n)]).build()));
    let by_alice = || Filter::new().with_authors([ALICE]);
    assert_eq!(is_costly(&store, vec![by_alice()]), (true, 600));
    assert_eq!(is_costly(&store, vec![by_alice().with_limit(1)]), (true, 1));
    assert_eq!(
        is_costly(&store, vec![by_alice().with_since(at(400))]),
        (false, 200),
        "a range needs a row in the time"
    );
    let budget = Budget { rows: 500, ..Budget::default() };
    assert!(matches!(count_found(&store, vec![by_alice().with_limit(1)], budget), Err(StoreError::TooCostly)));
}

#[test]
fn values_that_a_filter_names_are_looked_up_within_the_budget() {
    // Y-2
    let (_dir, store) = store_with((0..10).map(|n| note("text").at(n).build()));
    let keys = (0..2_000u64).map(|n| [[n as u8, (n >> 8) as u8]; 16].concat().try_into().unwrap());
    let strangers = Filter::new().with_authors(keys.map(kukuri_domain::PublicKey::from_bytes));
    assert_eq!(is_costly(&store, vec![strangers.clone()]), (true, 0));
    let budget = Budget { rows: 1_500, ..Budget::default() };
    assert!(matches!(count_found(&store, vec![strangers], budget), Err(StoreError::TooCostly)));
}

#[test]
fn a_row_that_many_ranges_have_counts_for_each() {
    // Y-2: 20 events with 100 tags that the filter names.
    let values: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let tagged = |n| values.iter().fold(note("text").at(n), |draft, value| draft.tag(["x", value])).build();
    let (_dir, store) = store_with((0..20).map(tagged));
    let x = Letter::from_name("x").unwrap();
    assert_eq!(is_costly(&store, vec![Filter::new().with_tag(x, values.clone())]), (true, 20));
    assert_eq!(is_costly(&store, vec![Filter::new().with_tag(x, values.into_iter().take(10))]), (false, 20));
}

#[test]
fn a_large_event_that_is_read_counts_as_several_rows() {
    // Y-2, M10: 60 events of some 90 KiB, which match in every index and not in the whole.
    let large = |n| note(&"x".repeat(90 << 10)).at(n).tag(["x", "X"]).build();
    let (_dir, store) =
        store_with((0..60).map(large).chain((60..100).map(|n| note("y").at(n).tag(["x", "Y"]).build())));
    let (x, y) = (Letter::from_name("x").unwrap(), Letter::from_name("y").unwrap());
    let without = |value| here().with_tag(x, [value]).with_tag(y, ["none", "at all"]);
    assert_eq!(is_costly(&store, vec![without("X")]), (true, 0), "1,380 rows");
    assert_eq!(is_costly(&store, vec![without("Y")]), (false, 0));
    assert_eq!(is_costly(&store, vec![without("X").with_since(at(20))]), (false, 0), "fewer of them");
    let by_id = block_on(store.query(&query_of(vec![here()], Budget::default()))).unwrap();
    let by_id = Filter::new().with_ids(by_id.events.iter().map(|event| event.id));
    assert_eq!(is_costly(&store, vec![by_id.clone()]), (true, 100));
    for filter in [without("X"), by_id] {
        let answer = count_found(&store, vec![filter], Budget { rows: 1_000, ..Budget::default() });
        assert!(matches!(answer, Err(StoreError::TooCostly)), "{answer:?}");
    }
}
