//! Write-ahead log: a crash loses no acknowledged batch and replays none twice.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{fs, path::Path, time::Duration};

use kukuri_domain::{Event, Filter, Letter, Viewer};
use kukuri_store::{
    Op, OutboxRow, Outcome, Query, Seq, StoreError,
    conformance::build::{BOB, NOW, TOPIC, admitted, deletion, note, profile, vanish},
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use support::{block_on, quick};

const WAL: &str = "wal.log";

/// A group commit window longer than any test: only explicit calls commit.
fn patient() -> LmdbOptions {
    LmdbOptions { group_commit_window: Duration::from_secs(3_600), ..quick() }
}

/// Notes, versions that replace each other, and a deletion, in several batches.
fn batches() -> Vec<Vec<Event>> {
    let notes: Vec<Event> = (0..20).map(|n| note(&format!("note {n}")).at(n).build()).collect();
    let versions: Vec<Event> = (0..5).map(|n| profile("a version").at(n).build()).collect();
    let request = deletion().of(&notes[3]).of(&notes[15]).at(50).build();
    vec![
        notes[..10].to_vec(),
        versions[..3].to_vec(),
        vec![request, notes[15].clone()],
        notes[10..].to_vec(),
        versions[3..].to_vec(),
    ]
}

fn ingest(store: &LmdbStore, events: &[Event]) -> Vec<Outcome> {
    block_on(store.ingest(events.iter().map(admitted).collect(), NOW)).unwrap().outcomes
}

/// Copies the files as a crash at this moment would leave them.
fn left_behind(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["data.mdb", WAL] {
        if from.join(file).exists() {
            fs::copy(from.join(file), dir.path().join(file)).unwrap();
        }
    }
    dir
}

fn effective(store: &LmdbStore) -> Vec<Event> {
    let all = Query::of(Filter::new().with_tag(Letter::T, [TOPIC]), Viewer::Node, NOW);
    block_on(store.query(&all)).unwrap().events.iter().map(|event| event.event().unwrap()).collect()
}

fn rows(store: &LmdbStore) -> Vec<(Seq, Op, kukuri_domain::EventId)> {
    let row = |row: OutboxRow| (row.seq, row.op, row.event_id);
    block_on(store.outbox(Seq::default(), 1_000)).unwrap().into_iter().map(row).collect()
}

#[test]
fn crash_at_any_point_keeps_acknowledged_events_once_and_in_order() {
    // P-3, O-5
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    let before = store.transactions();
    for (count, batch) in batches().iter().enumerate() {
        ingest(&store, batch);
        let told = rows(&store);
        assert_eq!(store.transactions(), before, "none of this is committed");

        let crashed = left_behind(dir.path());
        let again = LmdbStore::open(crashed.path(), patient()).unwrap();
        assert_eq!(rows(&again), told, "after {} batches", count + 1);
        assert_eq!(block_on(again.check()).unwrap().problems, Vec::<String>::new());
        // A second crash right after the start.
        let twice = LmdbStore::open(left_behind(crashed.path()).path(), patient()).unwrap();
        assert_eq!(rows(&twice), told);
    }
    let (shown, told) = (effective(&store), rows(&store));
    assert_eq!(store.transactions(), before + 1, "to be looked at, all of it was committed together");
    let again = LmdbStore::open(left_behind(dir.path()).path(), patient()).unwrap();
    assert_eq!((effective(&again), rows(&again)), (shown, told), "what the file still holds is over");
}

#[test]
fn log_under_its_former_name_is_replayed_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    batches().iter().for_each(|batch| drop(ingest(&store, batch)));
    let told = rows(&store);
    let crashed = left_behind(dir.path());
    fs::rename(crashed.path().join(WAL), crashed.path().join("ahead.log")).unwrap();

    let reader = LmdbStore::open_for_reading(crashed.path(), patient()).unwrap();
    assert_eq!(rows(&reader), told, "also for a reader, which has it replayed first");
    drop(reader);
    let again = LmdbStore::open(crashed.path(), patient()).unwrap();
    assert_eq!(rows(&again), told);
    assert!(!crashed.path().join("ahead.log").exists());
}

#[test]
fn records_of_committed_transactions_are_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    let notes: Vec<Event> = (0..9).map(|n| note(&format!("note {n}")).at(n).build()).collect();
    for three in notes.chunks(3) {
        three.iter().for_each(|note| drop(ingest(&store, std::slice::from_ref(note))));
        if three[0] != notes[6] {
            // Commits the transaction.
            block_on(store.snapshot(Default::default(), 1)).unwrap();
        }
    }
    // In the WAL, one record of the last transaction overwrites an old record; two old records follow it.
    let crashed = left_behind(dir.path());
    let again = LmdbStore::open(crashed.path(), patient()).unwrap();
    assert_eq!(rows(&again), rows(&store));
    assert_eq!(effective(&again).len(), 9);
}

