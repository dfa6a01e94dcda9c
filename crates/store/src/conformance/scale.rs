//! Inputs larger than one step of a store: the results of all steps together must equal the model's.

use std::time::Duration;

use kukuri_domain::{
    Event, Filter, Kind, Letter, Sketch, Viewer,
    capacity::Capacity,
    retention::{Keep, Retention},
    subscription::{IngestPolicy, SubscriptionChange},
};

use super::{
    build::{BOB, NOW, OTHER_TOPIC, TOPIC, admitted, at, deletion, later, note, other_topic, topic, vanish},
    fold::{self, Follower},
    probe::{TIMELESS, figures, is_true, names_its_answer, visible, without_stages},
    subject::{Harness, Subject},
};
use crate::{
    ingest::StoreRules,
    maintenance::{PurgeCursor, Purged},
    model::ModelStore,
    port::*,
    query::Query,
};

/// The store under test and the model, with the same input.
struct Both<'h, H: Harness> {
    store: Subject<'h, H>,
    model: ModelStore,
    events: Vec<Event>,
}

impl<'h, H: Harness> Both<'h, H> {
    async fn open(harness: &'h H) -> Self {
        Self::open_with(harness, StoreRules::default()).await
    }

    async fn open_with(harness: &'h H, rules: StoreRules) -> Self {
        let store = Subject::open(harness, rules.clone()).await;
        Self { store, model: ModelStore::new(rules), events: Vec::new() }
    }

    async fn send(&mut self, events: Vec<Event>) {
        let batch: Vec<_> = events.iter().map(admitted).collect();
        let found = self.store.ingest(batch.clone(), NOW).await.expect("a batch");
        assert_eq!(found, self.model.ingest(batch, NOW).await.expect("a batch"));
        self.events.extend(events);
    }

    /// Purges both; checks that their reports and that of a dry run are equal.
    async fn purge(&self, retention: &Retention, seconds: u64) -> Purged {
        let before = figures(&*self.store).await;
        let dry_run = self.store.dry_run_purge(retention, later(seconds), usize::MAX).await.expect("a dry run");
        assert_eq!(figures(&*self.store).await, before, "a dry run changes nothing");
        let purged = self.store.purge(retention, later(seconds)).await.expect("a purge");
        let expected = self.model.purge(retention, later(seconds)).await.expect("a purge");
        assert_eq!(without_stages(&purged), without_stages(&expected));
        assert_eq!(without_stages(&dry_run.purged), without_stages(&purged));
        assert!(dry_run.is_complete);
        purged
    }

    /// Checks that both hold the same events, and that the outbox agrees.
    async fn compare(&self, after: &str) {
        assert_eq!(visible(&*self.store, TIMELESS).await, visible(&self.model, TIMELESS).await, "{after}");
        let summary = |stats: crate::report::Stats| (stats.effective, stats.by_class, stats.head, stats.ids);
        let (found, expected) =
            (self.store.stats().await.expect("figures"), self.model.stats().await.expect("figures"));
        assert_eq!(summary(found), summary(expected), "{after}");
        let topics = fold::topics_of(&self.events.iter().collect::<Vec<_>>());
        let held = Some(fold::held_by(&*self.store, &topics).await);
        assert_eq!(fold::from_start(&*self.store).await, held, "{after}: all rows");
        assert_eq!(Follower::begin(&*self.store, 100).await.catch_up(&*self.store).await, held, "{after}: a snapshot");
        assert_eq!(self.store.check().await.expect("a check").problems, Vec::<String>::new(), "{after}");
    }
}

/// Notes within few seconds in two topics, every fifth by Bob: many ties of `created_at`.
fn notes(count: u64) -> Vec<Event> {
    let note = |number: u64| {
        let draft = note(&format!("note {number}")).at(number % 7);
        let draft = if number.is_multiple_of(3) { draft.tag(["t", OTHER_TOPIC]) } else { draft };
        let draft = if number.is_multiple_of(5) { draft.by(BOB) } else { draft };
        if number.is_multiple_of(2) { draft.until(10).build() } else { draft.tag(["t", "hashtag"]).build() }
    };
    (0..count).map(note).collect()
}

/// W-1.
pub(super) async fn long_answers_are_whole_and_in_order<H: Harness>(harness: &H) {
    let mut both = Both::open(harness).await;
    both.send(notes(1_300)).await;
    let filters = [
        Filter::new(),
        Filter::new().with_kinds([Kind(1), Kind(5)]),
        Filter::new().with_authors([BOB]),
        Filter::new().with_tag(Letter::T, [TOPIC, OTHER_TOPIC]),
        Filter::new().with_tag(Letter::T, ["hashtag", OTHER_TOPIC]),
        Filter::new().with_since(at(2)).with_until(at(4)),
        Filter::new().with_ids(both.events.iter().map(|event| event.id)),
    ];
    for filter in filters {
        for limit in [None, Some(1), Some(15), Some(16), Some(17), Some(200), Some(511), Some(512), Some(513)] {
            let filter = limit.iter().fold(filter.clone(), |filter, limit| filter.with_limit(*limit));
            let query = Query::of(filter, Viewer::unauthenticated(), NOW);
            let found = both.store.query(&query).await.expect("an answer");
            let expected = both.model.query(&query).await.expect("an answer");
            assert_eq!((found.seq, &found.events), (expected.seq, &expected.events), "{query:?}");
            assert!(names_its_answer(&*both.store, &query, &found).await, "{query:?}");
            let sketch = Sketch::for_filter(&Filter::new().with_tag(Letter::E, ["any"]));
            let count = both.store.count(&query, sketch.clone()).await.expect("a count");
            assert!(is_true(&found, count.events), "{:?}, {query:?}", found.rest);
            assert_eq!(count, both.model.count(&query, sketch).await.expect("a count"), "{query:?}");
        }
    }
}

