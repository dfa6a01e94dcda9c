//! Property: nodes that received different parts of an event set converge by catch-up, in any order of meetings (G-7).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use kukuri_domain::{DeletionMode, Event, EventId, TopicId, sharing};
use proptest::{prelude::Just, prop_assert, prop_assert_eq, prop_oneof, test_runner::TestCaseError};

use super::{
    build::{NOW, OTHER_TOPIC, article, bare, deletion, topic},
    coverage::{Coverage, MAX_RUNS},
    oracle,
    partial_sets::{PartialSets, TOPICS, deliver, mixed_sets, partial_sets, pull, shown},
    patterns,
    probe::effective,
    runner::Property,
    subject::{Harness, Subject},
};
use crate::{ingest::StoreRules, port::Store};

pub(super) fn nodes_that_carry_the_same_topics_end_with_the_same<H: Harness>(harness: &H) {
    let deletion = prop_oneof![Just(DeletionMode::Soft), Just(DeletionMode::Physical)];
    let coverage = RefCell::new(Coverage::default());
    let property = Property { harness, name: "reconciling", one_in: 8 };
    let cases = (partial_sets(), deletion);
    for _ in 0..MAX_RUNS {
        property.hold(&cases, async |(sets, deletion)| {
            let rules = StoreRules { deletion, ..StoreRules::default() };
            let mut subjects = Vec::new();
            for _ in 0..sets.nodes() {
                subjects.push(Subject::open(harness, rules.clone()).await);
            }
            let stores: Vec<&dyn Store> = subjects.iter().map(|subject| &**subject).collect();
            deliver(&sets, &stores).await;
            let situations = situations(&sets, &stores).await;
            coverage.borrow_mut().count(situations);
            meet(&sets, &stores).await;
            compare(&sets, &stores).await
        });
        if coverage.borrow().has_one_in(40) {
            return;
        }
    }
    coverage.borrow().assert_one_in(40);
}

/// Property: a request that may be shared reaches every node that shows an event it covers, if a node that stores the
/// request shares a topic of the event with it. No request that may not be shared hides it, in any order (G-7, D-10).
pub(super) fn no_request_hides_one_that_may_be_shared<H: Harness>(harness: &H) {
    let deletion = prop_oneof![Just(DeletionMode::Soft), Just(DeletionMode::Physical)];
    let coverage = RefCell::new(Coverage::default());
    let property = Property { harness, name: "hidden_requests", one_in: 4 };
    let cases = (mixed_sets(), deletion);
    for _ in 0..MAX_RUNS {
        property.hold(&cases, async |(sets, deletion)| {
            let rules = StoreRules { deletion, ..StoreRules::default() };
            let mut subjects = Vec::new();
            for _ in 0..sets.nodes() {
                subjects.push(Subject::open(harness, rules.clone()).await);
            }
            let stores: Vec<&dyn Store> = subjects.iter().map(|subject| &**subject).collect();
            let received: Vec<Vec<Event>> = (0..sets.nodes()).map(|node| sets.received(node)).collect();
            coverage.borrow_mut().count(hidden_requests(&received));
            deliver(&sets, &stores).await;
            meet(&sets, &stores).await;
            let all: BTreeMap<EventId, Event> =
                received.iter().flatten().map(|event| (event.id, event.clone())).collect();
            let mut views = Vec::new();
            for (node, store) in stores.iter().enumerate() {
                prop_assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
                views.push(NodeView::read(*store, &sets.topics(node), &all).await);
            }
            for (node, teller) in views.iter().enumerate() {
                for (_, other) in views.iter().enumerate().filter(|(other, _)| *other != node) {
                    teller.has_told(other)?;
                }
            }
            Ok(())
        });
        if coverage.borrow().has_one_in(200) {
            return;
        }
    }
    coverage.borrow().assert_one_in(200);
}

/// Which situations occur on any node.
fn hidden_requests(received: &[Vec<Event>]) -> impl Iterator<Item = (&'static str, bool)> {
    let mut found = BTreeMap::new();
    for events in received {
        for (situation, is_met) in patterns::of_requests(&events.iter().collect::<Vec<_>>()) {
            *found.entry(situation).or_default() |= is_met;
        }
    }
    found.into_iter()
}

