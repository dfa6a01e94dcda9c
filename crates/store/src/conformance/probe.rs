//! Reads of a store's state, for comparison in tests.

use std::collections::BTreeSet;

use kukuri_domain::{
    Address, Event, EventId, Filter, Millis, TopicId, Viewer, sharing::Window, subscription::NodeSubscription,
};

use super::{
    build::{at, other_topic, topic},
    partial_sets,
};
use crate::{
    maintenance::Purged,
    outbox::{ConsumerOffset, OutboxRow, Seq},
    port::Store,
    query::{Answer, Completeness, Query},
    report::{AddressExplanation, Explanation, IdRecord, Stats, TopicStats},
    sharing::{Item, Shared, SharedSet},
};

/// A time before every expiration: reads at this time show the stored state regardless of expiration.
pub(super) const TIMELESS: Millis = Millis(0);

/// The ids of all effective events, in the order of query answers.
pub(super) async fn visible(store: &dyn Store, now: Millis) -> Vec<EventId> {
    let answer = store.query(&Query::of(Filter::new(), Viewer::Node, now)).await.expect("a query");
    answer.events.iter().map(|event| event.id).collect()
}

/// The ids of all effective events, as a set.
pub(super) async fn effective(store: &dyn Store, now: Millis) -> BTreeSet<EventId> {
    visible(store, now).await.into_iter().collect()
}

/// NIP-67: whether `rest` of the answer is correct: never `None` if a match is left out, never `More` if none is.
pub(super) fn is_true(answer: &Answer, matching: u64) -> bool {
    let sent = answer.events.len() as u64;
    match answer.rest {
        Completeness::Complete => sent == matching,
        Completeness::Truncated | Completeness::BudgetSpent => sent < matching,
        Completeness::Unknown => true,
    }
}

/// NIP-77: whether `ids` returns the ids of the answer, and `None` if there is one more than `most`.
pub(super) async fn names_its_answer(store: &dyn Store, query: &Query, answer: &Answer) -> bool {
    let mut expected: Vec<_> = answer.events.iter().map(|event| (event.created_at, event.id)).collect();
    expected.sort_unstable();
    let count = expected.len();
    let is_refused = match count.checked_sub(1) {
        Some(fewer) => store.ids(query, fewer).await.expect("ids").is_none(),
        None => true,
    };
    is_refused && store.ids(query, count).await.expect("ids") == Some(expected)
}

/// The report of a purge, without stage changes.
pub(super) fn without_stages(purged: &Purged) -> Purged {
    Purged { stages: Vec::new(), ..purged.clone() }
}

/// All statistics except the bytes on disk, which grow even with transactions that are rolled back.
pub(super) async fn figures(store: &dyn Store) -> Stats {
    Stats { disk_bytes: None, ..store.stats().await.expect("figures") }
}

/// All topics that have a record, read in small pages.
pub(super) async fn topics(store: &dyn Store) -> Vec<TopicStats> {
    let mut all: Vec<TopicStats> = Vec::new();
    loop {
        let page = store.list_topics(all.last().map(|last| &last.topic), 2).await.expect("topics");
        assert!(page.len() <= 2, "a page holds no more than was asked for");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// All outbox rows after a sequence.
pub(super) async fn rows_after(store: &dyn Store, after: Seq) -> Vec<OutboxRow> {
    store.outbox(after, usize::MAX).await.expect("rows that are there")
}

/// The complete readable state of some events and of the store as a whole, for comparison.
#[derive(Debug, PartialEq)]
pub(super) struct Portrait {
    stats: Stats,
    topics: Vec<TopicStats>,
    visible: Vec<EventId>,
    explanations: Vec<(EventId, Explanation)>,
    addresses: Vec<(Address, AddressExplanation)>,
    subscriptions: Vec<NodeSubscription>,
    offsets: Vec<ConsumerOffset>,
    /// The shared set of each topic.
    shared: Vec<Told>,
}

/// A topic and its shared set: each item with its content.
type Told = (TopicId, Vec<(Item, Option<Shared>)>);

impl Portrait {
    pub(super) async fn of(store: &dyn Store, events: &[Event], now: Millis) -> Self {
        let mut explanations = Vec::new();
        let mut addresses = BTreeSet::new();
        for event in events {
            explanations.push((event.id, in_order(store.explain(&event.id).await.expect("an explanation"))));
            addresses.extend(event.address());
        }
        let mut explained = Vec::new();
        for address in addresses {
            let explanation = store.explain_address(&address).await.expect("an explanation");
            explained.push((address, explanation));
        }
        Self {
            stats: Stats { disk_bytes: None, ..store.stats().await.expect("figures") },
            topics: topics(store).await,
            visible: visible(store, now).await,
            explanations,
            addresses: explained,
            subscriptions: store.subscriptions().await.expect("subscriptions"),
            offsets: store.offsets().await.expect("offsets"),
            shared: shared(store, now).await,
        }
    }

    /// Clears the counts and last times of copies, which a crash may lose (P-1).
    pub(super) fn without_counts(mut self) -> Self {
        for (_, explanation) in &mut self.explanations {
            if let Some(record) = &mut explanation.record {
                *record = IdRecord { last_seen_at: Millis::default(), seen_count: 0, ..*record };
            }
        }
        self
    }

    /// A description of all differences. Empty: there are none.
    pub(super) fn differences(&self, expected: &Self) -> String {
        let mut differences = String::new();
        let mut compare = |what: &str, found: String, expected: String| {
            if found != expected {
                differences += &format!("\n{what}\n  is       {found}\n  expected {expected}");
            }
        };
        compare("stats", format!("{:?}", self.stats), format!("{:?}", expected.stats));
        compare("topics", format!("{:?}", self.topics), format!("{:?}", expected.topics));
        compare("visible", format!("{:?}", self.visible), format!("{:?}", expected.visible));
        for (found, expected) in self.explanations.iter().zip(&expected.explanations) {
            compare("explanation", format!("{found:?}"), format!("{expected:?}"));
        }
        for (found, expected) in self.addresses.iter().zip(&expected.addresses) {
            compare("address", format!("{found:?}"), format!("{expected:?}"));
        }
        compare("subscriptions", format!("{:?}", self.subscriptions), format!("{:?}", expected.subscriptions));
        compare("shared", format!("{:?}", self.shared), format!("{:?}", expected.shared));
        compare("offsets", format!("{:?}", self.offsets), format!("{:?}", expected.offsets));
        differences
    }
}

/// The shared sets of the tests' topics, read in small pages.
async fn shared(store: &dyn Store, now: Millis) -> Vec<Told> {
    let mut shared = Vec::new();
    for topic in [topic(), other_topic(), TopicId::global()] {
        let set = SharedSet { topic: topic.clone(), window: Window { regular_since: at(2), now } };
        let items = partial_sets::items(store, &set, 7).await;
        let ids: Vec<_> = items.iter().map(|item| item.id).collect();
        let given = store.share(&set, &ids).await.expect("items");
        shared.push((topic, items.into_iter().zip(given).collect()));
    }
    shared
}

/// Sorts the lists whose order each store may choose itself.
fn in_order(mut explanation: Explanation) -> Explanation {
    explanation.tombstones.sort_by_key(|stone| (stone.target.target.clone(), stone.target.requester_pubkey));
    explanation.vanish_marks.sort_by_key(|mark| mark.pubkey);
    explanation
}

/// Rows without sequence numbers, sorted: the order within one commit is up to the store.
pub(super) fn unordered(mut rows: Vec<OutboxRow>) -> Vec<OutboxRow> {
    rows.iter_mut().for_each(|row| row.seq = Seq::default());
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}
