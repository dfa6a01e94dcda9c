//! Copies between the embedded store and Postgres, in both directions, keep everything.

use std::{collections::HashSet, mem::discriminant, path::Path, time::Duration};

use kukuri_domain::{
    Refusal,
    capacity::Stage,
    retention::Retention,
    subscription::{IngestPolicy, SubscriptionChange},
};
use kukuri_store::{
    Archive, DumpCursor, Outcome, Piece, Seq, Standing, StoreError,
    conformance::build::{
        BOB, CAROL, NOW, OTHER_TOPIC, admitted, article, bare, deletion, event, note, other_topic, profile, vanish,
    },
    port::*,
};
use kukuri_store_lmdb::{Durability, LmdbOptions, LmdbStore};
use kukuri_store_postgres::PostgresStore;

use crate::{
    patient,
    support::{Database, block_on, numbers, run},
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn embedded(place: &Path) -> LmdbStore {
    let options =
        LmdbOptions { durability: Durability::Unsynced, reserve: 1 << 20, map_size: 1 << 30, ..LmdbOptions::default() };
    LmdbStore::open(place, options).unwrap()
}

async fn connect(database: &Database) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(&database.url(), patient()).await
}

async fn pieces(store: &dyn Archive, limit: usize) -> Vec<Piece> {
    let (mut pieces, mut next) = (Vec::new(), Some(DumpCursor::default()));
    while let Some(cursor) = next {
        let page = store.dump(cursor, limit).await.unwrap();
        pieces.extend(page.pieces);
        next = page.next;
    }
    pieces
}

async fn load(store: &dyn Archive, pieces: &[Piece], limit: usize) {
    for some in pieces.chunks(limit) {
        store.load(some.to_vec()).await.unwrap();
    }
}

/// The pieces sorted, to compare those whose order is not defined.
fn unordered(pieces: &[Piece]) -> Vec<String> {
    let mut texts: Vec<_> = pieces.iter().map(|piece| format!("{piece:?}")).collect();
    texts.sort();
    texts
}

/// Fills a store with every kind of row, as months of operation would.
async fn live(store: &dyn Store) {
    let policy = IngestPolicy { max_events: Some(1), ..IngestPolicy::default() };
    let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
    store.change_subscription(&other_topic(), change, NOW).await.unwrap();
    for day in [0, 45] {
        let now = NOW.after(DAY * day);
        store.confirm_clock(now).await.unwrap();
        store.purge(&Retention::default(), now).await.unwrap();
        let salt = |text: &str| format!("{text} {day}");
        let notes: Vec<_> = (0..9).map(|n| note(&salt("note")).at(n).tag(["r", "link"]).build()).collect();
        let elsewhere = note(&salt("elsewhere")).tag(["t", OTHER_TOPIC]).tag(["t", "hashtag"]).build();
        let absent = note(&salt("absent")).build();
        let title = article(&salt("title"), "text").at(3).build();
        let withdrawn = article(&salt("withdrawn"), "text").at(3).build();
        let mut events = notes.clone();
        events.extend([
            elsewhere.clone(),
            profile(&salt("old")).at(u64::from(day)).build(),
            profile(&salt("new")).at(u64::from(day) + 1).build(),
            title.clone(),
            article(&salt("another title"), "text").build(),
            bare(1059).tag(["p", &CAROL.to_string()]).by(CAROL).at(day.into()).build(),
            note(&salt("for a while")).until(u64::from(day) * 24 * 3_600 + 5).build(),
            deletion().of(&notes[0]).of(&absent).build(),
            withdrawn.clone(),
            deletion().of(&withdrawn).at(4).build(),
            deletion().of_key(&title).at(4).by(title.pubkey).build(),
            note(&salt("by one who leaves")).by(BOB).build(),
            vanish().by(BOB).at(9 + u64::from(day)).build(),
            event(20_001).build(),
        ]);
        store.ingest(events.iter().map(admitted).collect(), now).await.unwrap();
        store.ingest(notes.iter().map(admitted).collect(), now).await.unwrap();
        store.expire(now.after(Duration::from_secs(60))).await.unwrap();
        store.known_states(&[elsewhere.id], now).await.unwrap();
        let head = store.stats().await.unwrap().head;
        store.set_offset("index-v1", Seq(head.0 - 3), now).await.unwrap();
    }
    store.set_offset("trust-v1", Seq(2), NOW).await.unwrap();
    store.write_duplicate_counts().await.unwrap();
}

