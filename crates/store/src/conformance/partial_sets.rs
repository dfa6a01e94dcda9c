//! Random event sets of which each of several nodes has received a part, and a simple catch-up between the nodes (G-7).
//!
//! Requests are never older than their targets: the effects that D-10 gives to other requests can't be shared with a node
//! that did not receive the events. All requests of [`partial_sets`] may be shared with other nodes; [`mixed_sets`] also
//! have protected deletions, and vanish requests for one relay.

use std::collections::{BTreeSet, HashSet};

use kukuri_domain::{
    Event, EventId, Filter, Letter, Origin, PublicKey, Timestamp, TopicId, Viewer,
    sharing::{self, Window},
};
use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    prop_oneof,
    sample::{Index, select},
};

use super::build::{ALICE, BOB, NOW, OTHER_TOPIC, RELAY, TOPIC, admitted_from, bare};
use crate::{
    ingest::Outcome,
    port::Store,
    query::Query,
    sharing::{HintOutcome, Item, Shared, SharedSet, Span},
};

/// A third topic, besides those of `build`.
const THIRD_TOPIC: &str = "kukuri:0303030303030303030303030303030303030303030303030303030303030303";
/// All topics of these event sets.
pub const TOPICS: [&str; 3] = [TOPIC, OTHER_TOPIC, THIRD_TOPIC];

#[derive(Clone, Debug)]
enum Shape {
    Note,
    Version { kind: u16, identifier: &'static str },
    DeletionById(Vec<Index>),
    DeletionByAddress(Index),
    Vanish,
}

#[derive(Clone, Debug)]
struct Recipe {
    author: PublicKey,
    second: u64,
    shape: Shape,
    /// Whether a request may be shared with other nodes.
    is_shared: bool,
    /// Bit set over [`TOPICS`].
    topics: u8,
    salt: u8,
    /// Bit set of the nodes that receive the event directly.
    received_by: u8,
    /// Sort key of the event among all events that a node receives, per node.
    order: [u16; 3],
}

/// A random event set, and the part of it that each node receives.
#[derive(Clone, Debug)]
pub struct PartialSets {
    recipes: Vec<Recipe>,
    /// The topics of each node, as bit sets over [`TOPICS`].
    carried: Vec<u8>,
    /// Pairs of nodes that catch up first, before all nodes catch up with all.
    pub meetings: Vec<(Index, Index)>,
}

impl PartialSets {
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.carried.len()
    }

    /// The topics that a node carries.
    pub fn topics(&self, node: usize) -> BTreeSet<TopicId> {
        bound(self.carried[node]).map(TopicId::new_unchecked).collect()
    }

    /// The events that a node receives directly, in order: events whose topics it carries (T-8), and any request (T-9).
    pub fn received(&self, node: usize) -> Vec<Event> {
        let received = self.recipes.iter().zip(self.events()).filter(|(recipe, event)| {
            let is_carried = recipe.topics & !self.carried[node] == 0 || event.kind.is_request();
            is_carried && recipe.received_by & (1 << node) != 0
        });
        let mut received: Vec<_> = received.map(|(recipe, event)| (recipe.order[node], event)).collect();
        received.sort_by_key(|(place, _)| *place);
        received.into_iter().map(|(_, event)| event).collect()
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.recipes.len());
        for recipe in &self.recipes {
            events.push(recipe.build(&events));
        }
        events
    }
}

fn bound(bits: u8) -> impl Iterator<Item = &'static str> {
    TOPICS.into_iter().enumerate().filter(move |(bit, _)| bits & (1 << bit) != 0).map(|(_, topic)| topic)
}

