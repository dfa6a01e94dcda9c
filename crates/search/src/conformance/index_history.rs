//! After random changes, rebuilds and reopens, searches find the same as a scan of all documents.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp};
use kukuri_store::Seq;
use proptest::{prelude::*, sample::select};

use super::{NOW, id, topic};
use crate::{Document, DocumentChange, IndexPosition, Search, SearchIndex, SearchQuery, Text};

const WORDS: [&str; 12] = [
    "rust",
    "Tokyo",
    "東京",
    "東京都庁",
    "京都",
    "ラーメン",
    "ﾗｰﾒﾝ",
    "猫",
    "tea",
    "green tea",
    "#nostr",
    "https://example.com/a",
];
const QUERIES: [&str; 12] = [
    "rust",
    "東京",
    "東京都",
    "京都",
    "らーめん",
    "ラーメン",
    "メン",
    "猫",
    "tea green",
    "nostr",
    "example",
    "tokyo 東京",
];

fn document() -> impl Strategy<Value = Document> {
    let words = |most| proptest::collection::vec(select(&WORDS[..]), 0..most);
    let rest = (0_u8..4, select(vec![1_u16, 0, 30023]), 0_u64..100, proptest::collection::btree_set(0_u8..3, 1..3));
    (any::<u8>(), words(2), words(5), rest).prop_map(|(number, title, body, (author, kind, age, topics))| Document {
        id: id(number % 24),
        author: PublicKey::from_bytes([author; 32]),
        kind: Kind(kind),
        created_at: Timestamp(NOW.0 - age * 86_400),
        topics: topics.into_iter().map(topic).collect(),
        text: Text { title: title.join(" "), body: body.join(" ") },
    })
}

fn search() -> impl Strategy<Value = Search> {
    let times = (proptest::option::of(0_u64..100), proptest::option::of(0_u64..100));
    let lists = (
        proptest::option::of(proptest::collection::vec(0_u8..3, 0..3)),
        proptest::option::of(proptest::collection::vec(select(vec![1_u16, 0, 30023]), 0..3)),
        proptest::option::of(proptest::collection::vec(0_u8..4, 0..3)),
    );
    (select(&QUERIES[..]), lists, times).prop_map(|(query, (topics, kinds, authors), (since, until))| Search {
        topics: topics.map(|topics| topics.into_iter().map(topic).collect()),
        kinds: kinds.map(|kinds| kinds.into_iter().map(Kind).collect()),
        authors: authors.map(|authors| authors.into_iter().map(|author| PublicKey::from_bytes([author; 32])).collect()),
        since: since.map(|days| Timestamp(NOW.0 - days * 86_400)),
        until: until.map(|days| Timestamp(NOW.0 - days * 86_400)),
        ..Search::new(SearchQuery::parse(query).expect("a query"), NOW, 100)
    })
}

/// A step; a document with `false` is removed.
#[derive(Clone, Debug)]
enum IndexStep {
    Apply(Vec<(Document, bool)>),
    Begin,
    Fill(Vec<(Document, bool)>),
    Switch,
    Reopen,
}

fn step() -> impl Strategy<Value = IndexStep> {
    let changes = || proptest::collection::vec((document(), proptest::bool::weighted(0.8)), 0..8);
    prop_oneof![
        8 => changes().prop_map(IndexStep::Apply),
        1 => Just(IndexStep::Begin),
        3 => changes().prop_map(IndexStep::Fill),
        1 => Just(IndexStep::Switch),
        1 => Just(IndexStep::Reopen),
    ]
}

/// Steps on an index, and searches to compare at the end.
#[derive(Clone, Debug)]
pub struct IndexHistory {
    steps: Vec<IndexStep>,
    searches: Vec<Search>,
}

/// Random histories.
pub fn index_histories() -> impl Strategy<Value = IndexHistory> {
    (proptest::collection::vec(step(), 1..12), proptest::collection::vec(search(), 1..8))
        .prop_map(|(steps, searches)| IndexHistory { steps, searches })
}

#[derive(Clone, Default)]
struct Expected {
    documents: BTreeMap<EventId, Document>,
    reached: Option<IndexPosition>,
}

