//! Concurrent lookups of ids.

use std::time::Duration;

use futures_util::future::join_all;
use kukuri_domain::State;
use kukuri_postgres::Session;
use kukuri_store::{
    conformance::build::{NOW, admitted, note},
    port::*,
};

use super::{
    cancelled_queries::{SOON, WAITING, wait_for},
    patient,
    support::{Database, block_on, numbers},
};
use crate::PostgresStore;

const WHO_WAITS: &str = "SELECT pid::bigint FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name = 'kukuri-node' AND wait_event_type = 'Lock'";

#[test]
fn concurrent_recalls_share_a_statement_and_survive_cancellation_of_the_first() {
    // E-9
    block_on(async {
        let database = Database::new().await;
        let (url, options) = (database.url(), patient());
        let store = PostgresStore::connect(&url, options).await.unwrap();
        let events: Vec<_> = (0..40).map(|number| note(&format!("note {number}")).build()).collect();
        // Every second event is stored.
        store.ingest(events.iter().step_by(2).map(admitted).collect(), NOW).await.unwrap();

        let owner = Session::connect(&url).await.unwrap();
        owner.run("BEGIN; LOCK TABLE cn_relay.event_dedupe").await.unwrap();
        let ids = [events[0].id];
        let first = store.known_states(&ids, NOW);
        let asked: Vec<_> = events.iter().map(|event| [event.id, events[0].id]).collect();
        let others = join_all(asked.iter().map(|ids| store.known_states(ids, NOW)));
        tokio::pin!(others);
        let mut first = Box::pin(first);
        tokio::select! {
            biased;
            answer = &mut first => panic!("{answer:?}"),
            answers = &mut others => panic!("{answers:?}"),
            () = wait_for(&url, WAITING, 1) => {}
        }
        // The first caller cancels, and its statement ends. One statement in its place serves all the others.
        let gone = numbers(&url, WHO_WAITS).await;
        drop(first);
        let taken_over = async {
            loop {
                let waiting = numbers(&url, WHO_WAITS).await;
                if waiting.len() == 1 && waiting != gone {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            answers = &mut others => panic!("{answers:?}"),
            waited = tokio::time::timeout(SOON, taken_over) => waited.expect("one session that waits for all"),
        }
        owner.close().await;
        for (number, answer) in others.await.into_iter().enumerate() {
            let known = Some(State::Effective);
            let expected = [known.filter(|_| number % 2 == 0), known];
            assert_eq!(answer.unwrap(), expected, "note {number}");
        }
    });
}
