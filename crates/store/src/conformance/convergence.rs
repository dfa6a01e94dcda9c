//! Property: every order of arrival, with any repeats and batch boundaries, ends in the effective set that D-10
//! defines, and the outbox reproduces that set.

use std::{cell::RefCell, collections::BTreeMap};

use kukuri_domain::{DeletionMode, Event, EventId, KindClass};
use proptest::{
    prelude::{Just, Strategy, any},
    prop_assert_eq, prop_oneof,
    sample::Index,
    test_runner::TestCaseError,
};

use super::{
    build::{NOW, admitted, later},
    coverage::{Coverage, MAX_RUNS},
    fold::{self, Follower},
    oracle, patterns,
    probe::{TIMELESS, effective},
    runner::Property,
    subject::{Harness, Subject},
    world::{World, first_arrivals, worlds},
};
use crate::{
    ingest::{Outcome, StoreRules},
    model::ModelStore,
    port::*,
};

/// A world, the rules of the store, and the snapshot of a consumer.
#[derive(Clone, Debug)]
struct Case {
    world: World,
    deletion: DeletionMode,
    /// The batch before which a consumer starts its snapshot.
    snapshot_before: Index,
    /// Events per page of that snapshot.
    page: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let deletion = prop_oneof![Just(DeletionMode::Soft), Just(DeletionMode::Physical)];
    (worlds(), deletion, any::<Index>(), 1..6usize).prop_map(|(world, deletion, snapshot_before, page)| Case {
        world,
        deletion,
        snapshot_before,
        page,
    })
}

pub(super) fn every_order_of_arrival_ends_in_the_set_that_d_10_names<H: Harness>(harness: &H) {
    let coverage = RefCell::new(Coverage::default());
    let property = Property { harness, name: "convergence", one_in: 1 };
    for _ in 0..MAX_RUNS {
        property.hold(&cases(), async |case| {
            let batches = case.world.batches();
            coverage.borrow_mut().count(patterns::of(&first_arrivals(&batches), NOW));
            let rules = StoreRules { deletion: case.deletion, ..StoreRules::default() };
            let model = ModelStore::new(rules.clone());
            let store = Subject::open(harness, rules).await;
            converge(&*store, &model, &batches, &case).await
        });
        if coverage.borrow().has_one_in(50) {
            return;
        }
    }
    coverage.borrow().assert_one_in(50);
}

async fn converge(
    store: &dyn Store,
    model: &dyn Store,
    batches: &[Vec<Event>],
    case: &Case,
) -> Result<(), TestCaseError> {
    let set = first_arrivals(batches);
    let snapshot_before = case.snapshot_before.index(batches.len());
    let mut follower = None;
    for (index, batch) in batches.iter().enumerate() {
        if index == snapshot_before {
            follower = Some(Follower::begin(store, case.page).await);
        } else if let Some(follower) = &mut follower {
            follower.read_page(store).await;
        }
        let batch: Vec<_> = batch.iter().map(admitted).collect();
        let found = store.ingest(batch.clone(), NOW).await.expect("a batch");
        let expected = model.ingest(batch, NOW).await.expect("a batch");
        prop_assert_eq!(found.outcomes, expected.outcomes, "outcomes of batch {}", index);
    }

    let expected = oracle::effective(&set, NOW);
    prop_assert_eq!(&effective(model, NOW).await, &expected, "the model");
    prop_assert_eq!(&effective(store, NOW).await, &expected, "the store");

    for event in &set {
        let outcome = store.ingest(vec![admitted(event)], NOW).await.expect("a repeat").outcomes.remove(0);
        let is_right = match outcome {
            Outcome::Ephemeral => event.kind.class() == KindClass::Ephemeral,
            Outcome::Duplicate => expected.contains(&event.id),
            Outcome::Refused(_) => !expected.contains(&event.id),
            Outcome::Stored => false,
        };
        proptest::prop_assert!(is_right, "E-9: a repeat of {event:?} is answered by {outcome:?}");
    }
    prop_assert_eq!(&effective(store, NOW).await, &expected, "after every event was sent again");

    let topics = fold::topics_of(&set);
    let bound = fold::held_by(model, &topics).await;
    prop_assert_eq!(&fold::held_by(store, &topics).await, &bound, "T-9: a store binds requests as the model does");
    folds_to_what_is_effective(store, &topics, follower).await?;

    // At this time half of the expiring events have expired: first without a sweep, then with one.
    let halfway = later(30);
    let follower = Some(Follower::begin(store, case.page).await);
    let expected = oracle::effective(&set, halfway);
    prop_assert_eq!(&effective(store, halfway).await, &expected, "before the sweep");
    store.expire(halfway).await.expect("a sweep");
    prop_assert_eq!(&effective(store, TIMELESS).await, &expected, "after the sweep");
    folds_to_what_is_effective(store, &topics, follower).await?;

    prop_assert_eq!(
        store.stats().await.expect("figures").effective,
        expected.len() as u64,
        "the count of effective events"
    );
    prop_assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
    Ok(())
}

async fn folds_to_what_is_effective(
    store: &dyn Store,
    topics: &BTreeMap<EventId, fold::Named>,
    follower: Option<Follower>,
) -> Result<(), TestCaseError> {
    let expected = Some(fold::held_by(store, topics).await);
    prop_assert_eq!(&fold::from_start(store).await, &expected, "all rows from the start");
    if let Some(follower) = follower {
        prop_assert_eq!(&follower.catch_up(store).await, &expected, "a snapshot and the rows after it");
    }
    let follower = Follower::begin(store, usize::MAX).await;
    prop_assert_eq!(&follower.catch_up(store).await, &expected, "a new snapshot");
    Ok(())
}