impl Expected {
    fn change(&mut self, changes: Vec<(Document, bool)>) -> Vec<DocumentChange> {
        let mut converted = Vec::new();
        for (document, is_put) in changes {
            if is_put {
                let put = Box::new(document.clone());
                // Half of the new documents come as such.
                converted.push(match self.documents.contains_key(&document.id) || document.created_at.0 % 2 == 0 {
                    true => DocumentChange::Put(put),
                    false => DocumentChange::Add(put),
                });
                self.documents.insert(document.id, document);
            } else {
                converted.push(DocumentChange::Remove(document.id));
                self.documents.remove(&document.id);
            }
        }
        converted
    }

    fn answer(&self, search: &Search) -> BTreeSet<EventId> {
        let is_found = |document: &&Document| {
            search.query.is_in(&document.text.words())
                && search
                    .topics
                    .as_ref()
                    .is_none_or(|topics| topics.iter().any(|topic| document.topics.contains(topic)))
                && search.kinds.as_ref().is_none_or(|kinds| kinds.contains(&document.kind))
                && search.authors.as_ref().is_none_or(|authors| authors.contains(&document.author))
                && search.since.is_none_or(|since| document.created_at >= since)
                && search.until.is_none_or(|until| document.created_at <= until)
        };
        self.documents.values().filter(is_found).map(|document| document.id).collect()
    }
}

fn position(seq: u64) -> IndexPosition {
    IndexPosition { seq: Seq(seq), fingerprint: format!(r#"{{"row": "{seq} 東京"}}"#) }
}

/// Runs a history and compares the index with a scan of all documents. `open` opens the same index each time; it gets the
/// instance of the last time to close.
pub async fn run_index_history<I: SearchIndex>(history: IndexHistory, mut open: impl AsyncFnMut(Option<I>) -> I) {
    let mut index = open(None).await;
    let (mut expected, mut next) = (Expected::default(), None::<Expected>);
    let mut seq = 0;
    for step in history.steps {
        seq += 1;
        match step {
            IndexStep::Apply(changes) => {
                let changes = expected.change(changes);
                let reached = position(seq);
                expected.reached = Some(reached.clone());
                index.apply(changes, reached).await.expect("changes");
            }
            IndexStep::Begin => {
                index.begin().await.expect("a rebuild begun");
                next = Some(Expected::default());
            }
            IndexStep::Fill(changes) => match &mut next {
                Some(next) => {
                    let reached = seq.is_multiple_of(2).then(|| position(seq));
                    next.reached = reached.clone();
                    let changes = next.change(changes);
                    index.fill(changes, reached).await.expect("changes");
                }
                None => assert!(index.fill(Vec::new(), None).await.is_err(), "nothing was begun"),
            },
            IndexStep::Switch => match next.take() {
                Some(next) => {
                    index.switch().await.expect("a switch");
                    expected = next;
                }
                None => assert!(index.switch().await.is_err(), "nothing was begun"),
            },
            IndexStep::Reopen => {
                index = open(Some(index)).await;
                next = None;
            }
        }
        assert_eq!(index.reached().await.expect("a position"), expected.reached);
    }
    for search in &history.searches {
        let hits = index.search(search).await.expect("an answer");
        let found: BTreeSet<EventId> = hits.iter().map(|hit| hit.id).collect();
        assert_eq!(found, expected.answer(search), "{search:?}");
        assert_eq!(found.len(), hits.len(), "each once");
        assert!(hits.is_sorted_by(|left, right| left.score >= right.score), "the best first");
        // Pages put together are the whole.
        let mut paged = Vec::new();
        while paged.len() < hits.len() {
            let page = index.search(&Search { skip: paged.len(), limit: 2, ..search.clone() }).await.expect("a page");
            assert!(!page.is_empty());
            paged.extend(page.into_iter().map(|hit| hit.id));
        }
        assert_eq!(paged.into_iter().collect::<BTreeSet<_>>(), found);
    }
    let all: Vec<EventId> = expected.documents.keys().copied().collect();
    let mut ids = Vec::new();
    loop {
        let page = index.ids(ids.last().copied(), 5).await.expect("ids");
        if page.is_empty() {
            break;
        }
        ids.extend(page);
    }
    assert_eq!(ids, all);
    assert_eq!(index.stats().await.expect("figures").documents, all.len() as u64);
}