#[test]
fn a_copy_to_postgres_and_back_keeps_everything() {
    // D-6, D-9, D-12, P-1, P-2, P-6, O-6, O-8
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let source = embedded(&dir.path().join("source"));
        live(&source).await;
        let before = pieces(&source, 7).await;
        assert_eq!(before.iter().map(discriminant).collect::<HashSet<_>>().len(), 12, "some of each kind");
        let is_full = |piece: &Piece| matches!(piece, Piece::Topic { stage: Stage::Purging, .. });
        assert!(before.iter().any(is_full), "a topic is at a stage");
        let hidden = |piece: &&Piece| matches!(piece, Piece::Event(_, record, _) if matches!(record.standing, Standing::Gone { .. }));
        assert!(before.iter().filter(hidden).count() >= 4, "deleted by id, by address, replaced, expired");
        assert!(source.stats().await.unwrap().outbox_first > Seq(1), "a part of the outbox was dropped");

        for limit in [1, 5, 10_000] {
            let database = Database::new().await;
            let store = connect(&database).await.unwrap();
            load(&store, &before, limit).await;
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
            let mut stats = [source.stats().await.unwrap(), store.stats().await.unwrap()];
            stats.iter_mut().for_each(|stats| stats.disk_bytes = None);
            assert_eq!(stats[0], stats[1]);
            let there = pieces(&store, limit).await;
            assert_eq!(unordered(&there), unordered(&before));

            let back = embedded(&dir.path().join(limit.to_string()));
            load(&back, &there, limit).await;
            assert_eq!(back.check().await.unwrap().problems, Vec::<String>::new());
            assert_eq!(pieces(&back, 7).await, before);
        }
    });
}

#[test]
fn a_node_continues_in_the_copied_store_where_it_stopped() {
    // E-9, O-6, P-5
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let source = embedded(dir.path());
        live(&source).await;
        let database = Database::new().await;
        let store = connect(&database).await.unwrap();
        load(&store, &pieces(&source, 100).await, 100).await;
        drop(store);
        let store = connect(&database).await.unwrap();

        let now = NOW.after(DAY * 46);
        let deleted = note("note 45").at(0).tag(["r", "link"]).build();
        let absent = note("absent 45").build();
        let purged = note("note 0").at(1).tag(["r", "link"]).build();
        let events = [deleted, absent, purged, profile("older").at(1).build(), note("new").build()];
        let batch: Vec<_> = events.iter().map(admitted).collect();
        let outcomes = store.ingest(batch.clone(), now).await.unwrap().outcomes;
        let refused = Outcome::Refused;
        let deleted = refused(Refusal::Deleted);
        let expected =
            [deleted.clone(), deleted, refused(Refusal::Purged), refused(Refusal::Replaced), Outcome::Stored];
        assert_eq!(outcomes, expected);
        assert_eq!(source.ingest(batch, now).await.unwrap().outcomes, expected);

        let offset = store.offsets().await.unwrap().into_iter().find(|offset| offset.consumer == "index-v1").unwrap();
        let rows = store.outbox(offset.last_seq, 100).await.unwrap();
        assert_eq!(rows.len(), 4, "what it had not read, and the new one");
        assert_eq!(rows, source.outbox(offset.last_seq, 100).await.unwrap());
        let retention = Retention::default();
        assert_eq!(store.purge(&retention, now).await.unwrap(), source.purge(&retention, now).await.unwrap());
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
}

