//! The searches of one request share a budget (Y-2).
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use async_trait::async_trait;
use kukuri_domain::{EventId, Kind};
use kukuri_search::{
    DocumentChange, Finder, Findings, Hit, IndexPosition, IndexStats, Search, SearchIndex, SearchPermit, SearchQuery,
    index::Result,
};
use kukuri_store::{
    Budget, StoreRules,
    conformance::{
        build::{ALICE, BOB, Draft, NOW, OTHER_TOPIC, admitted, at, bare, event, note, topic},
        faulty::FaultyStore,
    },
    model::ModelStore,
    port::*,
};

/// An index whose documents all match, in this order. It counts searches.
#[derive(Default)]
struct CountingIndex {
    ids: Vec<EventId>,
    reached: Option<IndexPosition>,
    searches: AtomicUsize,
}

#[async_trait]
impl SearchIndex for CountingIndex {
    async fn search_with_permit(&self, search: &Search, _: SearchPermit) -> Result<Vec<Hit>> {
        self.searches.fetch_add(1, Relaxed);
        let hits = self.ids.iter().skip(search.skip).take(search.limit);
        Ok(hits.map(|id| Hit { id: *id, score: 1.0 }).collect())
    }

    async fn reached(&self) -> Result<Option<IndexPosition>> {
        Ok(self.reached.clone())
    }

    async fn apply(&self, _: Vec<DocumentChange>, _: IndexPosition) -> Result<()> {
        Ok(())
    }

    async fn begin(&self) -> Result<()> {
        Ok(())
    }

    async fn fill(&self, _: Vec<DocumentChange>, _: Option<IndexPosition>) -> Result<()> {
        Ok(())
    }

    async fn switch(&self) -> Result<()> {
        Ok(())
    }

    async fn ids(&self, _: Option<EventId>, _: usize) -> Result<Vec<EventId>> {
        Ok(Vec::new())
    }

    async fn stats(&self) -> Result<IndexStats> {
        Ok(IndexStats::default())
    }
}

async fn store_of(texts: impl Iterator<Item = String>) -> (Arc<FaultyStore>, Vec<EventId>) {
    let store = Arc::new(FaultyStore::new(Arc::new(ModelStore::new(StoreRules::default()))));
    let ids = send(&*store, texts.enumerate().map(|(n, text)| note(&text).at(n as u64 % 900))).await;
    (store, ids)
}

async fn send(store: &dyn Store, drafts: impl Iterator<Item = Draft>) -> Vec<EventId> {
    let events: Vec<_> = drafts.map(Draft::build).collect();
    store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
    events.iter().map(|event| event.id).collect()
}

/// A finder whose index has all events of the store.
fn finder_of(store: &Arc<FaultyStore>, ids: &[EventId]) -> Finder {
    let reached = Some(IndexPosition::from(*store.watch_outbox().borrow()));
    let index = CountingIndex { ids: ids.to_vec(), reached, ..CountingIndex::default() };
    Finder::new(Arc::new(index), Arc::clone(store) as _, [Kind(1)])
}

fn ids_of(findings: &Findings) -> Vec<EventId> {
    findings.found.iter().map(|found| found.stored.id).collect()
}

fn search(text: &str, limit: usize) -> Search {
    Search::new(SearchQuery::parse(text).unwrap(), NOW.seconds(), limit)
}

#[tokio::test]
async fn filters_that_turn_down_all_hits_cost_a_handful_of_searches_and_one_budget_of_hits() {
    // Y-2
    let (store, ids) = store_of((0..2_500).map(|n| format!("word {n}"))).await;
    let reached = Some(IndexPosition::from(*store.watch_outbox().borrow()));
    let index = Arc::new(CountingIndex { ids, reached, ..CountingIndex::default() });
    let finder = Finder::new(Arc::clone(&index) as _, Arc::clone(&store) as _, [Kind(1)]);
    let mut searching = finder.begin(NOW, &Budget::default()).await.unwrap();
    let looked_at = AtomicUsize::new(0);
    for _ in 0..20 {
        let turn_down = |_: &_, _: &[_]| {
            looked_at.fetch_add(1, Relaxed);
            false
        };
        let findings = searching.find(&search("word", 1), usize::MAX, turn_down).await.unwrap();
        assert!(findings.found.is_empty() && findings.next.is_some(), "there may be more");
    }
    let searches = index.searches.load(Relaxed);
    assert!(searches <= 4, "{searches} searches");
    assert_eq!(looked_at.load(Relaxed), 2_000, "hits of all filters together");
}

