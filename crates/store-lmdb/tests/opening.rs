//! Opening a store: locks, formats, incomplete stores; files that are no store are not changed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{fs, path::Path, process::Command};

use heed::{EnvOpenOptions, types::Bytes};
use kukuri_domain::{
    TopicId,
    retention::{Keep, Retention},
    subscription::SubscriptionChange,
};
use kukuri_store::{
    Archive, DumpCursor, Outcome, StoreError,
    conformance::{
        build::{NOW, OTHER_TOPIC, admitted, article, bare, later, note, other_topic, topic},
        partial_sets::{items, set_of},
    },
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_testing::test_name;
use support::{block_on, contents, quick};

const READER_PLACE: &str = "KUKURI_READER_PLACE";

#[test]
fn a_second_writer_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    let error = LmdbStore::open(dir.path(), quick()).err().expect("the store is locked");
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("another process is writing"), "{error}");

    drop(store);
    LmdbStore::open(dir.path(), quick()).expect("the lock ends with its holder");
}

#[test]
fn a_reader_in_another_process_can_read_and_not_write() {
    if let Ok(place) = std::env::var(READER_PLACE) {
        return read_beside_the_writer(Path::new(&place));
    }
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    block_on(store.ingest(vec![admitted(&note("seen by the reader").build())], NOW)).unwrap();
    let reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test_name!(a_reader_in_another_process_can_read_and_not_write)])
        .env(READER_PLACE, dir.path())
        .output()
        .unwrap();
    assert!(reader.status.success(), "{}", String::from_utf8_lossy(&reader.stdout));
    block_on(store.ingest(vec![admitted(&note("and the writer goes on").build())], NOW)).unwrap();
}

fn read_beside_the_writer(place: &Path) {
    let store = LmdbStore::open_for_reading(place, quick()).unwrap();
    block_on(async {
        assert_eq!(store.stats().await.unwrap().effective, 1);
        let refused = store.ingest(vec![admitted(&note("not from here").build())], NOW).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly)));
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        let minute = Keep::For(std::time::Duration::from_secs(60));
        let retention = Retention { regular: minute, replaced: minute, ..Retention::default() };
        let refused = store.dry_run_purge(&retention, later(60), usize::MAX).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "a dry run needs the writer");
    });
    let second = LmdbStore::open(place, quick()).err().expect("the writer holds the lock");
    assert!(matches!(second, StoreError::Locked { .. }), "{second}");
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    drop(LmdbStore::open(dir.path(), quick()).unwrap());
    put_raw(dir.path(), "meta", b"format", b"kukuri-store\0\0\0\x63");

    let before = contents(dir.path());
    let error = LmdbStore::open(dir.path(), quick()).err().expect("format 99 is not known");
    assert!(matches!(error, StoreError::Newer { found: 99, supported: 3, .. }), "{error}");
    assert!(LmdbStore::open_for_reading(dir.path(), quick()).is_err(), "nor is it read");
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn a_file_of_another_program_is_refused_and_not_touched() {
    for (what, make) in [
        ("an LMDB file with other tables", make_other_lmdb as fn(&Path)),
        ("no LMDB file at all", |dir| fs::write(dir.join("data.mdb"), b"a photograph, perhaps".repeat(1_000)).unwrap()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path());
        let before = contents(dir.path());
        let error = LmdbStore::open(dir.path(), quick()).err().unwrap_or_else(|| panic!("{what} was opened"));
        assert!(matches!(error, StoreError::Foreign { .. }), "{what}: {error}");
        assert_eq!(contents(dir.path()), before, "{what}");
    }
}

#[test]
fn a_directory_without_a_store_cannot_be_opened_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let error = LmdbStore::open_for_reading(dir.path(), quick()).err().expect("there is nothing to read");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert!(contents(dir.path()).is_empty());
}

#[test]
fn an_interrupted_creation_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    // A crash after LMDB has written its first pages, before any table.
    let env = raw_env(dir.path());
    env.write_txn().unwrap().commit().unwrap();
    env.prepare_for_closing().wait();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    assert_eq!(block_on(store.stats()).unwrap().effective, 0);
}

#[test]
fn stores_of_every_format_still_open() {
    // `cargo xtask fixture` wrote each fixture when its format was new; they never change.
    for format in ["format-1", "format-2", "format-3"] {
        opens(&Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(format));
    }
}

