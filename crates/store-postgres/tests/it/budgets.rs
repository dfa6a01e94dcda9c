//! Budgets of queries, the sessions that publishing needs, and requests that name very many rows (Y-1, Y-2, Y-4, D-12).

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use kukuri_domain::{Filter, Letter, Sketch, Viewer};
use kukuri_postgres::Session;
use kukuri_store::{
    Budget, Outcome, Query, ReadGate, ReadPermit, ReadStage, Seq, StoreError,
    conformance::build::{ALICE, BOB, NOW, TOPIC, admitted, note, vanish},
    port::*,
};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{
    patient,
    support::{Database, block_on, numbers},
};

fn here() -> Filter {
    Filter::new().with_tag(Letter::T, [TOPIC])
}

fn query_of(filters: Vec<Filter>, budget: Budget) -> Query {
    Query { filters, budget, ..Query::of(Filter::new(), Viewer::unauthenticated(), NOW) }
}

/// Admits everything, and notes the stages.
#[derive(Default)]
struct Gate(Mutex<Vec<(ReadStage, usize)>>);

#[async_trait]
impl ReadGate for Gate {
    async fn enter(&self, stage: ReadStage, max: usize, _: Option<Instant>) -> Option<ReadPermit> {
        self.0.lock().unwrap().push((stage, max));
        Some(Box::new(()))
    }
}

/// Admits first attempts only.
struct FirstAttempts;

#[async_trait]
impl ReadGate for FirstAttempts {
    async fn enter(&self, stage: ReadStage, _: usize, _: Option<Instant>) -> Option<ReadPermit> {
        if stage == ReadStage::Session { Some(Box::new(())) } else { None }
    }
}

/// A session that keeps every reader of events waiting.
async fn lock_events(url: &str) -> Session {
    let owner = Session::connect(url).await.unwrap();
    owner.run("BEGIN; LOCK TABLE cn_relay.events, cn_relay.event_topics").await.unwrap();
    owner
}