#[tokio::test]
async fn a_search_that_is_shown_everything_asks_once() {
    let (store, ids) = store_of((0..100).map(|n| format!("word {n}"))).await;
    let reached = Some(IndexPosition::from(*store.watch_outbox().borrow()));
    let index = Arc::new(CountingIndex { ids: ids.clone(), reached, ..CountingIndex::default() });
    let finder = Finder::new(Arc::clone(&index) as _, store as _, [Kind(1)]);
    let findings = finder.find(&search("word", 30), NOW, |_, _| true).await.unwrap();
    let found: Vec<_> = findings.found.iter().map(|found| found.stored.id).collect();
    assert_eq!((found.as_slice(), findings.next), (&ids[..30], Some(30)));
    assert_eq!(index.searches.load(Relaxed), 1);
    let last = finder.find(&Search { skip: 90, ..search("word", 30) }, NOW, |_, _| true).await.unwrap();
    assert_eq!((last.found.len(), last.next), (10, None));
}

#[tokio::test]
async fn what_the_index_lacks_is_read_once_for_all_searches() {
    // Y-2
    let (store, ids) = store_of((0..320).map(|n| format!("word {n}"))).await;
    let finder = Finder::new(Arc::new(CountingIndex::default()), Arc::clone(&store) as _, [Kind(1)]);
    let mut searching = finder.begin(NOW, &Budget::default()).await.unwrap();
    for (number, id) in ids.iter().enumerate().take(4) {
        let findings = searching.find(&search(&format!("word {number}"), 5), usize::MAX, |_, _| true).await.unwrap();
        assert_eq!(findings.found.len(), 1);
        assert_eq!(findings.found[0].stored.id, *id, "the oldest: all are read");
    }
    assert_eq!(store.calls("outbox"), 1);
    let (reading, hits) = (320 / 32, 4);
    assert_eq!(store.calls("get"), reading + hits, "each event once, and what was found");
    // Y-1: a search of another client reads what it finds alone.
    let other = finder.find(&search("word 7", 5), NOW, |_, _| true).await.unwrap();
    assert_eq!(other.found[0].stored.id, ids[7]);
    assert_eq!(store.calls("get"), reading + hits + 1);
}

#[tokio::test]
async fn what_the_index_lacks_is_read_up_to_a_number_of_bytes() {
    // Y-2
    let large = "long ".repeat(15_000);
    let (store, ids) = store_of((0..100).map(|n| format!("word{n} {large}"))).await;
    let finder = Finder::new(Arc::new(CountingIndex::default()), Arc::clone(&store) as _, [Kind(1)]);
    let newest = finder.find(&search("word99", 5), NOW, |_, _| true).await.unwrap();
    assert_eq!(newest.found[0].stored.id, ids[99]);
    assert_eq!(store.calls("get"), 2 + 1, "4 MiB of 7.5 MB, and the hit");
    let oldest = finder.find(&search("word0", 5), NOW, |_, _| true).await.unwrap();
    assert!(oldest.found.is_empty(), "it is not reached");
    assert_eq!(store.calls("get"), 3);
}

#[tokio::test]
async fn unindexed_events_that_turn_out_not_to_match_leave_half_of_the_hits_to_the_index() {
    // Y-2
    let (store, indexed) = store_of((0..5).map(|n| format!("word {n}"))).await;
    let finder = finder_of(&store, &indexed);
    send(&*store, (0..2_100).map(|n| note(&format!("word {n}")).by(BOB))).await;
    let before = store.calls("get");
    let by_alice = Search { authors: Some(vec![ALICE]), ..search("word", 10) };
    let findings = finder.find(&by_alice, NOW, |_, _| true).await.unwrap();
    assert_eq!((ids_of(&findings), findings.next), (indexed, None));
    assert!(findings.has_more, "older unindexed events are left out");
    let (reading, looked_at) = (2_100_usize.div_ceil(32), 1_000_usize.div_ceil(32));
    assert!(store.calls("get") - before <= reading + looked_at + 1);
}

