//! Reads that clients cause take no session that publishing, live delivery or health waits for (Y-4).

use std::time::Duration;

use futures_util::future::{join, join_all};
use kukuri_domain::State;
use kukuri_postgres::Session;
use kukuri_store::{
    Outcome, Seq,
    conformance::build::{NOW, admitted, note, topic},
    port::*,
};
use tokio::time::timeout;

use super::{
    cancelled_queries::{SOON, WAITING, wait_for},
    patient,
    support::{Database, block_on},
};
use crate::{PostgresStore, months};

/// More than there are sessions of any kind.
const READS: usize = 64;
const TWO_MONTHS: Duration = Duration::from_secs(62 * 24 * 3_600);

#[test]
fn publishing_goes_on_while_reads_by_clients_hold_all_their_sessions() {
    block_on(async {
        let database = Database::new().await;
        let (url, store) = (database.url(), PostgresStore::connect(&database.url(), patient()).await.unwrap());
        let [old, known, new] = ["old", "known", "new"].map(|text| note(text).build());
        let now = NOW.after(TWO_MONTHS);
        store.ingest(vec![admitted(&old)], NOW).await.unwrap();
        store.confirm_clock(now).await.unwrap();
        let read = store.ingest(vec![admitted(&known)], now).await.unwrap().head;

        // The old month blocks every read of its event, and nothing else that a new event needs.
        let month = format!("cn_relay.events_default_{}", months::name_of(NOW));
        let owner = Session::connect(&url).await.unwrap();
        let lock = format!("BEGIN; LOCK TABLE {month}");
        owner.run(lock).await.unwrap();
        let ids = [old.id];
        let events = join_all((0..READS).map(|_| store.get(&ids, now)));
        let rows = join_all((0..READS).map(|_| store.outbox(Seq::default(), 10)));
        let reads = join(events, rows);
        tokio::pin!(reads);
        let publishing = async {
            let sessions = i64::from(store.lookups.max_sessions());
            wait_for(&url, WAITING, sessions).await;
            assert_eq!(store.known_states(&[known.id], now).await.unwrap(), [Some(State::Effective)]);
            let outcomes = store.ingest(vec![admitted(&new)], now).await.unwrap().outcomes;
            assert_eq!(outcomes, [Outcome::Stored]);
            let rows = store.outbox_for_delivery(read, 10).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.event_id).collect::<Vec<_>>(), [new.id]);
            assert_eq!(store.stats().await.unwrap().effective, 3);
            assert!(store.topic_stats(&[topic()]).await.unwrap()[0].is_some());
            assert_eq!(store.subscriptions().await.unwrap(), []);
        };
        tokio::select! {
            biased;
            _ = &mut reads => panic!("the reads were not blocked"),
            done = timeout(SOON, publishing) => done.expect("publishing waits for reads by clients"),
        }
        owner.close().await;
        let (events, rows) = reads.await;
        assert!(events.into_iter().all(|found| found.unwrap()[0].is_some()));
        assert!(rows.into_iter().all(|rows| !rows.unwrap().is_empty()));
    });
}

#[test]
fn live_delivery_reads_events_of_other_processes_while_clients_hold_all_sessions() {
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let event = note("of another process").build();
        store.ingest(vec![admitted(&event)], NOW).await.unwrap();
        let mut held = Vec::new();
        for pool in [&store.lookups, &store.pools.readers, &store.pools.quick] {
            for _ in 0..pool.max_sessions() {
                held.push(pool.acquire().await.unwrap());
            }
        }
        let read = async {
            let rows = store.outbox_for_delivery(Seq::default(), 10).await.unwrap();
            let ids: Vec<_> = rows.iter().map(|row| row.event_id).collect();
            store.get_for_delivery(&ids, NOW).await.unwrap()
        };
        let found = timeout(SOON, read).await.expect("live delivery waits for reads by clients");
        assert_eq!(found[0].as_ref().map(|bound| bound.event.id), Some(event.id));
    });
}
