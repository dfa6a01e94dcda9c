//! Purges drop whole monthly partitions, with the same result as deleting their events one by one.

use std::time::Duration;

use kukuri_domain::{
    Event, Filter, Kind, Letter, Millis, Viewer,
    retention::{Keep, Retention, TopicRetention},
    subscription::{IngestPolicy, SubscriptionChange},
};
use kukuri_store::{
    Op, OutboxRow, Outcome, PurgeCursor, Purged, Query, Seq, Stats, StoreRules, StoredEvent,
    conformance::build::{NOW, OTHER_TOPIC, TOPIC, admitted, deletion, note, other_topic, profile},
    model::ModelStore,
    port::*,
};
use kukuri_store_postgres::PostgresStore;

use crate::{
    patient,
    support::{Database, block_on, numbers, run},
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A store and the model; every operation goes to both.
struct Both {
    store: PostgresStore,
    model: ModelStore,
}

impl Both {
    async fn send(&self, events: &[Event], now: Millis) {
        let batch: Vec<_> = events.iter().map(admitted).collect();
        let found = self.store.ingest(batch.clone(), now).await.unwrap();
        assert_eq!(found, self.model.ingest(batch, now).await.unwrap());
    }

    /// Purges `days` later, after confirming the clock, and compares store and model.
    async fn purge(&self, retention: &Retention, days: u32) -> Purged {
        let now = NOW.after(DAY * days);
        self.store.confirm_clock(now).await.unwrap();
        self.model.confirm_clock(now).await.unwrap();
        let before = portrait(&self.store).await;
        let dry_run = self.store.dry_run_purge(retention, now, usize::MAX).await.unwrap();
        assert_eq!(portrait(&self.store).await, before, "a dry run changes nothing");
        let purged = self.store.purge(retention, now).await.unwrap();
        assert_eq!(purged, self.model.purge(retention, now).await.unwrap());
        assert!(dry_run.is_complete);
        assert_eq!(dry_run.purged, purged, "as much as the dry run has counted");
        assert_eq!(portrait(&self.store).await, portrait(&self.model).await);
        assert_eq!(self.store.check().await.unwrap().problems, Vec::<String>::new());
        purged
    }
}

async fn portrait(store: &dyn Store) -> (Vec<StoredEvent>, Stats, Vec<OutboxRow>) {
    let visible = store.query(&Query::of(Filter::new(), Viewer::Node, NOW)).await.unwrap().events;
    let stats = Stats { disk_bytes: None, ..store.stats().await.unwrap() };
    let mut rows = store.outbox(Seq::default(), usize::MAX).await.unwrap();
    // The order of rows within a commit is not defined.
    rows.iter_mut().for_each(|row| row.seq = Seq::default());
    rows.sort_by_key(|row| (row.event_id, row.topic.clone(), row.op != Op::Upsert));
    (visible, stats, rows)
}

/// The start times of the monthly partitions of a retention class.
async fn tables(database: &Database, class: &str) -> Vec<i64> {
    let sql = format!("SELECT begins_at FROM cn_relay.partitions WHERE class = '{class}' ORDER BY begins_at");
    numbers(&database.url(), &sql).await
}

#[test]
fn events_of_topics_with_longer_retention_are_moved_before_their_month_is_dropped() {
    // P-5, P-7, P-8
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let both = Both { store, model: ModelStore::new(StoreRules::default()) };
        let policy = IngestPolicy {
            retention: TopicRetention { regular: Some(Keep::days(100)), ..TopicRetention::default() },
            ..IngestPolicy::default()
        };
        let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
        both.store.change_subscription(&other_topic(), change, NOW).await.unwrap();
        both.model.change_subscription(&other_topic(), change, NOW).await.unwrap();

        let mut events: Vec<Event> =
            (0..40).map(|n| note(&format!("note {n}")).at(n).tag(["r", "x"]).build()).collect();
        let kept: Vec<Event> =
            (0..3).map(|n| note(&format!("kept {n}")).at(n).tag(["t", OTHER_TOPIC]).build()).collect();
        let request = deletion().of(&events[0]).of(&kept[0]).build();
        events.extend(kept.iter().cloned());
        events.extend([profile("me").build(), request]);
        both.send(&events, NOW).await;
        let before = tables(&database, "default").await;

        let retention = Retention { outbox: Keep::Forever, ..Retention::default() };
        assert_eq!(both.purge(&retention, 50).await.by_retention, 40, "the notes, the deleted one too");
        assert!(!tables(&database, "default").await.contains(&before[0]), "its month is gone");
        let moved = "SELECT count(*) FROM cn_relay.events WHERE class = 'long' AND kind = 1";
        assert_eq!(numbers(&database.url(), moved).await, [3], "and what is kept is elsewhere, hidden or not");
        let notes = Query::of(Filter::new().with_kinds([Kind(1)]), Viewer::unauthenticated(), NOW);
        assert_eq!(both.store.query(&notes).await.unwrap().events.len(), 2);

        // They are purged after their own retention, and their month is dropped except for the profile.
        assert_eq!(both.purge(&retention, 110).await.by_retention, 3);
        assert_eq!(numbers(&database.url(), moved).await, [0]);
        both.send(&[note("another").at(900).build()], NOW.after(DAY * 110)).await;
        assert_eq!(both.purge(&retention, 111).await.by_retention, 0);
    });
}

