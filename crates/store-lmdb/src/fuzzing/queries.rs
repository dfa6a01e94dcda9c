//! Any small set of events, and any queries: the embedded store answers like the model. Every choice is one byte, so that
//! any bytes are a case.

use kukuri_domain::{Admission, Event, Filter, Kind, Letter, Millis, PublicKey, Sketch, Viewer, Visibility};
use kukuri_store::{
    Budget, Query, StoreRules,
    conformance::build::{ALICE, BOB, CAROL, Draft, NOW, OTHER_TOPIC, RELAY, TOPIC, admitted, at, bare, later},
    model::ModelStore,
    port::*,
};

use super::{block_on, directory, small};
use crate::LmdbStore;

const AUTHORS: [PublicKey; 3] = [ALICE, BOB, CAROL];
const KINDS: [u16; 10] = [1, 0, 5, 30_023, 7, 62, 1059, 10_002, 20_001, 1];
const TOPICS: [&str; 5] = [TOPIC, OTHER_TOPIC, "kukuri:global", "hashtag", "nothing"];
const MAX_EVENTS: usize = 24;
const MAX_QUERIES: usize = 8;

/// The bytes that are left. At the end every choice is the first.
struct Choices<'b>(&'b [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Those whose bit is set.
    fn some_of<T: Copy>(&mut self, list: &[T]) -> Vec<T> {
        let bits = self.byte();
        let is_set = |(index, _): &(usize, &T)| bits >> (index % 8) & 1 == 1;
        list.iter().enumerate().filter(is_set).map(|(_, item)| *item).collect()
    }
}

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let events = events(&mut choices);
    let dir = directory();
    let store = LmdbStore::open(dir.path(), small()).expect("a new store");
    let model = ModelStore::new(StoreRules::default());
    block_on(async {
        ingest(&mut choices, &events, &store, &model).await;
        for _ in 0..=choices.below(MAX_QUERIES) {
            let query = query(&mut choices, &events);
            compare(&query, &store, &model).await;
        }
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let found = store.get(&ids, later(30)).await.expect("events by id");
        assert_eq!(found, model.get(&ids, later(30)).await.expect("events by id"));
        let report = store.check().await.expect("a check");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    });
}

async fn ingest(choices: &mut Choices<'_>, events: &[Event], store: &LmdbStore, model: &ModelStore) {
    let mut rest: Vec<_> = events.iter().map(admitted).collect();
    while !rest.is_empty() {
        let batch: Vec<_> = rest.drain(..(1 + choices.below(6)).min(rest.len())).collect();
        let stored = store.ingest(batch.clone(), NOW).await.expect("a batch");
        assert_eq!(stored.outcomes, model.ingest(batch, NOW).await.expect("a batch").outcomes);
    }
}

async fn compare(query: &Query, store: &LmdbStore, model: &ModelStore) {
    let found = store.query(query).await.expect("an answer");
    let expected = model.query(query).await.expect("an answer");
    assert_eq!((found.seq, &found.events), (expected.seq, &expected.events), "{query:?}");
    let sketch = || Sketch::for_filter(&Filter::new().with_tag(Letter::E, ["any"]));
    let count = store.count(query, sketch()).await.expect("a count");
    assert_eq!(count, model.count(query, sketch()).await.expect("a count"), "{query:?}");
    for max in [found.events.len(), found.events.len().saturating_sub(1)] {
        let ids = store.ids(query, max).await.expect("ids");
        assert_eq!(ids, model.ids(query, max).await.expect("ids"), "{query:?}");
    }
}

/// Events that pass admission.
fn events(choices: &mut Choices<'_>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..choices.below(MAX_EVENTS) {
        let event = event(choices, &events);
        if is_admitted(&event) {
            events.push(event);
        }
    }
    events
}