impl Recipe {
    fn build(&self, earlier: &[Event]) -> Event {
        let targets = self.targets(earlier);
        let author = targets.first().map_or(self.author, |target| target.pubkey);
        let latest = targets.iter().map(|target| target.created_at).max().unwrap_or_default();
        let Timestamp(epoch) = super::build::at(0);
        let second = self.second.max(latest.0.saturating_sub(epoch));
        let draft = match &self.shape {
            Shape::Note => bare(1),
            Shape::Version { kind, identifier } => bare(*kind).tag(["d", identifier]),
            Shape::DeletionById(_) => targets.iter().fold(bare(5), |draft, target| draft.of(target)),
            Shape::DeletionByAddress(_) => {
                targets.iter().filter(|target| target.address().is_some()).fold(bare(5), |draft, it| draft.of_key(it))
            }
            Shape::Vanish if self.is_shared => bare(62).tag(["relay", "ALL_RELAYS"]),
            Shape::Vanish => bare(62).tag(["relay", RELAY]),
        };
        let is_protected =
            !self.is_shared && matches!(self.shape, Shape::DeletionById(_) | Shape::DeletionByAddress(_));
        let draft = if is_protected { draft.tag(["-"]) } else { draft };
        let draft = bound(self.topics).fold(draft, |draft, topic| draft.tag(["t", topic]));
        draft.by(author).at(second).content(&self.salt.to_string()).build()
    }

    /// The targets of the request, all by one author.
    fn targets<'e>(&self, earlier: &'e [Event]) -> Vec<&'e Event> {
        let indexes = match &self.shape {
            Shape::DeletionById(indexes) => indexes.as_slice(),
            Shape::DeletionByAddress(index) => std::slice::from_ref(index),
            _ => return Vec::new(),
        };
        let mut targets: Vec<&Event> =
            indexes.iter().filter(|_| !earlier.is_empty()).map(|index| index.get(earlier)).collect();
        let author = targets.first().map(|target| target.pubkey);
        targets.retain(|target| Some(target.pubkey) == author && !target.kind.is_request());
        targets
    }
}

/// Random event sets for two or three nodes. All requests may be shared.
pub fn partial_sets() -> impl Strategy<Value = PartialSets> {
    sets_of(recipes(shapes(), select(vec![true])))
}

/// Random event sets for two or three nodes, with requests that may not be shared.
pub fn mixed_sets() -> impl Strategy<Value = PartialSets> {
    let shapes = prop_oneof![
        3 => select(vec![Shape::Note]),
        4 => select(vec![(0u16, ""), (30_023, "a")]).prop_map(|(kind, identifier)| Shape::Version { kind, identifier }),
        8 => vec(any::<Index>(), 1..3).prop_map(Shape::DeletionById),
        3 => any::<Index>().prop_map(Shape::DeletionByAddress),
        4 => select(vec![Shape::Vanish]),
    ];
    sets_of(recipes(shapes, any::<bool>()))
}

fn sets_of(recipes: impl Strategy<Value = Recipe>) -> impl Strategy<Value = PartialSets> {
    // Only nodes that carry the same topics can be compared, so limit carry all.
    let carried =
        prop_oneof![3 => vec(select(vec![7u8]), 2..=3), 2 => vec(1..8u8, 2..=3), 2 => vec(select(vec![3u8, 7]), 3)];
    let meetings = vec((any::<Index>(), any::<Index>()), 0..6);
    (vec(recipes, 2..30), carried, meetings).prop_map(|(recipes, carried, meetings)| PartialSets {
        recipes,
        carried,
        meetings,
    })
}