#[test]
fn other_writers_write_between_the_steps_of_a_purge() {
    // P-5
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let events: Vec<_> = (0..2_500).map(|n| admitted(&note(&format!("note {n}")).build())).collect();
        store.ingest(events, NOW).await.unwrap();
        let keep = Keep::For(Duration::from_secs(20));
        let retention = Retention { regular: keep, replaced: keep, ..Retention::default() };
        let now = NOW.after(Duration::from_secs(30));
        let (mut cursor, mut purged, mut steps) = (Some(PurgeCursor::default()), 0, 0);
        while let Some(begun) = cursor {
            let step = store.purge_some(&retention, now, begun).await.unwrap();
            assert!(step.purged.by_retention <= purged + 1_000, "no step is a long one");
            (purged, cursor, steps) = (step.purged.by_retention, step.next, steps + 1);
            let between = note(&format!("between {steps}")).build();
            let outcomes = store.ingest(vec![admitted(&between)], now).await.unwrap().outcomes;
            assert_eq!(outcomes, [Outcome::Stored]);
        }
        assert_eq!(purged, 2_500);
        assert_eq!(store.stats().await.unwrap().effective, steps);
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
}

#[test]
fn the_partition_of_a_month_is_created_before_the_month_begins() {
    // P-7
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        store.ingest(vec![admitted(&note("one").build())], NOW).await.unwrap();
        for class in ["default", "long", "requests"] {
            let begins = tables(&database, class).await;
            let next = signed(NOW.after(DAY * 30));
            assert!(begins.iter().any(|begin| *begin <= next && next < *begin + signed(Millis(0).after(DAY * 31))));
        }
    });
}

fn signed(moment: Millis) -> i64 {
    i64::try_from(moment.0).unwrap()
}

