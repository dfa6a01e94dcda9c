//! A full map and a full disk: the store refuses writes, loses nothing, and still accepts deletion and vanish requests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{path::Path, process::Command};

use kukuri_domain::{Event, PublicKey, Refusal, retention::Retention};
use kukuri_store::{
    Outcome,
    conformance::build::{ALICE, BOB, CAROL, NOW, admitted, deletion, event, later, note, vanish},
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_testing::test_name;
use support::{block_on, quick};

const TMPFS_PLACE: &str = "KUKURI_TMPFS_PLACE";

#[test]
fn a_full_map_refuses_writes_except_deletion_and_vanish_requests() {
    let dir = tempfile::tempdir().unwrap();
    let options = LmdbOptions { map_size: 16 << 20, reserve: 3 << 20, ..quick() };
    block_on(fill_and_recover(&LmdbStore::open(dir.path(), options).unwrap()));
}

#[test]
fn a_full_disk_refuses_writes_except_deletion_and_vanish_requests() {
    if let Ok(place) = std::env::var(TMPFS_PLACE) {
        return fill_a_small_disk(Path::new(&place));
    }
    // A small tmpfs in a separate mount namespace.
    let dir = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=32m tmpfs "$KUKURI_TMPFS_PLACE" && exec "$0" --exact "$1" --nocapture"#;
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(test_name!(a_full_disk_refuses_writes_except_deletion_and_vanish_requests))
        .env(TMPFS_PLACE, dir.path())
        .output()
        .unwrap();
    let said = [child.stdout, child.stderr].concat();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_full_store_decides_each_event_of_a_batch_by_itself() {
    // E-9
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), LmdbOptions { map_size: 16 << 20, reserve: 3 << 20, ..quick() }).unwrap();
    block_on(async {
        let stored = fill(&store, BOB).await;
        let known = &stored[0];
        let passing = event(20_001).by(ALICE).build();
        let new = note("no room for this").by(ALICE).build();
        let request = deletion().by(BOB).at(700).of(&stored[1]).build();
        let batch = [known, &passing, &new, &request].into_iter().map(admitted).collect();
        let ingested = store.ingest(batch, NOW).await.unwrap();
        let refused = Outcome::Refused(Refusal::DiskFull);
        assert_eq!(ingested.outcomes, [Outcome::Duplicate, Outcome::Ephemeral, refused, Outcome::Stored]);
    });
}

#[test]
fn a_purge_frees_space_in_a_full_store() {
    // P-5: the events have many tags, so their removal touches many pages.
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), LmdbOptions { map_size: 64 << 20, reserve: 2 << 20, ..quick() }).unwrap();
    block_on(async {
        let tagged = |n: usize| {
            let draft = note(&format!("note {n}")).by(BOB).at(n as u64 % 900);
            (0..12)
                .fold(draft, |draft, tag| draft.tag(["x", &format!("{}", (n * 12 + tag) * 7_919 % 1_000_003)]))
                .build()
        };
        let mut n = 0;
        loop {
            let batch: Vec<_> = (n..n + 200).map(|n| admitted(&tagged(n))).collect();
            n += 200;
            let ingested = store.ingest(batch, NOW).await.unwrap();
            if ingested.outcomes.contains(&Outcome::Refused(Refusal::DiskFull)) {
                break;
            }
        }
        let month = Retention::default();
        let now = later(31 * 24 * 3_600);
        store.confirm_clock(now).await.unwrap();
        let purged = store.purge(&month, now).await.expect("a purge must not need the room it makes");
        assert!(purged.by_retention > 1_000, "{purged:?}");
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        let new = note("room again").by(ALICE).build();
        let taken = store.ingest(vec![admitted(&new)], now).await.unwrap();
        assert_eq!(taken.outcomes, [Outcome::Stored]);
    });
}

fn fill_a_small_disk(place: &Path) {
    let options = LmdbOptions { reserve: 4 << 20, ..LmdbOptions::default() };
    let store = LmdbStore::open(place, options.clone()).unwrap();
    block_on(fill_and_recover(&store));
    drop(store);

    // Another file takes the rest of the disk; the store's reserve is already allocated.
    let store = LmdbStore::open(place, options).unwrap();
    let stored = block_on(fill(&store, CAROL));
    let _ = std::fs::write(place.join("ballast"), vec![0; 32 << 20]);
    let request = deletion().by(CAROL).at(900).of(&stored[0]).build();
    assert_eq!(block_on(take(&store, &request)), Outcome::Stored);
    assert_eq!(block_on(store.check()).unwrap().problems, Vec::<String>::new());
}

async fn fill_and_recover(store: &LmdbStore) {
    let stored = fill(store, BOB).await;
    assert!(stored.len() > 500, "{} events are too few to call it full", stored.len());
    let ids: Vec<_> = stored.iter().map(|event| event.id).collect();
    let found = store.get(&ids, NOW).await.unwrap();
    assert!(found.iter().all(Option::is_some), "what was acknowledged is there");
    assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());

    for target in stored.iter().step_by(stored.len() / 40) {
        let request = deletion().by(BOB).at(700).of(target).build();
        assert_eq!(take(store, &request).await, Outcome::Stored, "a deletion is taken on a full disk");
        assert_eq!(store.get(&[target.id], NOW).await.unwrap(), [None]);
    }
    for (why, event) in [
        ("a note", note("still full").by(ALICE).at(800).build()),
        ("P-6: a deletion by an author without another event", deletion().by(ALICE).at(800).of(&stored[0]).build()),
        ("P-6: a vanish request by such an author", vanish().by(CAROL).at(800).build()),
    ] {
        assert_eq!(take(store, &event).await, Outcome::Refused(Refusal::DiskFull), "{why}");
    }

    assert_eq!(take(store, &vanish().by(BOB).at(900).build()).await, Outcome::Stored, "so is a vanish request");
    assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    // LMDB reuses pages two transactions after they were freed.
    for round in 0..3 {
        take(store, &deletion().by(BOB).at(901 + round).build()).await;
    }
    assert_eq!(take(store, &note("room again").by(ALICE).at(910).build()).await, Outcome::Stored);
}

/// Ingests notes, in batches and then one by one, until the store is full. Returns the acknowledged notes.
async fn fill(store: &LmdbStore, author: PublicKey) -> Vec<Event> {
    let mut stored = Vec::new();
    for size in [40, 1] {
        let mut is_full = false;
        for batch in 0..2_000 {
            let text = |n| format!("{size} {batch} {n} {}", "x".repeat(3_000));
            let events: Vec<_> = (0..size).map(|n| note(&text(n)).by(author).at(n).build()).collect();
            let taken = store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
            for (event, outcome) in events.into_iter().zip(&taken.outcomes) {
                match outcome {
                    Outcome::Stored => stored.push(event),
                    Outcome::Refused(Refusal::DiskFull) => is_full = true,
                    other => panic!("an odd answer: {other:?}"),
                }
            }
            if is_full {
                break;
            }
        }
        assert!(is_full, "it never filled up");
    }
    stored
}

async fn take(store: &LmdbStore, event: &Event) -> Outcome {
    store.ingest(vec![admitted(event)], NOW).await.unwrap().outcomes.remove(0)
}