#[test]
fn a_large_copy_has_the_indexes_of_its_source() {
    block_on(async {
        let (from, to) = (Database::new().await, Database::new().await);
        let (source, store) = (connect(&from).await.unwrap(), connect(&to).await.unwrap());
        let events: Vec<_> =
            (0..1_500).map(|n| admitted(&note(&format!("note {n}")).tag(["r", "x"]).build())).collect();
        source.ingest(events, NOW).await.unwrap();
        load(&store, &pieces(&source, 1_200).await, 1_200).await;
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        let indexes = "SELECT hashtextextended(string_agg(indexdef, ' ' ORDER BY indexdef), 0) FROM pg_indexes \
             WHERE schemaname = 'cn_relay' AND (tablename IN ('events', 'event_topics', 'event_tags') \
             OR tablename LIKE '%_default_202311') GROUP BY tablename ORDER BY tablename";
        let expected = numbers(&from.url(), indexes).await;
        assert_eq!(expected.len(), 6);
        assert_eq!(numbers(&to.url(), indexes).await, expected);
    });
}

#[test]
fn an_incomplete_copy_and_a_target_that_is_not_empty_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let source = embedded(dir.path());
        live(&source).await;
        let all = pieces(&source, 100).await;
        let database = Database::new().await;
        let (store, bystander) = (connect(&database).await.unwrap(), connect(&database).await.unwrap());
        let (some, rest) = all.split_at(all.len() / 2);
        load(&store, some, 10).await;
        let refused = connect(&database).await.err().unwrap();
        assert!(matches!(refused, StoreError::Unfinished { .. }), "{refused}");
        let refused = bystander.ingest(vec![admitted(&note("too early").build())], NOW).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unfinished { .. }), "who had it open writes nothing into it: {refused}");
        let refused = bystander.load(rest.to_vec()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unfinished { .. }), "nor loads into it what is another's: {refused}");
        let refused = store.dump(DumpCursor::default(), 10).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unfinished { .. }), "{refused}");
        load(&store, rest, 10).await;

        let whole = connect(&database).await.unwrap();
        for store in [&store, &bystander, &whole] {
            let refused = store.load(all.clone()).await.unwrap_err();
            assert!(matches!(refused, StoreError::NotEmpty), "{refused}");
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        }
    });
}

#[test]
fn writers_wait_until_a_dump_has_ended() {
    block_on(async {
        let database = Database::new().await;
        let (store, other) = (connect(&database).await.unwrap(), connect(&database).await.unwrap());
        let events: Vec<_> = (0..5).map(|n| note("note").at(n).build()).collect();
        store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
        let first = store.dump(DumpCursor::default(), 2).await.unwrap();
        let late = [admitted(&note("late").build())].to_vec();
        let mut writing = std::pin::pin!(other.ingest(late, NOW));
        let (mut pieces, mut next) = (first.pieces, first.next);
        while let Some(cursor) = next {
            let page = tokio::select! {
                biased;
                written = &mut writing => panic!("it was written in the middle of a copy: {written:?}"),
                page = store.dump(cursor, 2) => page.unwrap(),
            };
            pieces.extend(page.pieces);
            next = page.next;
        }
        writing.await.unwrap();
        let copied = pieces.iter().filter(|piece| matches!(piece, Piece::Event(..))).count();
        assert_eq!(copied, 5, "and after the last page it was");

        // A dump ends with its session: the lock is released, so later pages might be inconsistent with earlier ones.
        let next = store.dump(DumpCursor::default(), 2).await.unwrap().next.unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_locks \
             WHERE relation = 'cn_relay.writers_lock'::regclass AND mode = 'ExclusiveLock'";
        run(&database.url(), end).await.unwrap();
        assert!(store.dump(next.clone(), 2).await.is_err());
        assert!(store.dump(next, 2).await.is_err());
        assert!(store.dump(DumpCursor::default(), 2).await.is_ok());
    });
}