/// D-8, D-12: one request removes many events.
pub(super) async fn a_request_takes_as_much_as_it_names<H: Harness>(harness: &H) {
    let mut both = Both::open(harness).await;
    let notes = notes(2_600);
    both.send(notes.clone()).await;
    let mine = notes.iter().filter(|note| note.pubkey != BOB).take(1_200);
    both.send(vec![mine.fold(deletion(), |request, note| request.of(note)).build()]).await;
    both.compare("a deletion").await;
    both.send(vec![vanish().at(9).build()]).await;
    both.compare("a vanish request").await;
}

/// X-3, P-5, O-10.
pub(super) async fn upkeep_goes_through_all_there_is<H: Harness>(harness: &H) {
    let mut both = Both::open(harness).await;
    both.send(notes(2_600)).await;
    let (found, expected) = (both.store.expire(later(10)).await, both.model.expire(later(10)).await);
    assert_eq!(found.expect("a sweep"), expected.expect("a sweep"));
    both.compare("a sweep").await;

    let keep = Keep::For(Duration::from_secs(20));
    let retention = Retention { regular: keep, replaced: keep, dedupe: keep, ..Retention::default() };
    assert!(both.purge(&retention, 20).await.by_retention > 0);
    both.compare("a purge").await;

    let retention = Retention { outbox: keep, ..retention };
    assert!(both.purge(&retention, 40).await.outbox > 0);
    assert_eq!(both.store.check().await.expect("a check").problems, Vec::<String>::new(), "the outbox");
}

/// X-3, P-5: a sweep or purge that stops after one step and starts again later misses nothing and repeats nothing.
pub(super) async fn upkeep_that_was_left_goes_on_where_it_was<H: Harness>(harness: &H) {
    let mut both = Both::open(harness).await;
    both.send(notes(2_600)).await;
    let (first, _) = both.store.expire_some(later(10)).await.expect("a step");
    assert_eq!(both.store.check().await.expect("a check").problems, Vec::<String>::new(), "a step of a sweep");
    let rest = both.store.expire(later(10)).await.expect("a sweep");
    let expected = both.model.expire(later(10)).await.expect("a sweep");
    assert_eq!((first.expired + rest.expired, rest.next), (expected.expired, expected.next));
    both.compare("a sweep").await;

    let keep = Keep::For(Duration::from_secs(20));
    let retention = Retention { regular: keep, replaced: keep, dedupe: keep, ..Retention::default() };
    let expected = both.model.purge(&retention, later(20)).await.expect("a purge");
    let (mut by_retention, mut ids) = (0, 0);
    for steps in 1..=3 {
        let mut cursor = Some(PurgeCursor::default());
        let mut purged = Purged::default();
        for _ in 0..steps {
            let Some(begun) = cursor.take() else { break };
            let step = both.store.purge_some(&retention, later(20), begun).await.expect("a step");
            (purged, cursor) = (step.purged, step.next);
        }
        assert_eq!(both.store.check().await.expect("a check").problems, Vec::<String>::new(), "{steps} steps");
        (by_retention, ids) = (by_retention + purged.by_retention, ids + purged.ids);
    }
    let rest = both.store.purge(&retention, later(20)).await.expect("a purge");
    assert_eq!((by_retention + rest.by_retention, ids + rest.ids), (expected.by_retention, expected.ids));
    both.compare("a purge").await;
}

/// P-6: more than one topic (or the node) exceeds its capacity, by more rows than one step removes.
pub(super) async fn room_is_made_in_all_places_that_are_full<H: Harness>(harness: &H) {
    let rules = StoreRules { capacity: Capacity { max_events: Some(1_200), max_bytes: None }, ..StoreRules::default() };
    let mut both = Both::open_with(harness, rules).await;
    both.send(notes(2_600)).await;
    for (topic, max_events) in [(topic(), 1_500), (other_topic(), 300)] {
        let policy = IngestPolicy { max_events: Some(max_events), ..IngestPolicy::default() };
        let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
        both.store.change_subscription(&topic, change, NOW).await.expect("a change");
        both.model.change_subscription(&topic, change, NOW).await.expect("a change");
    }
    assert_eq!(both.purge(&Retention::default(), 1).await.by_capacity, 2_600 - 1_140, "down to 95 % of the node");
    both.compare("a purge").await;
}
