//! Readers and the writer do not block each other.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use kukuri_domain::{
    Admission, Event, Filter, Letter, Limits, Origin, TopicId, Viewer, Visibility, retention::Retention,
    visibility::Overlay,
};
use kukuri_store::{
    Query,
    conformance::build::{NOW, TOPIC, admitted, deletion, note, profile},
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use support::{block_on, quick};

const NOTES: u64 = 20_000;
/// Bytes that the file may grow by while queries run.
const MAX_GROWTH: u64 = 1 << 20;

#[test]
fn running_queries_neither_block_the_writer_nor_grow_the_file() {
    // On a busy machine a thread may be held up within a transaction, but not in each attempt.
    let mut attempts = Vec::new();
    let is_small = |_| {
        let (alone, beside) = growth_alone_and_beside_queries();
        attempts.push((alone, beside));
        // A transaction of a query is short, and so is the list of pages that wait for its end.
        beside <= 2 * alone + MAX_GROWTH
    };
    let is_small = (0..5).any(is_small);
    assert!(is_small, "bytes without queries, and beside them: {attempts:?}");
}

/// Bytes by which the file grows with replacements: without queries, and while queries run.
fn growth_alone_and_beside_queries() -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(store_of_notes(&dir));
    let before = store.file_bytes();
    replace_profiles(&store, 0..300);
    let growth_alone = store.file_bytes() - before;

    let is_over = Arc::new(AtomicBool::new(false));
    let counting = std::thread::spawn({
        let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
        move || {
            let all = Query::of(Filter::new().with_tag(Letter::T, [TOPIC]), Viewer::Node, NOW);
            let mut counted = Vec::new();
            while !is_over.load(Relaxed) {
                counted.push(block_on(store.count(&all, None)).unwrap().events);
            }
            counted
        }
    });
    let before = store.file_bytes();
    replace_profiles(&store, 300..600);
    let growth_beside = store.file_bytes() - before;
    is_over.store(true, Relaxed);
    // The profile may be replaced while a query counts.
    let counted = counting.join().unwrap();
    assert!(counted.iter().all(|events| (NOTES..=NOTES + 1).contains(events)), "{counted:?}");
    (growth_alone, growth_beside)
}

/// Calls a function when a query looks at the event with this number.
struct AtEvent {
    number: u64,
    seen: AtomicU64,
    then: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for AtEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at event {}", self.number)
    }
}

impl Overlay for AtEvent {
    fn withholds(&self, _: &Event, _: &[TopicId], _: &Viewer, _: Option<&Filter>) -> bool {
        if self.seen.fetch_add(1, Relaxed) == self.number {
            (self.then)();
        }
        false
    }
}

#[test]
fn a_query_answers_from_the_snapshot_at_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(store_of_notes(&dir));
    let late = note("too late for the answer").at(0).build();
    let then = {
        let (store, late) = (Arc::clone(&store), late.clone());
        // On a thread of its own: the query runs in a task.
        move || {
            let (store, late) = (Arc::clone(&store), late.clone());
            std::thread::spawn(move || block_on(store.ingest(vec![admitted(&late)], NOW)).unwrap()).join().unwrap();
        }
    };
    let overlay = AtEvent { number: NOTES / 2, seen: AtomicU64::new(0), then: Box::new(then) };
    let mut all = Query::of(Filter::new().with_tag(Letter::T, [TOPIC]), Viewer::unauthenticated(), NOW);
    all.visibility = Visibility::with_overlay(Arc::new(overlay));
    let answer = block_on(store.query(&all)).unwrap();
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
    // Commits the batches.
    block_on(store.snapshot(Default::default(), 1)).unwrap();
    let before = store.transactions();
    block_on(store.purge(&Retention::default(), NOW)).unwrap();
    block_on(store.expire(NOW)).unwrap();
    assert_eq!(store.transactions(), before);
}