#[test]
fn jump_of_the_clock_survives_a_crash_with_its_timestamps() {
    // P-5
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    ingest(&store, &[note("before").build()]);
    block_on(store.write_duplicate_counts()).unwrap();
    let jumped = |seconds: u64| NOW.after(Duration::from_secs(60 * 24 * 3_600 + seconds));
    // Nothing of the second batch is logged: its event is refused. But it advances the clock.
    let mut batches = vec![note("after").build(), note("expired").until(5).build(), note("later").build()];
    for (event, seconds) in batches.drain(..).zip([0, 7, 9]) {
        block_on(store.ingest(vec![admitted(&event)], jumped(seconds))).unwrap();
    }
    let told = block_on(store.outbox(Seq::default(), 10)).unwrap();
    assert_eq!(told.last().unwrap().written_at, NOW.after(Duration::from_secs(9)), "by elapsed time");
    let crashed = left_behind(dir.path());
    let again = LmdbStore::open(crashed.path(), patient()).unwrap();
    assert_eq!(block_on(again.outbox(Seq::default(), 10)).unwrap(), told);
    assert!(block_on(again.stats()).unwrap().clock_held, "nobody has confirmed the clock");
    assert!(block_on(again.expire(jumped(10))).unwrap().held);
}

#[test]
fn damaged_record_before_acknowledged_ones_is_reported_and_salvaged() {
    // P-3
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    let notes: Vec<Event> = (0..3).map(|n| note(&format!("note {n}")).at(n).build()).collect();
    notes.iter().for_each(|note| drop(ingest(&store, std::slice::from_ref(note))));
    let crashed = left_behind(dir.path());
    let wal = crashed.path().join(WAL);
    let mut rotten = fs::read(&wal).unwrap();
    rotten[60] ^= 1;
    fs::write(&wal, &rotten).unwrap();

    for reading in [false, true] {
        let opened = match reading {
            true => LmdbStore::open_for_reading(crashed.path(), patient()),
            false => LmdbStore::open(crashed.path(), patient()),
        };
        let refusal = opened.err().unwrap();
        assert!(matches!(refusal, StoreError::DamagedWal { before: 0, behind: 2, .. }), "{refusal}");
        assert_eq!(fs::read(&wal).unwrap(), rotten, "it is left untouched");
    }
    assert_eq!(LmdbStore::salvage(crashed.path(), patient()).unwrap(), 2);
    assert_eq!(fs::read(crashed.path().join("wal.log.damaged")).unwrap(), rotten);
    let again = LmdbStore::open(crashed.path(), patient()).unwrap();
    assert_eq!(effective(&again), [notes[2].clone(), notes[1].clone()]);
    assert_eq!(block_on(again.check()).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_large_deletion_is_committed_before_it_is_acknowledged() {
    // P-3: only the commit shows whether the disk has space for it.
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    let notes: Vec<Event> = (0..100).map(|n| note(&format!("note {n}")).at(n).build()).collect();
    ingest(&store, &notes);
    let small = deletion().of(&notes[0]).of(&notes[1]).build();
    let large = vanish().at(200).build();
    let later = note("somebody else's").by(BOB).build();
    let before = store.transactions();
    assert_eq!(ingest(&store, &[small]), [Outcome::Stored]);
    assert_eq!(store.transactions(), before, "this one waits with the notes");
    assert_eq!(ingest(&store, &[large.clone(), later.clone()]), [Outcome::Stored, Outcome::Stored]);
    assert_eq!(store.transactions(), before + 2, "what was there before it, and it");
    assert_eq!(effective(&store), [large, later]);
    assert_eq!(block_on(store.check()).unwrap().problems, Vec::<String>::new());
}

#[test]
fn closing_commits_everything_and_removes_the_wal() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    batches().iter().for_each(|batch| drop(ingest(&store, batch)));
    let told = rows(&store);
    drop(store);
    assert!(!dir.path().join(WAL).exists());
    assert_eq!(rows(&LmdbStore::open(dir.path(), patient()).unwrap()), told);
}

#[test]
fn a_transaction_is_committed_when_the_group_commit_window_ends() {
    let dir = tempfile::tempdir().unwrap();
    let options = LmdbOptions { group_commit_window: Duration::from_millis(20), ..quick() };
    let store = LmdbStore::open(dir.path(), options).unwrap();
    let before = store.transactions();
    ingest(&store, &[note("a note").build()]);
    while store.transactions() == before {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rows(&store).len(), 1);

    // Also while events keep arriving.
    let before = store.transactions();
    for number in 0.. {
        ingest(&store, &[note(&format!("note {number}")).build()]);
        assert!(number < 1_000_000, "it is never committed");
        if store.transactions() > before + 1 {
            break;
        }
    }
}

#[test]
fn a_crashed_store_can_be_read_and_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    batches().iter().for_each(|batch| drop(ingest(&store, batch)));
    let crashed = left_behind(dir.path());
    let reader = LmdbStore::open_for_reading(crashed.path(), patient()).unwrap();
    assert_eq!(effective(&reader), effective(&store));
    drop(reader);

    ingest(&store, &[note("one more").build()]);
    let crashed = left_behind(dir.path());
    LmdbStore::compact(crashed.path(), &patient()).unwrap();
    let compacted = LmdbStore::open(crashed.path(), patient()).unwrap();
    assert_eq!(effective(&compacted), effective(&store));
}

#[test]
fn without_a_writable_wal_each_batch_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(WAL)).unwrap();
    // An unreadable WAL may hold acknowledged records, so opening fails.
    assert!(LmdbStore::open(dir.path(), patient()).is_err());
    fs::remove_dir(dir.path().join(WAL)).unwrap();

    let store = LmdbStore::open(dir.path(), patient()).unwrap();
    fs::create_dir(dir.path().join(WAL)).unwrap();
    let before = store.transactions();
    assert_eq!(ingest(&store, &[note("a note").build()]), [Outcome::Stored]);
    assert_eq!(store.transactions(), before + 1);
    assert_eq!(effective(&store).len(), 1);
}
