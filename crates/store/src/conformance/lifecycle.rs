//! Property: after any sequence of operations, a store has the same state and gives the same answers as the model.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use kukuri_domain::{
    Admitted, Event, EventId, Millis, Refusal, State, clock::Clock, retention::Retention,
    subscription::NodeSubscription,
};
use proptest::{prop_assert, prop_assert_eq, test_runner::TestCaseError};

use super::{
    build::NOW,
    coverage::{Coverage, MAX_RUNS},
    fold::{self, Follower},
    probe::{Portrait, figures, unordered, without_stages},
    runner::Property,
    steps::{From, Life, Step, lives},
    subject::{Harness, Subject},
};
use crate::{
    error::Result,
    ingest::{Ingested, Outcome, StageChange},
    maintenance::{Purged, Swept},
    model::ModelStore,
    outbox::{OutboxRow, Seq},
    port::*,
    report::Stats,
};

/// Situations that must occur often enough for the comparison to be meaningful.
const SITUATIONS: [&str; 18] = [
    "a clock that is held",
    "a consumer that must rebuild",
    "a filled share",
    "a full topic",
    "a hold that ends by itself",
    "a purge by capacity",
    "a purge by capacity while the clock is held",
    "a purge by retention",
    "a purged event sent again",
    "a refused retention",
    "a shed topic",
    "a stage that changes",
    "an expiry",
    "an event that expired while it waited",
    "history that is refused",
    "ids forgotten",
    "memories dropped",
    "outbox rows dropped",
];

pub(super) fn a_store_stays_like_the_model_through_a_random_life<H: Harness>(harness: &H) {
    let coverage = RefCell::new(Coverage::default());
    let property = Property { harness, name: "lifecycle", one_in: 4 };
    for _ in 0..MAX_RUNS {
        property.hold(&lives(), async |life| {
            let met = Run::begin(harness, &life).await.live(&life).await?;
            coverage.borrow_mut().count(SITUATIONS.map(|situation| (situation, met.contains(situation))));
            Ok(())
        });
        if coverage.borrow().has_one_in(200) {
            return;
        }
    }
    coverage.borrow().assert_one_in(200);
}

/// The store under test and the model, which perform the same steps.
struct Run<'h, H: Harness> {
    store: Subject<'h, H>,
    model: ModelStore,
    events: Vec<Event>,
    topics: BTreeMap<EventId, fold::Named>,
    batches: std::vec::IntoIter<Vec<Event>>,
    retentions: [Retention; 2],
    now: Millis,
    followers: Vec<Follower>,
    met: BTreeSet<&'static str>,
}

impl<'h, H: Harness> Run<'h, H> {
    async fn begin(harness: &'h H, life: &Life) -> Self {
        let events = life.world.events();
        Self {
            store: Subject::open(harness, life.rules.clone()).await,
            model: ModelStore::new(life.rules.clone()),
            topics: fold::topics_of(&events.iter().collect::<Vec<_>>()),
            batches: life.world.batches().into_iter(),
            events,
            retentions: life.retentions,
            now: NOW,
            followers: Vec::new(),
            met: BTreeSet::new(),
        }
    }