fn opens(fixture: &Path) {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture.join("data.mdb"), dir.path().join("data.mdb")).unwrap();
    let expected: Vec<_> =
        fs::read_to_string(fixture.join("effective.jsonl")).unwrap().lines().map(str::to_owned).collect();
    let deleted = fs::read_to_string(fixture.join("deleted.json")).unwrap();

    let store = LmdbStore::open(dir.path(), LmdbOptions { rules: quick().rules, ..quick() }).unwrap();
    block_on(async {
        let page = store.snapshot(Default::default(), 1_000).await.unwrap();
        let found: Vec<_> =
            page.events.iter().map(|event| String::from_utf8(event.event.json.to_vec()).unwrap()).collect();
        assert_eq!(found, expected);
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());

        let deleted = kukuri_domain::Event::from_json(deleted.trim()).unwrap();
        let again = store.ingest(vec![admitted(&deleted)], later(1)).await.unwrap();
        assert!(matches!(again.outcomes[0], Outcome::Refused(_)), "what was deleted stays out: {:?}", again.outcomes);
        let new = store.ingest(vec![admitted(&note("written by a later program").build())], later(2)).await.unwrap();
        assert_eq!(new.outcomes, [Outcome::Stored]);
        assert_eq!(store.subscriptions().await.unwrap().len(), 1);
        assert_eq!(store.offsets().await.unwrap().len(), 1);
    });
}

#[test]
fn migration_leaves_traces_of_deleted_rows() {
    // G-7: format 1 has no traces; the migration derives them from the rows that remain.
    let version = article("a", "").tag(["t", OTHER_TOPIC]).at(1).build();
    let by_id = bare(5).tag(["t", OTHER_TOPIC]).of(&version).at(2).build();
    let target = note("by address").at(1).build();
    let of_note = bare(5).tag(["t", OTHER_TOPIC]).of(&target).at(2).build();
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    block_on(store.ingest([&version, &by_id, &target, &of_note].map(admitted).to_vec(), NOW)).unwrap();
    let sets = |store: &LmdbStore| {
        block_on(async { [items(store, &set_of(&topic()), 10).await, items(store, &set_of(&other_topic()), 10).await] })
    };
    let before = sets(&store);
    assert_eq!(before.each_ref().map(Vec::len), [3, 3], "two requests and a version, in each");
    drop(store);

    clear_raw(dir.path(), &["traces", "traces-by-id"]);
    put_raw(dir.path(), "meta", b"format", b"kukuri-store\0\0\0\x01");
    assert!(LmdbStore::open_for_reading(dir.path(), quick()).is_err(), "it has to be brought up to date first");
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    assert_eq!(sets(&store), before);
    assert_eq!(block_on(store.check()).unwrap().problems, Vec::<String>::new());
}

#[test]
fn check_reports_a_lost_trace() {
    let version = article("a", "").at(1).build();
    let request = bare(5).tag(["t", OTHER_TOPIC]).of(&version).at(2).build();
    for table in ["traces", "traces-by-id"] {
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), quick()).unwrap();
        block_on(store.ingest([&version, &request].map(admitted).to_vec(), NOW)).unwrap();
        drop(store);
        clear_raw(dir.path(), &[table]);
        let store = LmdbStore::open(dir.path(), quick()).unwrap();
        assert!(!block_on(store.check()).unwrap().problems.is_empty(), "{table}");
    }
}

fn make_other_lmdb(dir: &Path) {
    put_raw(dir, "somebody-elses", b"key", b"value");
}

fn raw_env(dir: &Path) -> heed::Env {
    #[allow(unsafe_code)]
    // SAFETY: nothing else has this directory open.
    unsafe {
        EnvOpenOptions::new().max_dbs(32).map_size(1 << 24).open(dir).unwrap()
    }
}

/// Empties tables directly in LMDB, without the store.
fn clear_raw(dir: &Path, tables: &[&str]) {
    let env = raw_env(dir);
    env.create_databases_and_commit(env.write_txn().unwrap(), |opener, txn| {
        for table in tables {
            opener.create_database::<Bytes, Bytes>(txn, Some(table))?.clear(txn)?;
        }
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(()))
    })
    .unwrap();
    env.prepare_for_closing().wait();
}

/// Writes directly to LMDB, without the store.
fn put_raw(dir: &Path, table: &str, key: &[u8], value: &[u8]) {
    let env = raw_env(dir);
    env.create_databases_and_commit(env.write_txn().unwrap(), |opener, txn| {
        let table = opener.create_database::<Bytes, Bytes>(txn, Some(table))?;
        table.put(txn, key, value)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(()))
    })
    .unwrap();
    env.prepare_for_closing().wait();
}

#[test]
fn an_incomplete_copy_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = LmdbStore::open(dir.path().join("source"), quick()).unwrap();
    block_on(source.change_subscription(&TopicId::global(), SubscriptionChange::enable(), NOW)).unwrap();
    let page = block_on(source.dump(DumpCursor::default(), 10)).unwrap();
    assert_eq!(page.pieces.len(), 1);

    let place = dir.path().join("target");
    let target = LmdbStore::open(&place, quick()).unwrap();
    block_on(target.load(page.pieces.clone())).unwrap();
    drop(target);
    for opened in [LmdbStore::open(&place, quick()), LmdbStore::open_for_reading(&place, quick())] {
        let error = opened.map(drop).unwrap_err().to_string();
        assert!(error.contains("a copy into this store broke off"), "{error}");
    }
    let error = block_on(source.load(page.pieces)).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty), "{error}");
}