/// What a node has, after it caught up with all others.
struct NodeView<'e> {
    topics: BTreeSet<TopicId>,
    /// The events that it ever decided on.
    known: Vec<&'e Event>,
    effective: Vec<&'e Event>,
}

impl<'e> NodeView<'e> {
    async fn read(store: &dyn Store, topics: &BTreeSet<TopicId>, all: &'e BTreeMap<EventId, Event>) -> Self {
        let ids: Vec<EventId> = all.keys().copied().collect();
        let states = store.known_states(&ids, NOW).await.expect("states");
        let known = all.values().zip(states).filter(|(_, state)| state.is_some()).map(|(event, _)| event).collect();
        let visible = effective(store, NOW).await;
        let effective = all.values().filter(|event| visible.contains(&event.id)).collect();
        Self { topics: topics.clone(), known, effective }
    }

    /// Whether a topic of the event is carried by both nodes.
    fn shares(&self, other: &Self, event: &Event) -> bool {
        let mut bound = event.tags.values("t").map(TopicId::new_unchecked);
        bound.any(|topic| self.topics.contains(&topic) && other.topics.contains(&topic))
    }

    /// The other node has heard of everything that this one may tell it.
    fn has_told(&self, other: &Self) -> Result<(), TestCaseError> {
        let requests: Vec<_> =
            self.effective.iter().filter(|it| matches!(it.kind.0, 5 | 62) && sharing::may_pass_on(it)).collect();
        for x in other.effective.iter().filter(|x| self.shares(other, x) && sharing::may_pass_on(x)) {
            prop_assert!(self.known.iter().any(|known| known.id == x.id), "{x:?} was not pulled");
            for request in &requests {
                let is_covered = oracle::deletes(request, x) || (x.kind.0 != 62 && oracle::vanishes(request, x));
                prop_assert!(!is_covered, "{x:?} is shown, though {request:?} could be told");
            }
        }
        // D-9: a version that was deleted by id hides older ones, also where it was never seen.
        for version in self.known.iter().filter(|version| oracle::is_keyed(version) && self.shares(other, version)) {
            let is_hinted = |request: &&&Event| {
                request.kind.0 == 5
                    && request.pubkey == version.pubkey
                    && oracle::names_id(request, version)
                    && version.created_at <= request.created_at
            };
            if oracle::vanished(version, &self.known) || !requests.iter().any(is_hinted) {
                continue;
            }
            let below = other
                .effective
                .iter()
                .find(|older| oracle::is_same_key(older, version) && oracle::ranks_higher(version, older));
            prop_assert!(below.is_none(), "{below:?} is shown below the floor of {version:?}");
        }
        Ok(())
    }
}