    async fn live(mut self, life: &Life) -> Result<BTreeSet<&'static str>, TestCaseError> {
        for (index, (seconds, step)) in life.steps.iter().enumerate() {
            self.now = Millis(self.now.0.saturating_add_signed(seconds * 1_000));
            let Stats { head: before, clock_held: was_held, .. } = self.model.stats().await.expect("figures");
            self.take(step).await?;
            let is_held = self.model.stats().await.expect("figures").clock_held;
            if was_held && !is_held && !matches!(step, Step::ConfirmClock) {
                self.met.insert("a hold that ends by itself");
            }

            self.compare_portraits(&format!("step {index}, {step:?} at {:?}", self.now), matches!(step, Step::Flush))
                .await?;
            let (found, expected) = (self.store.outbox(before, usize::MAX), self.model.outbox(before, usize::MAX));
            let (found, expected) = (found.await, expected.await);
            self.compare("rows", found, expected)?;
            for follower in &mut self.followers {
                follower.read_page(&*self.store).await;
            }
        }
        self.store.write_duplicate_counts().await.expect("a flush");
        self.compare_portraits("the last step", true).await?;
        self.fold().await?;
        prop_assert_eq!(self.store.check().await.expect("a check").problems, Vec::<String>::new());
        Ok(self.met)
    }

    /// Performs one step on both.
    async fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (store, model, now) = (&*self.store, &self.model, self.now);
        match step {
            Step::Ingest(from) => {
                let batch = self.batches.next().unwrap_or_default();
                self.ingest(batch.iter().map(|event| from.admit(event)).collect()).await
            }
            Step::Again(indexes) => {
                let events = indexes.iter().map(|index| index.get(&self.events));
                self.ingest(events.map(|event| From::Client.admit(event)).collect()).await
            }
            Step::Recall(indexes) => {
                let ids: Vec<_> = indexes.iter().map(|index| index.get(&self.events).id).collect();
                let (found, expected) = (store.known_states(&ids, now).await, model.known_states(&ids, now).await);
                self.compare("recalled", found, expected)
            }
            Step::Expire => {
                let (found, expected) = (store.expire(now).await, model.expire(now).await);
                self.compare("swept", found, expected)
            }
            Step::Purge(which) => {
                let retention = &self.retentions[*which];
                // A statement of its own: the borrow must not be held while the store may raise its head.
                let head = *store.watch_outbox().borrow();
                let before = figures(store).await;
                let dry_run = store.dry_run_purge(retention, now, usize::MAX).await;
                prop_assert_eq!(figures(store).await, before, "a dry run changes nothing");
                prop_assert_eq!(*store.watch_outbox().borrow(), head, "a dry run wakes nobody");
                let (found, expected) = (store.purge(retention, now).await, model.purge(retention, now).await);
                match (dry_run, &found) {
                    (Ok(dry_run), Ok(found)) => {
                        prop_assert!(dry_run.is_complete);
                        prop_assert_eq!(without_stages(&dry_run.purged), without_stages(found), "a dry run");
                    }
                    (Err(dry_run), Err(found)) => prop_assert_eq!(dry_run.to_string(), found.to_string(), "a dry run"),
                    (dry_run, found) => prop_assert!(false, "a dry run: {dry_run:?}, then {found:?}"),
                }
                if expected.is_err() {
                    self.met.insert("a refused retention");
                }
                self.compare("purged", found, expected)
            }
            Step::Subscribe(topic, change) => {
                let found = store.change_subscription(topic, **change, now).await;
                let expected = model.change_subscription(topic, **change, now).await;
                self.compare("subscription", found, expected)
            }
            Step::Flush => {
                let (found, expected) = (store.write_duplicate_counts().await, model.write_duplicate_counts().await);
                self.compare("write_duplicate_counts", found, expected)
            }
            Step::Reopen => {
                store.write_duplicate_counts().await.expect("a flush");
                self.store.reopen().await;
                Ok(())
            }
            Step::Move => {
                store.write_duplicate_counts().await.expect("a flush");
                if self.store.move_on().await {
                    // A snapshot can't continue on another store.
                    self.followers.clear();
                }
                Ok(())
            }
            Step::ObserveClock => {
                let (found, expected) = (store.observe_clock(now).await, model.observe_clock(now).await);
                self.compare("clock", found, expected)
            }
            Step::ConfirmClock => {
                let (found, expected) = (store.confirm_clock(now).await, model.confirm_clock(now).await);
                self.compare("clock", found, expected)
            }
            Step::SetOffset(index) => {
                let head = model.stats().await.expect("figures").head;
                let seq = Seq(index.index(usize::try_from(head.0).expect("a small number") + 2) as u64);
                let found = store.set_offset("index-v1", seq, now).await;
                let expected = model.set_offset("index-v1", seq, now).await;
                self.compare("offset", found, expected)
            }
            Step::Snapshot { page } => {
                let follower = Follower::begin(store, *page).await;
                self.followers.push(follower);
                Ok(())
            }
        }
    }

    async fn ingest(&mut self, batch: Vec<Admitted>) -> Result<(), TestCaseError> {
        let found = self.store.ingest(batch.clone(), self.now).await;
        let expected = self.model.ingest(batch, self.now).await;
        self.compare("ingested", found, expected)
    }

    /// Checks that both returned the same result, or failed for the same reason.
    fn compare<T: Report>(&mut self, what: &str, found: Result<T>, expected: Result<T>) -> Result<(), TestCaseError> {
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                self.met.extend(expected.situations().into_iter().filter_map(|(name, is_met)| is_met.then_some(name)));
                prop_assert_eq!(found.in_order(), expected.in_order(), "{}", what);
            }
            (Err(found), Err(expected)) => prop_assert_eq!(found.to_string(), expected.to_string(), "{}", what),
            (found, expected) => prop_assert!(false, "{what}: is {found:?}, expected {expected:?}"),
        }
        Ok(())
    }

    /// Checks that both have the same state. Counts of copies may lag behind until they are written (P-1).
    async fn compare_portraits(&self, after: &str, with_counts: bool) -> Result<(), TestCaseError> {
        let mut found = Portrait::of(&*self.store, &self.events, self.now).await;
        let mut expected = Portrait::of(&self.model, &self.events, self.now).await;
        if !with_counts {
            (found, expected) = (found.without_counts(), expected.without_counts());
        }
        let differences = found.differences(&expected);
        prop_assert!(differences.is_empty(), "after {after}:{differences}");
        Ok(())
    }

    /// Checks that every consumer that need not rebuild ends with the effective set (O-8).
    async fn fold(&mut self) -> Result<(), TestCaseError> {
        let store = &*self.store;
        let expected = fold::held_by(store, &self.topics).await;
        if let Some(held) = fold::from_start(store).await {
            prop_assert_eq!(&held, &expected, "all rows from the start");
        }
        let latest = Follower::begin(store, 3).await;
        prop_assert_eq!(latest.catch_up(store).await, Some(expected.clone()), "a new snapshot");
        for follower in self.followers.drain(..) {
            match follower.catch_up(store).await {
                Some(held) => prop_assert_eq!(&held, &expected, "a snapshot and the rows after it"),
                None => drop(self.met.insert("a consumer that must rebuild")),
            }
        }
        Ok(())
    }
}

