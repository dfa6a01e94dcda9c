//! A caller that drops its query: the server stops working on it.

use std::{pin::Pin, time::Duration};

use kukuri_domain::{Filter, Viewer};
use kukuri_postgres::Session;
use kukuri_store::{
    Query,
    conformance::build::{NOW, admitted, note},
    port::*,
};

use super::{
    patient,
    support::{Database, block_on, numbers},
};
use crate::{PostgresOptions, PostgresStore};

/// Active statements. Each test has its own database.
const AT_WORK: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'kukuri-node' AND state = 'active' AND query LIKE '%generate_series%'";
pub(super) const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'kukuri-node' AND wait_event_type = 'Lock'";
/// Far below the statement timeout here, and far above the server's interval for checking its client.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// Resolves to whether the query was answered.
type Question<'s> = Pin<Box<dyn Future<Output = bool> + 's>>;

/// A store with one reading session and a very long statement timeout.
async fn open(database: &Database) -> PostgresStore {
    let query_timeout = Duration::from_secs(600);
    let options = PostgresOptions { readers: 1, query_timeout, ..patient() };
    PostgresStore::connect(&database.url(), options).await.unwrap()
}

/// Waits until the count reaches `wanted`.
pub(super) async fn wait_for(url: &str, what: &str, wanted: i64) {
    let look = async {
        while numbers(url, what).await != [wanted] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("never {wanted}: {what}"));
}

#[test]
fn cancelled_query_ends_on_the_server_and_frees_its_session() {
    block_on(async {
        let database = Database::new().await;
        let (url, store) = (database.url(), open(&database).await);
        store.ingest(vec![admitted(&note("one").build())], NOW).await.unwrap();
        let one = Query::of(Filter::new(), Viewer::unauthenticated(), NOW);
        let two = Query { filters: vec![Filter::new(), Filter::new().with_limit(1)], ..one.clone() };
        for query in [one, two] {
            let questions: [(&str, Question<'_>); 3] = [
                ("query", Box::pin(async { store.query(&query).await.is_ok() })),
                ("ids", Box::pin(async { store.ids(&query, 10).await.is_ok() })),
                ("count", Box::pin(async { store.count(&query, None).await.is_ok() })),
            ];
            for (what, question) in questions {
                // This lock blocks every read of events.
                let owner = Session::connect(&url).await.unwrap();
                owner.run("BEGIN; LOCK TABLE cn_relay.events").await.unwrap();
                tokio::select! {
                    answered = question => panic!("{what} was answered: {answered}"),
                    () = wait_for(&url, WAITING, 1) => {}
                }
                wait_for(&url, WAITING, 0).await;
                // The only reading session is free again.
                assert_eq!(store.known_states(&[], NOW).await.unwrap(), [], "after {what}");
                owner.close().await;
            }
            assert_eq!(store.query(&query).await.unwrap().events.len(), 1);
        }
    });
}

#[test]
fn cancelled_query_ends_while_the_server_is_computing() {
    block_on(async {
        let database = Database::new().await;
        let (url, store) = (database.url(), open(&database).await);
        let work = async {
            let session = &store.pools.readers.acquire().await.unwrap();
            let sum = "SELECT sum(a * b) FROM generate_series(1, 200000) a, generate_series(1, 200000) b";
            session.run(sum).await.unwrap();
        };
        tokio::select! {
            () = work => panic!("nobody counts that fast"),
            () = wait_for(&url, AT_WORK, 1) => {}
        }
        wait_for(&url, AT_WORK, 0).await;
        assert!(store.stats().await.is_ok());
    });
}