#[test]
fn compaction_is_refused_while_the_store_is_open_and_keeps_all_data() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("store");
    let store = LmdbStore::open(&place, quick()).unwrap();
    assert!(matches!(LmdbStore::compact(&place, &quick()), Err(StoreError::Locked { .. })));
    for number in 0..5 {
        block_on(store.ingest(vec![admitted(&note(&number.to_string()).build())], NOW)).unwrap();
    }
    drop(store);
    let reader = LmdbStore::open_for_reading(&place, quick()).unwrap();
    assert!(matches!(LmdbStore::compact(&place, &quick()), Err(StoreError::InUse { .. })));
    drop(reader);
    LmdbStore::compact(&place, &quick()).unwrap();
    let store = LmdbStore::open(&place, quick()).unwrap();
    assert_eq!(block_on(store.stats()).unwrap().effective, 5);
}

#[test]
fn a_dry_run_of_a_purge_is_bounded_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    let minute = Keep::For(std::time::Duration::from_secs(60));
    let retention = Retention { regular: minute, replaced: minute, ..Retention::default() };
    block_on(async {
        let notes: Vec<_> = (0..1_500).map(|n| admitted(&note(&format!("note {n}")).at(n).build())).collect();
        store.ingest(notes, NOW).await.unwrap();
        // Commits the batch.
        store.snapshot(Default::default(), 1).await.unwrap();
        let (before, head, transactions) =
            (store.stats().await.unwrap(), *store.watch_outbox().borrow(), store.transactions());

        let bounded = store.dry_run_purge(&retention, later(60), 1_000).await.unwrap();
        assert!(!bounded.is_complete && (1..=1_000).contains(&bounded.purged.by_retention), "{bounded:?}");
        let whole = store.dry_run_purge(&retention, later(60), usize::MAX).await.unwrap();
        assert!(whole.is_complete);
        let jumped = store.dry_run_purge(&retention, later(2 * 24 * 3_600), usize::MAX).await.unwrap();
        assert!(jumped.purged.held, "P-5: by the writer's clock");

        assert_eq!(store.stats().await.unwrap(), before);
        assert_eq!((*store.watch_outbox().borrow(), store.transactions()), (head, transactions));
        let purged = store.purge(&retention, later(60)).await.unwrap();
        assert_eq!((purged.by_retention, purged), (1_500, whole.purged), "as much as the dry run has counted");
    });
}

#[test]
fn a_restored_store_has_another_epoch_and_a_compacted_one_the_same() {
    // Y-5
    let dir = tempfile::tempdir().unwrap();
    let [original, restored, copy] = ["original", "restored", "copy.mdb"].map(|name| dir.path().join(name));
    let epoch_of = |store: &LmdbStore| *store.watch_epoch().borrow();
    let store = LmdbStore::open(&original, quick()).unwrap();
    let epoch = epoch_of(&store);
    block_on(store.ingest(vec![admitted(&note("one").build())], NOW)).unwrap();
    store.copy_to(&copy).unwrap();
    drop(store);
    LmdbStore::compact(&original, &quick()).unwrap();
    assert_eq!(epoch_of(&LmdbStore::open(&original, quick()).unwrap()), epoch);
    assert_eq!(epoch_of(&LmdbStore::open_for_reading(&original, quick()).unwrap()), epoch);

    LmdbStore::install(&restored, &copy).unwrap();
    let other = epoch_of(&LmdbStore::open(&restored, quick()).unwrap());
    assert_ne!(other, epoch);
    assert_eq!(epoch_of(&LmdbStore::open(&restored, quick()).unwrap()), other, "once");
}

#[test]
fn a_snapshot_page_looks_at_a_bounded_number_of_hidden_rows() {
    // U-4
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    block_on(async {
        let notes: Vec<_> = (0..6_000).map(|number| note(&number.to_string()).at(1).build()).collect();
        for some in notes.chunks(1_000) {
            store.ingest(some.iter().map(admitted).collect(), NOW).await.unwrap();
            let request = some.iter().fold(kukuri_store::conformance::build::deletion(), |draft, note| draft.of(note));
            store.ingest(vec![admitted(&request.at(2).build())], NOW).await.unwrap();
        }
        let (mut cursor, mut seen, mut pages) = (Default::default(), 0, 0);
        loop {
            let page = store.snapshot(cursor, 500).await.unwrap();
            seen += page.events.len();
            pages += 1;
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        assert_eq!((seen, pages), (6, 2), "the requests alone are left");
    });
}