/// A result of the port, compared without orders that each store may choose itself.
trait Report: Debug + PartialEq + Sized {
    fn in_order(self) -> Self {
        self
    }

    /// The [`SITUATIONS`] that the result shows.
    fn situations(&self) -> Vec<(&'static str, bool)> {
        Vec::new()
    }
}

impl Report for () {}

impl Report for Clock {}

impl Report for NodeSubscription {}

impl Report for Vec<Option<State>> {}

impl Report for Vec<OutboxRow> {
    fn in_order(self) -> Self {
        unordered(self)
    }
}

impl Report for Ingested {
    fn in_order(mut self) -> Self {
        sort(&mut self.stages);
        self
    }

    fn situations(&self) -> Vec<(&'static str, bool)> {
        let has = |refusal: Refusal| self.outcomes.contains(&Outcome::Refused(refusal));
        vec![
            ("a filled share", has(Refusal::PermanentFull)),
            ("a full topic", has(Refusal::Full)),
            ("a shed topic", has(Refusal::Shed)),
            ("history that is refused", has(Refusal::LiveOnly)),
            ("a purged event sent again", has(Refusal::Purged)),
            ("an event that expired while it waited", has(Refusal::Expired)),
            ("a stage that changes", !self.stages.is_empty()),
        ]
    }
}

impl Report for Swept {
    fn situations(&self) -> Vec<(&'static str, bool)> {
        vec![("an expiry", self.expired > 0), ("a clock that is held", self.held)]
    }
}

impl Report for Purged {
    fn in_order(mut self) -> Self {
        sort(&mut self.stages);
        self
    }

    fn situations(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("a purge by retention", self.by_retention > 0),
            ("a purge by capacity", self.by_capacity > 0),
            ("a purge by capacity while the clock is held", self.held && self.by_capacity > 0),
            ("ids forgotten", self.ids > 0),
            ("outbox rows dropped", self.outbox > 0),
            ("memories dropped", self.memories > 0),
        ]
    }
}

fn sort(stages: &mut [StageChange]) {
    stages.sort_by_key(|change| (change.topic.clone(), change.from, change.to));
}
