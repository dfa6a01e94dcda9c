//! Whoever asked has left: nothing goes on at the server for them.

use std::{pin::Pin, time::Duration};

use kukuri_domain::{Filter, Viewer};
use kukuri_store::{
    Query, Store,
    conformance::build::{NOW, admitted, note},
};
use sqlx::{Connection as _, PgConnection};

use super::support::{Database, block_on, numbers};
use kukuri_postgres::Asking;

use crate::{PostgresOptions, PostgresStore};

/// Each test has a database of its own.
const AT_WORK: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'kukuri-node' AND state = 'active' AND query LIKE '%generate_series%'";
pub(super) const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'kukuri-node' AND wait_event_type = 'Lock'";
/// Far less than a statement may take here, and far more than the server needs to look for its client.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// Whether it was answered.
type Question<'s> = Pin<Box<dyn Future<Output = bool> + 's>>;

/// A store with one reading session, whose statements may take very long.
async fn open(database: &Database) -> PostgresStore {
    let query_timeout = Duration::from_secs(600);
    let options = PostgresOptions { readers: 1, query_timeout, ..PostgresOptions::default() };
    PostgresStore::connect(&database.url(), options).await.unwrap()
}

/// Waits until there are so many.
pub(super) async fn wait_for(url: &str, what: &str, wanted: i64) {
    let look = async {
        while numbers(url, what).await != [wanted] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("never {wanted}: {what}"));
}

#[test]
fn questions_that_nobody_waits_for_end_at_the_server_and_others_are_answered() {
    block_on(async {
        let database = Database::new().await;
        let (url, store) = (database.url(), open(&database).await);
        store.ingest(vec![admitted(&note("one").build())], NOW).await.unwrap();
        let one = Query::of(Filter::new(), Viewer::stranger(), NOW);
        let two = Query { filters: vec![Filter::new(), Filter::new().with_limit(1)], ..one.clone() };
        for query in [one, two] {
            let questions: [(&str, Question<'_>); 3] = [
                ("query", Box::pin(async { store.query(&query).await.is_ok() })),
                ("ids", Box::pin(async { store.ids(&query, 10).await.is_ok() })),
                ("count", Box::pin(async { store.count(&query, None).await.is_ok() })),
            ];
            for (what, question) in questions {
                // Nobody reads events while this session has the table.
                let mut owner = PgConnection::connect(&url).await.unwrap();
                sqlx::raw_sql("BEGIN; LOCK TABLE cn_relay.events").execute(&mut owner).await.unwrap();
                tokio::select! {
                    answered = question => panic!("{what} was answered: {answered}"),
                    () = wait_for(&url, WAITING, 1) => {}
                }
                wait_for(&url, WAITING, 0).await;
                // The only session there may be is free for something else.
                assert_eq!(store.recall(&[], NOW).await.unwrap(), [], "after {what}");
                owner.close().await.unwrap();
            }
            assert_eq!(store.query(&query).await.unwrap().events.len(), 1);
        }
    });
}

#[test]
fn a_statement_that_is_hard_at_work_ends_as_well() {
    block_on(async {
        let database = Database::new().await;
        let (url, store) = (database.url(), open(&database).await);
        let work = async {
            let mut asking = Asking::of(store.readers()).await.unwrap();
            let sum = "SELECT sum(a * b) FROM generate_series(1, 200000) a, generate_series(1, 200000) b";
            sqlx::raw_sql(sum).execute(&mut *asking).await.unwrap();
        };
        tokio::select! {
            () = work => panic!("nobody counts that fast"),
            () = wait_for(&url, AT_WORK, 1) => {}
        }
        wait_for(&url, AT_WORK, 0).await;
        assert!(store.stats().await.is_ok());
    });
}