#[test]
fn a_dropped_month_is_gone_at_once_though_its_cleanup_is_interrupted() {
    // P-3, P-7, P-8, E-9: the process ends between any two steps of the purge.
    block_on(async {
        let database = Database::new().await;
        let connect = || async { PostgresStore::connect(&database.url(), patient()).await.unwrap() };
        let mut both = Both { store: connect().await, model: ModelStore::new(StoreRules::default()) };
        let mut events: Vec<Event> =
            (0..2_200).map(|n| note(&format!("note {n}")).at(n % 900).tag(["r", "x"]).build()).collect();
        events.extend([profile("me").build(), deletion().of(&events[0]).of(&events[2_199]).build()]);
        both.send(&events, NOW).await;
        let later = NOW.after(DAY * 70);
        both.store.confirm_clock(later).await.unwrap();
        both.model.confirm_clock(later).await.unwrap();
        let retention = Retention { outbox: Keep::Forever, ..Retention::default() };

        // A view on the partition makes the drop fail after it was announced.
        let month = "SELECT name FROM cn_relay.partitions WHERE class = 'default' ORDER BY begins_at LIMIT 1";
        let obstacle = format!(
            "DO $$ BEGIN EXECUTE 'CREATE VIEW obstacle AS SELECT * FROM cn_relay.event_tags_default_' || ({month}); END $$"
        );
        run(&database.url(), &obstacle).await.unwrap();
        let before = portrait(&both.store).await;
        both.store.purge(&retention, later).await.unwrap_err();
        assert_eq!(portrait(&both.store).await, before, "nothing of it was done");
        run(&database.url(), "DROP VIEW obstacle").await.unwrap();

        let purged = both.model.purge(&retention, later).await.unwrap();
        assert_eq!(purged.by_retention, 2_200);
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let (mut steps, mut by_retention) = (0, 0);
        loop {
            let step = both.store.purge_some(&retention, later, PurgeCursor::default()).await.unwrap();
            by_retention += step.purged.by_retention;
            if step.next.is_none() {
                break;
            }
            steps += 1;
            both.store = connect().await;
            assert_eq!(portrait(&both.store).await, portrait(&both.model).await, "after {steps} steps");
            let found = both.store.known_states(&ids, later).await.unwrap();
            assert_eq!(found, both.model.known_states(&ids, later).await.unwrap(), "after {steps} steps");
            for id in [&ids[0], &ids[1], &ids[2_198], &ids[2_199]] {
                assert_eq!(both.store.explain(id).await.unwrap(), both.model.explain(id).await.unwrap());
            }
            let repeat = vec![admitted(&events[1]), admitted(&events[2_199])];
            let found = both.store.ingest(repeat.clone(), later).await.unwrap().outcomes;
            assert_eq!(found, both.model.ingest(repeat, later).await.unwrap().outcomes);
            both.store.write_duplicate_counts().await.unwrap();
            both.model.write_duplicate_counts().await.unwrap();
            assert_eq!(both.store.check().await.unwrap().problems, Vec::<String>::new(), "after {steps} steps");
        }
        assert_eq!(by_retention, purged.by_retention);
        assert!(steps >= 4, "a drop, and three steps for what is remembered: {steps}");
        let left = "SELECT count(*) FROM pg_tables WHERE schemaname = 'cn_relay' AND tablename LIKE 'leaving_%'";
        assert_eq!(numbers(&database.url(), left).await, [0]);
        let left = "SELECT count(*) FROM cn_relay.event_dedupe WHERE no IS NULL";
        assert_eq!(numbers(&database.url(), left).await, [2_200]);
    });
}

#[test]
fn queries_are_answered_while_months_are_dropped() {
    // P-7, W-1
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        for month in 0..6 {
            let now = NOW.after(DAY * 31 * month);
            let batch = (0..300).map(|n| note(&format!("note {month} {n}")).at(n).tag(["r", "x"]).build());
            store.confirm_clock(now).await.unwrap();
            store.ingest(batch.map(|event| admitted(&event)).collect(), now).await.unwrap();
        }
        let later = NOW.after(DAY * 400);
        store.confirm_clock(later).await.unwrap();
        let tag = |letter: &str, value: &str| Filter::new().with_tag(Letter::from_name(letter).unwrap(), [value]);
        let filters = [tag("t", TOPIC), tag("r", "x"), Filter::new().with_kinds([Kind(1)]), Filter::new()];
        let purge = async {
            let mut gone = 0;
            // A long-running query keeps a month from being dropped until the next purge.
            while gone < 1_800 {
                gone += store.purge(&Retention::default(), later).await.unwrap().by_retention;
            }
            gone
        };
        let read = || async {
            loop {
                for filter in &filters {
                    let query = Query::of(filter.clone().with_limit(400), Viewer::unauthenticated(), later);
                    let found = store.query(&query).await.unwrap().events.len();
                    assert!([0, 300, 400].contains(&found), "months go whole: {found}");
                }
            }
        };
        let gone = tokio::select! {
            gone = purge => gone,
            _ = async { tokio::join!(read(), read(), read()) } => unreachable!(),
        };
        assert_eq!(gone, 1_800);
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
}
