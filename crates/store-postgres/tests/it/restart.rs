//! The server stops and restarts: operations fail meanwhile, and no acknowledged event is lost.

use std::time::Duration;

use kukuri_domain::EventId;
use kukuri_store::{
    conformance::build::{NOW, admitted, note},
    port::*,
};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{
    patient,
    support::{block_on, cluster::Cluster, private},
};

/// Ingests events until an error. Returns the ids of the acknowledged events.
async fn ingest_until_it_fails(store: &PostgresStore, round: u32) -> Vec<EventId> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let event = note(&format!("note {round} {number}")).at(number % 100).build();
        match store.ingest(vec![admitted(&event)], NOW).await {
            Ok(_) => acknowledged.push(event.id),
            Err(_) => break,
        }
    }
    acknowledged
}

#[test]
fn a_store_reconnects_after_a_server_restart_and_has_all_acknowledged_events() {
    // P-3, O-4
    let cluster = Cluster::at(private(&format!("postgres-restart-{}", std::process::id())));
    cluster.start().unwrap();
    block_on(async {
        let store = PostgresStore::connect(&cluster.url(), patient()).await.unwrap();
        let other = PostgresStore::connect(&cluster.url(), patient()).await.unwrap();
        let mut acknowledged = Vec::new();
        for (round, mode) in ["immediate", "fast"].into_iter().enumerate() {
            let mut heads = store.watch_outbox();
            let some = heads.borrow().0 + 20;
            let stop = async {
                // The server stops at an arbitrary point of the store's work.
                heads.wait_for(|head| head.0 >= some).await.unwrap();
                cluster.stop(mode).unwrap();
            };
            let (before, ()) = tokio::join!(ingest_until_it_fails(&store, round as u32), stop);
            assert!(before.len() >= 20);
            acknowledged.extend(before);
            let refused = store.ingest(vec![admitted(&note("nobody is there").build())], NOW).await;
            assert!(refused.is_err(), "{refused:?}");
            cluster.start().unwrap();
        }
        let mut heads = other.watch_outbox();
        heads.mark_unchanged();
        let head = store.ingest(vec![admitted(&note("after").build())], NOW).await.unwrap().head;
        let heard = tokio::time::timeout(Duration::from_secs(60), heads.wait_for(|seen| *seen >= head)).await;
        assert!(heard.is_ok(), "whoever listened hears again");
        // A session that ended with the server may fail one query.
        let found = match store.get(&acknowledged, NOW).await {
            Ok(found) => found,
            Err(_) => store.get(&acknowledged, NOW).await.unwrap(),
        };
        assert!(found.iter().all(Option::is_some), "{} events were acknowledged", acknowledged.len());
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
    cluster.stop("immediate").unwrap();
    cluster.remove();
}

#[test]
fn a_session_lost_in_a_server_restart_fails_at_most_one_query() {
    const SESSIONS: u32 = 4;
    let cluster = Cluster::at(private(&format!("postgres-sessions-{}", std::process::id())));
    cluster.start().unwrap();
    block_on(async {
        let options = PostgresOptions { readers: SESSIONS, ..patient() };
        let store = PostgresStore::connect(&cluster.url(), options).await.unwrap();
        let event = note("one").build();
        store.ingest(vec![admitted(&event)], NOW).await.unwrap();
        // Concurrent queries, so that the pool opens a session for each.
        let ids = [event.id];
        let ask = || store.get(&ids, NOW);
        let (one, two, three, four) = tokio::join!(ask(), ask(), ask(), ask());
        assert!([one, two, three, four].iter().all(Result::is_ok));
        for mode in ["fast", "immediate"] {
            cluster.stop(mode).unwrap();
            cluster.start().unwrap();
            let mut failed = 0;
            for _ in 0..5 * SESSIONS {
                failed += u32::from(ask().await.is_err());
            }
            assert!(failed <= SESSIONS, "{failed} questions failed after {mode}");
            assert!(ask().await.unwrap()[0].is_some());
        }
    });
    cluster.stop("immediate").unwrap();
    cluster.remove();
}
