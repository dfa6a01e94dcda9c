//! What the suite reads off a store.

use std::collections::BTreeSet;

use kukuri_domain::{
    Address, Event, EventId, Filter, Millis, TopicId, Viewer, sharing::Window, subscription::NodeSubscription,
};

use super::{
    build::{at, other_topic, topic},
    hearsay,
};
use crate::{
    maintenance::Purged,
    outbox::{ConsumerOffset, OutboxRow, Seq},
    port::Store,
    query::{Answer, Query, Rest},
    report::{AddressExplanation, Explanation, IdRecord, Stats},
    sharing::{Item, Shared, SharedSet},
};

/// Before anything ends: what is read at this time shows the store's own mind, expirations aside.
pub(super) const TIMELESS: Millis = Millis(0);

/// The ids of everything effective, in the order of answers.
pub(super) async fn visible(store: &dyn Store, now: Millis) -> Vec<EventId> {
    let answer = store.query(&Query::of(Filter::new(), Viewer::Node, now)).await.expect("a query");
    answer.events.iter().map(|event| event.id).collect()
}

/// The same as a set.
pub(super) async fn effective(store: &dyn Store, now: Millis) -> BTreeSet<EventId> {
    visible(store, now).await.into_iter().collect()
}

/// NIP-67: an answer never claims to be whole when it is not, nor to lack what it has.
pub(super) fn is_true(answer: &Answer, matching: u64) -> bool {
    let sent = answer.events.len() as u64;
    match answer.rest {
        Rest::None => sent == matching,
        Rest::More => sent < matching,
        Rest::Unknown => true,
    }
}

/// NIP-77: a store names the ids of its own answer, and none if that is one too many.
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

/// What a preview tells of a purge.
pub(super) fn without_stages(purged: &Purged) -> Purged {
    Purged { stages: Vec::new(), ..purged.clone() }
}

/// All outbox rows after a sequence.
pub(super) async fn rows_after(store: &dyn Store, after: Seq) -> Vec<OutboxRow> {
    store.outbox(after, usize::MAX).await.expect("rows that are there")
}

/// Everything that can be read about some events and the store as a whole, in a form that can be compared.
#[derive(Debug, PartialEq)]
pub(super) struct Portrait {
    stats: Stats,
    visible: Vec<EventId>,
    explanations: Vec<(EventId, Explanation)>,
    addresses: Vec<(Address, AddressExplanation)>,
    subscriptions: Vec<NodeSubscription>,
    offsets: Vec<ConsumerOffset>,
    /// What other nodes are told: by topic, each item with what it stands for.
    shared: Vec<Told>,
}

/// A topic, and what other nodes are told of it.
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
            visible: visible(store, now).await,
            explanations,
            addresses: explained,
            subscriptions: store.subscriptions().await.expect("subscriptions"),
            offsets: store.offsets().await.expect("offsets"),
            shared: shared(store, now).await,
        }
    }

    /// Without how often and when events came last: a crash may lose that (P-1).
    pub(super) fn without_counts(mut self) -> Self {
        for (_, explanation) in &mut self.explanations {
            if let Some(record) = &mut explanation.record {
                *record = IdRecord { last_seen_at: Millis::default(), seen_count: 0, ..*record };
            }
        }
        self
    }

    /// What differs, in words; empty if nothing does.
    pub(super) fn differences(&self, expected: &Self) -> String {
        let mut differences = String::new();
        let mut compare = |what: &str, found: String, expected: String| {
            if found != expected {
                differences += &format!("\n{what}\n  is       {found}\n  expected {expected}");
            }
        };
        compare("stats", format!("{:?}", self.stats), format!("{:?}", expected.stats));
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

/// What other nodes are told of the tests' topics, read in small pages.
async fn shared(store: &dyn Store, now: Millis) -> Vec<Told> {
    let mut shared = Vec::new();
    for topic in [topic(), other_topic(), TopicId::global()] {
        let set = SharedSet { topic: topic.clone(), window: Window { regular_since: at(2), now } };
        let items = hearsay::items(store, &set, 7).await;
        let ids: Vec<_> = items.iter().map(|item| item.id).collect();
        let given = store.share(&set, &ids).await.expect("items");
        shared.push((topic, items.into_iter().zip(given).collect()));
    }
    shared
}

/// Stores list these in orders of their own.
fn in_order(mut explanation: Explanation) -> Explanation {
    explanation.tombstones.sort_by_key(|stone| (stone.target.target.clone(), stone.target.requester_pubkey));
    explanation.vanish_marks.sort_by_key(|mark| mark.pubkey);
    explanation
}

/// Rows without their places, in an order that does not depend on who wrote them: within one commit it is free.
pub(super) fn unordered(mut rows: Vec<OutboxRow>) -> Vec<OutboxRow> {
    rows.iter_mut().for_each(|row| row.seq = Seq::default());
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}
