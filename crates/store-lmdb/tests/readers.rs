//! Readers and the writer do not block each other.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use kukuri_domain::{Admission, Filter, Letter, Limits, Origin, Viewer, retention::Retention};
use kukuri_store::{
    Query,
    conformance::build::{NOW, TOPIC, admitted, deletion, note, profile},
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use support::{block_on, quick};

const NOTES: u64 = 20_000;

#[test]
fn a_running_query_neither_blocks_the_writer_nor_grows_the_file() {
    let all = Query::of(Filter::new().with_tag(Letter::T, [TOPIC]), Viewer::Node, NOW);
    let dir = tempfile::tempdir().unwrap();
    let store = store_of_notes(&dir);
    let before = store.file_bytes();
    replace_profiles(&store, 0..300);
    let growth_alone = store.file_bytes() - before;

    // The query yields between its steps; the test polls it once and continues it only after the writes.
    let mut counting = pin!(store.count(&all, None));
    assert!(counting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it has come half way");
    let before = store.file_bytes();
    replace_profiles(&store, 300..600);
    let growth_beside = store.file_bytes() - before;
    assert!(growth_beside <= growth_alone, "{growth_beside} bytes beside the query, {growth_alone} without");

    // Events written after the query began are not counted; the profile of that moment has been replaced.
    let counted = block_on(counting).unwrap();
    assert_eq!(counted.events, NOTES);
}

#[test]
fn a_query_answers_from_the_snapshot_at_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_of_notes(&dir);
    let all = Query::of(Filter::new().with_tag(Letter::T, [TOPIC]), Viewer::Node, NOW);
    let mut answering = pin!(store.query(&all));
    assert!(answering.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let late = note("too late for the answer").at(0).build();
    block_on(store.ingest(vec![admitted(&late)], NOW)).unwrap();
    let answer = block_on(answering).unwrap();
    assert_eq!(answer.events.len() as u64, NOTES);
    assert!(answer.events.iter().all(|event| event.id != late.id));
    let rows = block_on(store.outbox(answer.seq, 10)).unwrap();
    assert_eq!(rows.iter().map(|row| row.event_id).collect::<Vec<_>>(), [late.id], "it is live from there on");
}

/// Without group commit: these tests depend on when transactions commit.
fn store_of_notes(dir: &tempfile::TempDir) -> LmdbStore {
    let store = LmdbStore::open(dir.path(), LmdbOptions { group_commit_window: Duration::ZERO, ..quick() }).unwrap();
    let notes: Vec<_> = (0..NOTES).map(|n| admitted(&note(&format!("note {n}")).at(n % 900).build())).collect();
    for batch in notes.chunks(4_000) {
        block_on(store.ingest(batch.to_vec(), NOW)).unwrap();
    }
    store
}

/// Each profile replaces the previous one, so that the writes leave mostly freed pages.
fn replace_profiles(store: &LmdbStore, versions: std::ops::Range<u64>) {
    for version in versions {
        block_on(store.ingest(vec![admitted(&profile("a version").at(version).build())], NOW)).unwrap();
    }
}

#[test]
fn idle_upkeep_writes_nothing_with_many_topics() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    for first in (0..1_000).step_by(50) {
        let topics = (first..first + 50).map(|n| format!("kukuri:{n:064x}"));
        let request = topics.fold(deletion(), |request, topic| request.tag(["t", &topic])).build();
        let wide = Admission { limits: Limits { topics_per_event: 51, ..Limits::default() }, ..Admission::default() };
        let request = wide.screen(request, Origin::unauthenticated_client(), NOW).unwrap().admit_unchecked();
        block_on(store.ingest(vec![request], NOW)).unwrap();
    }
    block_on(store.stats()).unwrap();
    let before = store.transactions();
    block_on(store.purge(&Retention::default(), NOW)).unwrap();
    block_on(store.expire(NOW)).unwrap();
    assert_eq!(store.transactions(), before);
}
