//! Readers and the writer do not get into each other's way.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use kukuri_domain::{Admission, Filter, Letter, Limits, Origin, Viewer, retention::Retention};
use kukuri_store::{
    Query, Store,
    conformance::build::{NOW, TOPIC, admitted, deletion, note, profile},
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use support::{block_on, quick};

const NOTES: u64 = 20_000;

#[test]
fn a_reader_in_the_middle_of_a_query_neither_blocks_the_writer_nor_makes_the_file_grow() {
    let all = Query::of(Filter::new().with_tag(Letter::T, [TOPIC]), Viewer::Node, NOW);
    let dir = tempfile::tempdir().unwrap();
    let store = store_of_notes(&dir);
    let before = store.file_bytes();
    replace_profiles(&store, 0..300);
    let growth_alone = store.file_bytes() - before;

    // The query gives the thread back between its steps; here it is not asked to go on for a long while.
    let mut counting = pin!(store.count(&all, None));
    assert!(counting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "it has come half way");
    let before = store.file_bytes();
    replace_profiles(&store, 300..600);
    let growth_beside = store.file_bytes() - before;
    assert!(growth_beside <= growth_alone, "{growth_beside} bytes beside the query, {growth_alone} without");

    // What came since the query began is not in its answer; the profile it would have found is replaced.
    let counted = block_on(counting).unwrap();
    assert_eq!(counted.events, NOTES);
}

#[test]
fn an_answer_holds_what_was_there_when_it_began() {
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

/// Each batch is committed at once: it is the transactions that are looked at here.
fn store_of_notes(dir: &tempfile::TempDir) -> LmdbStore {
    let store = LmdbStore::open(dir.path(), LmdbOptions { gather: Duration::ZERO, ..quick() }).unwrap();
    let notes: Vec<_> = (0..NOTES).map(|n| admitted(&note(&format!("note {n}")).at(n % 900).build())).collect();
    for batch in notes.chunks(4_000) {
        block_on(store.ingest(batch.to_vec(), NOW)).unwrap();
    }
    store
}

/// Each replaces the one before, so that little but old pages is left behind.
fn replace_profiles(store: &LmdbStore, versions: std::ops::Range<u64>) {
    for version in versions {
        block_on(store.ingest(vec![admitted(&profile("a version").at(version).build())], NOW)).unwrap();
    }
}

#[test]
fn upkeep_with_nothing_to_do_writes_nothing_however_many_topics_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    for first in (0..1_000).step_by(50) {
        let topics = (first..first + 50).map(|n| format!("kukuri:{n:064x}"));
        let request = topics.fold(deletion(), |request, topic| request.tag(["t", &topic])).build();
        let wide = Admission { limits: Limits { topics: 51, ..Limits::default() }, ..Admission::default() };
        let request = wide.screen(request, Origin::stranger(), NOW).unwrap().trusted();
        block_on(store.ingest(vec![request], NOW)).unwrap();
    }
    block_on(store.stats()).unwrap();
    let before = store.transactions();
    block_on(store.purge(&Retention::default(), NOW)).unwrap();
    block_on(store.expire(NOW)).unwrap();
    assert_eq!(store.transactions(), before);
}