#[test]
fn queries_that_hold_all_sessions_leave_publishing_and_statistics_their_own() {
    // Y-4
    block_on(async {
        let database = Database::new().await;
        // Costly queries hold their sessions until the end of the test.
        let query_timeout = Duration::from_secs(600);
        let options = PostgresOptions { readers: 2, query_timeout, acquire_timeout: query_timeout, ..patient() };
        let store = Arc::new(PostgresStore::connect(&database.url(), options).await.unwrap());
        let event = note("stored").build();
        store.ingest(vec![admitted(&event)], NOW).await.unwrap();
        let owner = lock_events(&database.url()).await;
        let questions: Vec<_> = (0..20)
            .map(|number| {
                let store = Arc::clone(&store);
                // Half of them wait for costly queries; the others are asked again and again, for first attempts.
                let gate = (number % 2 == 0).then(|| Arc::new(FirstAttempts) as Arc<dyn ReadGate>);
                let query = query_of(vec![here(); 20], Budget { gate, ..Budget::default() });
                tokio::spawn(async move { while store.count(&query, None).await.is_err() {} })
            })
            .collect();
        // All sessions of queries are taken, and more queries wait for them.
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while numbers(&database.url(), waiting).await[0] < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let publishing = async {
            assert!(store.known_states(&[event.id], NOW).await.unwrap()[0].is_some());
            assert_eq!(store.outbox(Seq(0), 10).await.unwrap().len(), 1);
            assert_eq!(store.stats().await.unwrap().effective, 1);
        };
        tokio::time::timeout(Duration::from_secs(60), publishing).await.expect("no query is in the way");
        drop(owner);
        questions.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn a_query_has_one_deadline_over_all_its_statements() {
    // Y-2
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        store.ingest(vec![admitted(&note("stored").build())], NOW).await.unwrap();
        let gate = Arc::new(Gate::default());
        let budget = |deadline| Budget { deadline, gate: Some(Arc::clone(&gate) as _), ..Budget::default() };
        let whole = store.query(&query_of(vec![here(); 20], budget(None))).await.unwrap();
        assert_eq!(whole.events.len(), 1);
        assert_eq!(gate.0.lock().unwrap()[0], (ReadStage::Session, 8));
        gate.0.lock().unwrap().clear();

        let owner = lock_events(&database.url()).await;
        let filters = vec![here(), here().with_authors([ALICE]), here().with_authors([BOB])];
        for filters in [filters.clone(), vec![here()]] {
            let query = || query_of(filters.clone(), budget(Some(Instant::now() + Duration::from_millis(400))));
            assert!(matches!(store.query(&query()).await, Err(StoreError::TooCostly)));
            assert!(matches!(store.count(&query(), None).await, Err(StoreError::TooCostly)));
            assert!(matches!(store.ids(&query(), 10).await, Err(StoreError::TooCostly)));
        }
        let stages = std::mem::take(&mut *gate.0.lock().unwrap());
        assert_eq!(
            stages,
            [(ReadStage::Session, 8), (ReadStage::Costly, 3)].repeat(6),
            "first an attempt, then a turn"
        );
        drop(owner);
        // Sessions whose statement was ended are used again.
        let none =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while numbers(&database.url(), none).await[0] > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(store.query(&query_of(vec![here()], budget(None))).await.unwrap().events.len(), 1);
    });
}

#[test]
fn the_server_counts_events_and_authors() {
    // NIP-45: one row for each register at most, however many events match.
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let author = |n: u64| kukuri_domain::PublicKey::from_bytes(*blake3::hash(&n.to_be_bytes()).as_bytes());
        let events: Vec<_> =
            (0..900).map(|n| note(&n.to_string()).by(author(n % 300)).at(n).tag(["e", "x"]).build()).collect();
        store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
        let reactions = || here().with_tag(Letter::E, ["x"]);
        let mut sketch = Sketch::for_filter(&reactions()).unwrap();
        let empty = Some(sketch.clone());
        (0..300).for_each(|n| sketch.add(&author(n)));
        for filters in [vec![reactions()], vec![reactions().with_until(events[500].created_at), reactions()]] {
            let count = store.count(&query_of(filters, Budget::default()), empty.clone()).await.unwrap();
            assert_eq!((count.events, count.sketch.as_ref()), (900, Some(&sketch)));
        }
    });
}

#[test]
fn a_vanish_request_that_takes_longer_to_compute_than_a_session_may_be_idle_gets_through() {
    // D-12, O-5
    const EVENTS: u64 = 12_000;
    block_on(async {
        let database = Database::new().await;
        let hasty = database.hasty_url();
        let store = PostgresStore::connect(&hasty, PostgresOptions { may_lose: true, ..PostgresOptions::default() })
            .await
            .unwrap();
        let events: Vec<_> = (0..EVENTS).map(|n| admitted(&note(&n.to_string()).at(n % 900).build())).collect();
        for batch in events.chunks(4_000) {
            store.ingest(batch.to_vec(), NOW).await.unwrap();
        }
        store.ingest(vec![admitted(&note("of another").by(BOB).build())], NOW).await.unwrap();
        drop(store);
        // As many rows per second of the timeout as a statement has by default: on a busy machine, encoding them takes long.
        let options = PostgresOptions {
            writer_idle_timeout: Duration::from_secs(2),
            compute_delay: Duration::from_millis(2_500),
            may_lose: true,
            ..PostgresOptions::default()
        };
        let store = PostgresStore::connect(&hasty, options).await.unwrap();
        let request = admitted(&vanish().at(950).build());
        assert_eq!(store.ingest(vec![request], NOW).await.unwrap().outcomes, [Outcome::Stored]);
        assert_eq!(store.stats().await.unwrap().effective, 2, "the request, and the other's event");
        let rows = "SELECT count(*) FROM cn_relay.events UNION ALL SELECT count(*) FROM cn_relay.events_outbox";
        assert_eq!(numbers(&database.url(), rows).await, [2, (2 * EVENTS + 2) as i64]);
    });
}
