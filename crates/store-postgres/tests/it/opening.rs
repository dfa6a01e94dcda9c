//! Opening a store: its schema, and concurrent processes.

use std::time::Duration;

use kukuri_domain::{Origin, capacity::Capacity, sharing::RequestRef, subscription::SubscriptionChange};
use kukuri_store::{
    StoreError, StoreRules,
    conformance::{
        build::{NOW, OTHER_TOPIC, admitted, admitted_from, article, bare, note, topic},
        partial_sets::{items, set_of},
    },
    port::*,
};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{
    patient,
    support::{Database, block_on, numbers, run},
};

#[test]
fn a_newer_schema_is_refused_and_not_changed() {
    block_on(async {
        let database = Database::new().await;
        PostgresStore::migrate(&database.url()).await.unwrap();
        run(&database.url(), "INSERT INTO cn_relay.migrations VALUES (99, 'from tomorrow')").await.unwrap();
        for migrate in [true, false] {
            let options = PostgresOptions { migrate, ..patient() };
            let refused = PostgresStore::connect(&database.url(), options).await.err().unwrap();
            assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused}");
            assert!(!refused.to_string().contains("postgres@"), "no name of a user in {refused}");
        }
        run(&database.url(), "DROP SCHEMA cn_relay CASCADE").await.unwrap();
    });
}

#[test]
fn concurrent_starts_create_the_tables_once_and_only_if_migrate_is_on() {
    block_on(async {
        let database = Database::new().await;
        run(&database.url(), "DROP SCHEMA IF EXISTS cn_relay CASCADE").await.unwrap();
        let careful = PostgresOptions { migrate: false, ..patient() };
        let refused = PostgresStore::connect(&database.url(), careful.clone()).await.err().unwrap();
        assert!(matches!(refused, StoreError::Older { found: 0, .. }), "{refused}");
        let url = database.url();
        let open = || PostgresStore::connect(&url, patient());
        let (one, two, three) = tokio::join!(open(), open(), open());
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(numbers(&url, "SELECT count(*) FROM cn_relay.migrations").await, [11]);
        assert!(PostgresStore::connect(&url, careful).await.is_ok());
    });
}

#[test]
fn an_older_schema_is_migrated_and_keeps_its_data() {
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        store.ingest(vec![admitted(&note("one").build())], NOW).await.unwrap();
        let version = article("a", "").at(1).build();
        let by_id = bare(5).tag(["t", OTHER_TOPIC]).of(&version).at(2).build();
        let protected = bare(5).tag(["t", OTHER_TOPIC]).tag(["-"]).at(2);
        let target = note("deleted by what is told to nobody").build();
        let protected = protected.of(&target).build();
        let gone = [&version, &by_id, &target, &protected].map(|event| admitted_from(event, Origin::Import));
        store.ingest(gone.to_vec(), NOW).await.unwrap();
        let told = items(&store, &set_of(&topic()), 10).await;
        assert_eq!(told.len(), 3, "G-7: a note, the version and the request that deleted it");
        store.close().await.unwrap();
        let back = "ALTER TABLE cn_relay.node DROP COLUMN loading, DROP COLUMN epoch, DROP COLUMN clock_held_since, ADD COLUMN clock_held boolean NOT NULL DEFAULT true; DROP TABLE cn_relay.writers_lock; DROP TABLE cn_relay.leaving CASCADE; DROP TABLE cn_relay.consumer_leases; DROP TABLE cn_relay.traces; DROP VIEW cn_relay.traces_of_rows; DROP TABLE cn_relay.remains; ALTER TABLE cn_relay.events DROP COLUMN deleted; ALTER TABLE cn_relay.vanish_marks DROP COLUMN shareable_at, DROP COLUMN shareable_id; ALTER TABLE cn_relay.deletion_tombstones DROP COLUMN shareable_at, DROP COLUMN shareable_id; DELETE FROM cn_relay.migrations WHERE number > 1";
        run(&database.url(), back).await.unwrap();
        let careful = PostgresOptions { migrate: false, ..patient() };
        assert!(PostgresStore::connect(&database.url(), careful).await.is_err());
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        assert_eq!(store.stats().await.unwrap().effective, 3);
        assert!(store.stats().await.unwrap().clock_held, "P-5: a hold is kept");
        assert_eq!(items(&store, &set_of(&topic()), 10).await, told, "rows tell what they were deleted by");
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        for (event, expected) in [(&version, Some(RequestRef::of(&by_id))), (&target, None)] {
            let tombstones = store.explain(&event.id).await.unwrap().tombstones;
            assert_eq!(tombstones[0].shareable, expected, "G-7: which request may be shared");
        }
        run(&database.url(), "DELETE FROM cn_relay.traces WHERE key IS NOT NULL").await.unwrap();
        assert_eq!(store.check().await.unwrap().problems.len(), 1, "what is lost is noticed");
    });
}

#[test]
fn a_reader_with_other_settings_changes_nothing() {
    // P-6: a command may run with other settings than the node.
    block_on(async {
        let database = Database::new().await;
        let few = |events| StoreRules {
            capacity: Capacity { max_events: Some(events), ..Capacity::default() },
            ..StoreRules::default()
        };
        let options = |rules| PostgresOptions { rules, ..patient() };
        let store = PostgresStore::connect(&database.url(), options(few(1_000))).await.unwrap();
        store.ingest(vec![admitted(&note("one").build()), admitted(&note("two").build())], NOW).await.unwrap();
        let before = store.stats().await.unwrap();

        let reader = PostgresStore::connect_for_reading(&database.url(), options(few(2))).await.unwrap();
        assert_eq!(reader.stats().await.unwrap(), before);
        assert_eq!(*reader.watch_outbox().borrow(), before.head);
        let refused = reader.ingest(vec![admitted(&note("three").build())], NOW).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
        let known = [note("one").build().id];
        assert!(reader.known_states(&known, NOW).await.unwrap()[0].is_some());
        reader.write_duplicate_counts().await.unwrap();
        reader.close().await.unwrap();
        assert_eq!(store.stats().await.unwrap(), before);
    });
}

#[test]
fn a_commit_wakes_followers_in_other_processes() {
    // O-4, S-1
    block_on(async {
        let database = Database::new().await;
        let one = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let other = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let (mut heads, mut versions) = (other.watch_outbox(), other.watch_subscriptions());
        let head = one.ingest(vec![admitted(&note("one").build())], NOW).await.unwrap().head;
        let wait = Duration::from_secs(60);
        tokio::time::timeout(wait, heads.wait_for(|seen| *seen >= head)).await.unwrap().unwrap();

        one.change_subscription(&topic(), SubscriptionChange::disable(), NOW).await.unwrap();
        tokio::time::timeout(wait, versions.changed()).await.unwrap().unwrap();
        assert_eq!(other.subscriptions().await.unwrap(), one.subscriptions().await.unwrap());
        // From now on the other store decides by the same subscriptions.
        other.ingest(vec![admitted(&note("two").build())], NOW).await.unwrap();
        assert_eq!(one.outbox(head, 10).await.unwrap().len(), 1);
        one.close().await.unwrap();
    });
}