#[tokio::test]
async fn unindexed_events_of_another_topic_or_kind_or_time_are_not_read() {
    // Y-2
    let (store, indexed) = store_of((0..5).map(|n| format!("word {n}"))).await;
    let finder = finder_of(&store, &indexed);
    let elsewhere = |n| bare(1).tag(["t", OTHER_TOPIC]).content(&format!("word {n}")).at(950);
    let unindexed = send(&*store, (0..2_100).map(elsewhere)).await;
    for (narrow, why) in [
        (Search { topics: Some(vec![topic()]), ..search("word", 10) }, "another topic"),
        (Search { kinds: Some(vec![Kind(0)]), ..search("word", 10) }, "another kind"),
        (Search { until: Some(at(949)), ..search("word", 10) }, "too new"),
        (Search { since: Some(at(951)), ..search("word", 10) }, "too old"),
    ] {
        let before = store.calls("get");
        let findings = finder.find(&narrow, NOW, |_, _| true).await.unwrap();
        assert_eq!(ids_of(&findings), indexed, "{why}");
        assert_eq!((store.calls("get") - before, findings.has_more), (1, false), "{why}: the hits alone");
    }
    let findings = finder.find(&search("word", 10), NOW, |_, _| true).await.unwrap();
    assert_eq!(
        ids_of(&findings),
        unindexed.iter().rev().take(10).copied().collect::<Vec<_>>(),
        "nothing rules them out"
    );
}

#[tokio::test]
async fn events_of_other_kinds_do_not_hide_older_unindexed_ones() {
    // Y-2
    let (store, ids) = store_of(["word".to_owned()].into_iter()).await;
    let large = "long ".repeat(15_000);
    send(&*store, (0..80).map(|n| event(1_111).content(&format!("{n} {large}")))).await;
    let finder = Finder::new(Arc::new(CountingIndex::default()), Arc::clone(&store) as _, [Kind(1)]);
    let findings = finder.find(&search("word", 5), NOW, |_, _| true).await.unwrap();
    assert_eq!((ids_of(&findings), findings.has_more), (ids, false));
    assert_eq!(store.calls("get"), 1 + 1, "the note, and the hit");
}

#[tokio::test]
async fn an_answer_ends_at_its_bytes_and_the_next_page_goes_on_there() {
    // Y-2
    let large = "long ".repeat(2_000);
    let (store, ids) = store_of((0..10).map(|n| format!("word {n} {large}"))).await;
    let indexed = finder_of(&store, &ids);
    let unindexed = Finder::new(Arc::new(CountingIndex::default()), Arc::clone(&store) as _, [Kind(1)]);
    for (max_bytes, expected) in [(35_000, 3), (1, 1), (0, 1)] {
        let mut skip = 0;
        while skip < ids.len() {
            let mut searching = indexed.begin(NOW, &Budget::default()).await.unwrap();
            let page = Search { skip, ..search("word", 20) };
            let findings = searching.find(&page, max_bytes, |_, _| true).await.unwrap();
            let end = (skip + expected).min(ids.len());
            assert_eq!(ids_of(&findings), ids[skip..end], "{max_bytes} bytes");
            assert_eq!((findings.next, findings.has_more), ((end < 10).then_some(end), end < 10));
            skip = end;
        }
        let mut searching = unindexed.begin(NOW, &Budget::default()).await.unwrap();
        let findings = searching.find(&search("word", 20), max_bytes, |_, _| true).await.unwrap();
        assert_eq!((findings.found.len(), findings.next), (expected, Some(0)), "{max_bytes} bytes, unindexed");
    }
}

#[tokio::test]
async fn tokens_are_read_again_after_the_store_went_back() {
    // Y-5
    let model = Arc::new(ModelStore::new(StoreRules::default()));
    let store = Arc::new(FaultyStore::new(Arc::clone(&model) as _));
    let finder = Finder::new(Arc::new(CountingIndex::default()), Arc::clone(&store) as _, [Kind(1)]);
    let empty = model.save();
    for (reads, why) in [(1 + 1, "the event, and the hit"), (1, "the hit"), (1 + 1, "another epoch")] {
        if why == "another epoch" {
            model.go_back(&empty);
        }
        send(&*store, [note("word")].into_iter()).await;
        let before = store.calls("get");
        assert_eq!(finder.find(&search("word", 5), NOW, |_, _| true).await.unwrap().found.len(), 1);
        assert_eq!(store.calls("get") - before, reads, "{why}");
    }
}