fn recipes(
    shapes: impl Strategy<Value = Shape>,
    is_shared: impl Strategy<Value = bool>,
) -> impl Strategy<Value = Recipe> {
    let author = prop_oneof![4 => select(vec![ALICE]), 1 => select(vec![BOB])];
    let topics = prop_oneof![2 => select(vec![1u8, 2]), 1 => 1..8u8];
    let order = any::<[u16; 3]>();
    (author, 0..6u64, shapes, is_shared, topics, 0..4u8, 1..8u8, order).prop_map(
        |(author, second, shape, is_shared, topics, salt, received_by, order)| Recipe {
            author,
            second,
            shape,
            is_shared,
            topics,
            salt,
            received_by,
            order,
        },
    )
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        3 => select(vec![Shape::Note]),
        8 => select(vec![(0u16, ""), (30_023, "a"), (30_023, "b")])
            .prop_map(|(kind, identifier)| Shape::Version { kind, identifier }),
        6 => vec(any::<Index>(), 1..3).prop_map(Shape::DeletionById),
        2 => any::<Index>().prop_map(Shape::DeletionByAddress),
        1 => select(vec![Shape::Vanish]),
    ]
}

/// The whole shared set of a topic.
pub fn set_of(topic: &TopicId) -> SharedSet {
    SharedSet { topic: topic.clone(), window: Window { regular_since: Timestamp(0), now: NOW } }
}

/// All items of a shared set, read in pages of at limit `limit`.
pub async fn items(store: &dyn Store, set: &SharedSet, limit: usize) -> Vec<Item> {
    let (mut all, mut span) = (Vec::new(), Span::default());
    loop {
        let page = store.shared(set, span, limit).await.expect("a page");
        assert!(page.items.len() <= limit && page.items.iter().all(|item| span.contains(item)), "{page:?} in {span:?}");
        all.extend(page.items);
        match page.next {
            Some(next) => span.from = Some(next),
            None => return all,
        }
    }
}

/// Copies the items of a topic that `to` lacks from `from`, by plain comparison. Returns the number of items that were
/// new to `to`.
pub async fn pull(to: &dyn Store, from: &dyn Store, topic: &TopicId) -> usize {
    let set = set_of(topic);
    let known: HashSet<Item> = items(to, &set, 100).await.into_iter().collect();
    let lacking = items(from, &set, 100).await.into_iter().filter(|item| !known.contains(item));
    let ids: Vec<EventId> = lacking.map(|item| item.id).collect();
    let states = to.known_states(&ids, NOW).await.expect("states");
    let wanted: Vec<_> = ids.iter().zip(states).filter(|(_, state)| state.is_none()).map(|(id, _)| *id).collect();
    let (mut events, mut hints) = (Vec::new(), Vec::new());
    for (id, shared) in wanted.iter().zip(from.share(&set, &wanted).await.expect("items")) {
        match shared.unwrap_or_else(|| panic!("{id} is in the set and not given")) {
            Shared::Event(json) => events.push(Event::from_json(&json).expect("an event")),
            Shared::Hint(hint) => hints.push(hint),
        }
    }
    let count = events.len();
    let batch = events.iter().map(|event| admitted_from(event, Origin::Sync { peer: [7; 32] })).collect();
    let outcomes = to.ingest(batch, NOW).await.expect("a batch").outcomes;
    assert!(!outcomes.contains(&Outcome::Duplicate), "what is known is not taken again");
    let raised = to.raise_floors(topic, hints, NOW).await.expect("hints");
    count + raised.outcomes.iter().filter(|outcome| **outcome == HintOutcome::Taken).count()
}

/// Ingests into each store the events that its node receives directly.
pub async fn deliver(sets: &PartialSets, stores: &[&dyn Store]) {
    for (node, store) in stores.iter().enumerate() {
        for event in sets.received(node) {
            store.ingest(vec![admitted_from(&event, Origin::Import)], NOW).await.expect("a batch");
        }
    }
}

/// The effective events of a topic that a node may pass on.
pub async fn shown(store: &dyn Store, topic: &TopicId) -> BTreeSet<EventId> {
    let query = Query::of(Filter::new().with_tag(Letter::T, [topic.as_str()]), Viewer::Node, NOW);
    let events = store.query(&query).await.expect("a query").events;
    let shared = events.iter().filter(|event| sharing::may_pass_on(&event.event().expect("an event")));
    shared.map(|event| event.id).collect()
}