fn is_admitted(event: &Event) -> bool {
    let topics = kukuri_domain::topic::TopicRules::new(kukuri_domain::topic::TopicsMode::Global, &[""; 0]);
    let admission = Admission { topics: topics.expect("nothing is reserved"), ..Admission::default() };
    admission.screen(event.clone(), kukuri_domain::Origin::unauthenticated_client(), NOW).is_ok()
}

fn event(choices: &mut Choices<'_>, earlier: &[Event]) -> Event {
    let kind = choices.one_of(&KINDS);
    let mut draft = bare(kind).by(choices.one_of(&AUTHORS)).at(choices.below(5) as u64);
    for topic in choices.some_of(&TOPICS) {
        draft = draft.tag(["t", topic]);
    }
    let tags = choices.byte();
    if tags & 1 != 0 && !earlier.is_empty() {
        draft = draft.of(&earlier[choices.below(earlier.len())]);
    }
    if tags & 2 != 0 && !earlier.is_empty() {
        draft = refer(draft, &earlier[choices.below(earlier.len())]);
    }
    if tags & 4 != 0 {
        draft = draft.tag(["p", &choices.one_of(&AUTHORS).to_string()]);
    }
    if tags & 8 != 0 || kind == 30_023 {
        draft = draft.tag(["d", choices.one_of(&["", "a", "b"])]);
    }
    if tags & 16 != 0 {
        draft = draft.until(choices.below(60) as u64);
    }
    if kind == 62 {
        draft = draft.tag(["relay", choices.one_of(&[RELAY, "ALL_RELAYS", "wss://elsewhere.example.com"])]);
    }
    draft.content(&choices.below(4).to_string()).build()
}

/// An `a` tag, malformed if the event has no address.
fn refer(draft: Draft, event: &Event) -> Draft {
    match event.address() {
        Some(address) => draft.tag(["a", &address.to_string()]),
        None => draft.tag(["a", &format!("{}:{}:", event.kind, event.pubkey)]),
    }
}

fn query(choices: &mut Choices<'_>, events: &[Event]) -> Query {
    let filters = (0..=choices.below(3)).map(|_| filter(choices, events)).collect();
    let viewer = match choices.below(3) {
        0 => Viewer::Node,
        _ => Viewer::Client(choices.some_of(&AUTHORS).into()),
    };
    let now: Millis = choices.one_of(&[NOW, later(30)]);
    let bytes = choices.one_of(&[usize::MAX, 4_000, 1]);
    Query { filters, viewer, visibility: Visibility::default(), now, bytes, budget: Budget::default() }
}

fn filter(choices: &mut Choices<'_>, events: &[Event]) -> Filter {
    let mut filter = Filter::new();
    let [low, high] = [choices.byte(), choices.byte()];
    let ids = |choices: &mut Choices<'_>| {
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let first = choices.below(ids.len());
        choices.some_of(&ids[first.min(ids.len())..])
    };
    if low & 1 != 0 {
        filter = filter.with_ids(ids(choices));
    }
    if low & 2 != 0 {
        filter = filter.with_authors(choices.some_of(&AUTHORS));
    }
    if low & 4 != 0 {
        filter = filter.with_kinds(choices.some_of(&KINDS).into_iter().map(Kind));
    }
    if low & 8 != 0 {
        filter = filter.with_tag(Letter::T, choices.some_of(&TOPICS));
    }
    if low & 16 != 0 {
        filter = filter.with_tag(Letter::P, choices.some_of(&AUTHORS).iter().map(ToString::to_string));
    }
    if low & 32 != 0 {
        filter = filter.with_tag(Letter::D, choices.some_of(&["", "a", "b"]));
    }
    if low & 64 != 0 {
        filter = filter.with_tag(Letter::E, ids(choices).iter().map(ToString::to_string));
    }
    if high & 1 != 0 {
        filter = filter.with_since(at(choices.below(6) as u64));
    }
    if high & 2 != 0 {
        filter = filter.with_until(at(choices.below(6) as u64));
    }
    if high & 4 != 0 {
        filter = filter.with_limit(choices.below(12));
    }
    filter
}
