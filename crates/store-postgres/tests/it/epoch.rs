//! A server that went back to an older state is noticed (Y-5).

use std::time::Duration;

use kukuri_store::{
    Seq,
    conformance::build::{NOW, admitted, note},
    port::*,
};
use kukuri_store_postgres::PostgresStore;

use crate::{
    patient,
    support::{Database, block_on, run},
};

const WAIT: Duration = Duration::from_secs(60);

async fn connect(database: &Database) -> PostgresStore {
    PostgresStore::connect(&database.url(), patient()).await.unwrap()
}

async fn ingest(store: &PostgresStore, count: u64) {
    for number in 0..count {
        store.ingest(vec![admitted(&note(&number.to_string()).build())], NOW).await.unwrap();
    }
}

#[test]
fn a_head_that_went_back_begins_another_epoch_for_all_processes() {
    block_on(async {
        let database = Database::new().await;
        let (one, other) = (connect(&database).await, connect(&database).await);
        ingest(&one, 5).await;
        let before = *one.watch_epoch().borrow();
        assert_eq!(*other.watch_epoch().borrow(), before);
        let (mut heads, mut epochs) = (other.watch_outbox(), other.watch_epoch());
        tokio::time::timeout(WAIT, heads.wait_for(|head| *head == Seq(5))).await.unwrap().unwrap();

        // As if files from an hour ago were put back.
        run(&database.url(), "DELETE FROM cn_relay.events_outbox WHERE seq > 3; UPDATE cn_relay.node SET head = 3")
            .await
            .unwrap();
        tokio::time::timeout(WAIT, epochs.wait_for(|epoch| *epoch != before)).await.unwrap().unwrap();
        assert_eq!(*heads.borrow_and_update(), Seq(3), "the head goes back with it");
        // Both may have begun one: the last counts.
        let agree = async {
            loop {
                let last = *connect(&database).await.watch_epoch().borrow();
                if *one.watch_epoch().borrow() == last && *other.watch_epoch().borrow() == last {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(WAIT, agree).await.expect("one epoch for all processes");
    });
}

#[test]
fn a_restored_dump_has_another_epoch() {
    block_on(async {
        let database = Database::new().await;
        let store = connect(&database).await;
        ingest(&store, 2).await;
        let before = *store.watch_epoch().borrow();
        store.close().await.unwrap();
        assert_eq!(*connect(&database).await.watch_epoch().borrow(), before, "opening keeps it");
        // A dump makes its tables anew, with the same content.
        run(
            &database.url(),
            "ALTER TABLE cn_relay.node RENAME TO dumped; CREATE TABLE cn_relay.node (LIKE cn_relay.dumped INCLUDING ALL); \
             INSERT INTO cn_relay.node SELECT * FROM cn_relay.dumped; DROP TABLE cn_relay.dumped",
        )
        .await
        .unwrap();
        assert_ne!(*connect(&database).await.watch_epoch().borrow(), before);
    });
}