/// Situations that must occur for the property to be meaningful.
async fn situations(sets: &PartialSets, stores: &[&dyn Store]) -> [(&'static str, bool); 3] {
    let received: Vec<Vec<Event>> = (0..sets.nodes()).map(|node| sets.received(node)).collect();
    let union: Vec<&Event> = received.iter().flatten().collect();
    let mut found = [
        ("a version below a floor that was never seen", false),
        ("a request held, its target not", false),
        ("an event that must go", false),
    ];
    for (node, store) in stores.iter().enumerate() {
        let own: Vec<&Event> = received[node].iter().collect();
        let visible = effective(*store, NOW).await;
        for event in own.iter().filter(|event| visible.contains(&event.id)) {
            found[2].1 |= !oracle::is_effective(event, &union, NOW);
            found[0].1 |= union.iter().any(|version| {
                oracle::is_same_key(version, event)
                    && oracle::ranks_higher(version, event)
                    && oracle::deleted(version, &union)
                    && !own.iter().any(|seen| seen.id == version.id)
            });
        }
        found[1].1 |= own.iter().any(|request| {
            let lacks = |target: &&&Event| !own.iter().any(|seen| seen.id == target.id);
            union.iter().filter(lacks).any(|target| oracle::is_keyed(target) && oracle::deletes(request, target))
        });
    }
    found
}

/// Runs catch-up for the sets's pairs of nodes, then for all pairs until no node gets anything new.
async fn meet(sets: &PartialSets, stores: &[&dyn Store]) {
    let nodes = sets.nodes();
    for (to, from) in &sets.meetings {
        exchange(sets, stores, to.index(nodes), from.index(nodes)).await;
    }
    loop {
        let mut moved = 0;
        for to in 0..nodes {
            for from in 0..nodes {
                moved += exchange(sets, stores, to, from).await;
            }
        }
        if moved == 0 {
            return;
        }
    }
}

async fn exchange(sets: &PartialSets, stores: &[&dyn Store], to: usize, from: usize) -> usize {
    let mut moved = 0;
    if to != from {
        for topic in sets.topics(to).intersection(&sets.topics(from)) {
            moved += pull(stores[to], stores[from], topic).await;
        }
    }
    moved
}

async fn compare(sets: &PartialSets, stores: &[&dyn Store]) -> Result<(), TestCaseError> {
    for (node, store) in stores.iter().enumerate() {
        prop_assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
        for (other, another) in stores.iter().enumerate().skip(node + 1) {
            if sets.topics(node) != sets.topics(other) {
                continue;
            }
            for topic in sets.topics(node) {
                let (here, there) = (shown(*store, &topic).await, shown(*another, &topic).await);
                prop_assert_eq!(here, there, "nodes {} and {} in {}", node, other, topic);
            }
        }
    }
    if (0..sets.nodes()).all(|node| sets.topics(node).len() == TOPICS.len()) {
        // Every received event can be shared with all nodes here, so D-10 over all received events gives the expected
        // set.
        let received: Vec<Event> = (0..sets.nodes()).flat_map(|node| sets.received(node)).collect();
        let expected = oracle::effective(&received.iter().collect::<Vec<_>>(), NOW);
        prop_assert_eq!(effective(stores[0], NOW).await, expected);
    }
    Ok(())
}

/// G-7, D-9: cases that reconciling events without floor hints would get wrong.
pub(super) async fn a_floor_reaches_a_node_that_never_saw_the_version<H: Harness>(harness: &H) {
    let first = article("a", "first").at(1).build();
    let second = article("a", "second").at(2).build();
    let request = deletion().of(&second).at(3).build();
    let elsewhere = bare(5).tag(["t", OTHER_TOPIC]).of(&second).at(3).build();
    for (why, here, there) in [
        ("one half has version 2 and its deletion, the other version 1", vec![&second, &request], vec![&first]),
        ("the deletion came first", vec![&request, &second], vec![&first]),
        ("the other holds version 1 and the request", vec![&second, &request], vec![&first, &request]),
        ("the other held the request before version 1", vec![&second, &request], vec![&request, &first]),
        ("the request is bound elsewhere", vec![&second, &elsewhere], vec![&first]),
        ("the request is bound elsewhere, and held", vec![&second, &elsewhere], vec![&elsewhere, &first]),
    ] {
        let [one, other, third] = [(); 3].map(|()| Subject::open(harness, StoreRules::default()));
        let (one, other, third) = (one.await, other.await, third.await);
        one.send(&here).await;
        other.send(&there).await;
        third.send(&[&first]).await;
        // `third` learns of it only from `other`, which has not seen version 2 either.
        for (to, from) in [(&other, &one), (&third, &other), (&one, &other)] {
            while pull(&**to, &**from, &topic()).await > 0 {}
        }
        let expected: BTreeSet<_> = [request.id, elsewhere.id].into_iter().collect();
        for store in [&one, &other, &third] {
            let left = effective(&**store, NOW).await;
            assert!(left.is_subset(&expected) && left.len() == 1, "{why}: {left:?}");
            assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new(), "{why}");
        }
        assert_eq!(pull(&*other, &*one, &topic()).await, 0, "{why}: nothing is told twice");
    }
}
