//! Random sequences of operations on a store: the cases of `lifecycle`.

use std::time::Duration;

use kukuri_domain::{
    Admitted, DeletionMode, Event, Origin, TopicId,
    capacity::Capacity,
    clock::ClockRules,
    retention::{Keep, Retention, TopicRetention},
    subscription::{IngestPolicy, Keeper, SubscriptionChange},
};
use proptest::{
    collection::vec,
    option,
    prelude::{BoxedStrategy, Just, Strategy, any},
    prop_oneof,
    sample::{Index, select},
};

use super::{
    build::{admitted_from, other_topic, topic},
    world::{World, worlds},
};
use crate::ingest::StoreRules;

/// One case: a world, the store's configuration, and the steps.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) world: World,
    pub(super) rules: StoreRules,
    /// Two, because an operator may change the retention, and stores remember how far a purge with the old one got.
    pub(super) retentions: [Retention; 2],
    /// The steps, each with the seconds by which the clock moves before it.
    pub(super) steps: Vec<(i64, Step)>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Ingests the next batch of the world.
    Ingest(From),
    /// Ingests some events of the world, known or not.
    Again(Vec<Index>),
    /// Recalls the states of some ids of the world.
    Recall(Vec<Index>),
    /// Sweeps expired events.
    Expire,
    /// Purges by one of the two retentions.
    Purge(usize),
    /// Changes the subscription of a topic.
    Subscribe(TopicId, Box<SubscriptionChange>),
    /// Writes pending counts.
    Flush,
    /// Closes the store and opens it again.
    Reopen,
    /// Moves everything to a new store by dump and load.
    Move,
    /// Reads the clock.
    ObserveClock,
    /// An operator confirms the clock.
    ConfirmClock,
    /// Sets a consumer's offset, possibly beyond the last row.
    SetOffset(Index),
    /// A consumer starts a snapshot, and reads one page with every step.
    Snapshot {
        /// Events per page.
        page: usize,
    },
}

/// The origin of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    Client,
    Gossip,
    Sync,
    Import,
}

impl From {
    pub(super) fn admit(self, event: &Event) -> Admitted {
        // Private messages do not travel between nodes (E-10).
        let origin = match self {
            Self::Gossip if !event.kind.is_private() => Origin::Gossip { peer: [7; 32], topic: TopicId::global() },
            Self::Sync if !event.kind.is_private() => Origin::Sync { peer: [7; 32] },
            Self::Import => Origin::Import,
            Self::Client | Self::Gossip | Self::Sync => Origin::unauthenticated_client(),
        };
        admitted_from(event, origin)
    }
}

fn topics() -> Vec<TopicId> {
    vec![topic(), other_topic(), TopicId::global()]
}

/// In a life of seconds the clock is held, and trusted again, sooner than by default (P-5).
const CLOCK: ClockRules =
    ClockRules { max_jump: Duration::from_secs(3_600), confirm_after: Duration::from_secs(4_000) };

/// Seconds that pass between steps: a little time, or a jump of the clock, or steady running.
fn moves() -> impl Strategy<Value = i64> {
    prop_oneof![
        20 => select(&[0, 0, 0, 1, 2, 5, 10, 20][..]),
        1 => select(&[1_000, -5][..]),
        2 => select(&[7_200, -7_200, 90_000, -90_000][..]),
        2 => Just(3_000),
    ]
}

pub(super) fn lives() -> impl Strategy<Value = Life> {
    let steps = vec((moves(), steps()), 1..30);
    let retentions = [retentions(), retentions()];
    (worlds(), rules(), retentions, vec(policies(), 0..=3), steps).prop_map(
        |(world, rules, retentions, policies, steps)| {
            let subscribed = topics().into_iter().zip(policies).map(|(topic, policy)| {
                let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
                (0, Step::Subscribe(topic, Box::new(change)))
            });
            Life { world, rules, retentions, steps: subscribed.chain(steps).collect() }
        },
    )
}

fn rules() -> impl Strategy<Value = StoreRules> {
    let deletion = prop_oneof![Just(DeletionMode::Soft), Just(DeletionMode::Physical)];
    let capacity = (option::weighted(0.7, 3..15u64), option::weighted(0.2, 1_000..9_000u64))
        .prop_map(|(max_events, max_bytes)| Capacity { max_events, max_bytes });
    (deletion, capacity).prop_map(|(deletion, capacity)| StoreRules {
        deletion,
        capacity,
        clock: CLOCK,
        ..StoreRules::default()
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let from = select(vec![From::Client, From::Client, From::Gossip, From::Sync, From::Import]);
    prop_oneof![
        14 => from.prop_map(Step::Ingest),
        3 => vec(any::<Index>(), 1..5).prop_map(Step::Again),
        2 => vec(any::<Index>(), 1..5).prop_map(Step::Recall),
        4 => Just(Step::Expire),
        5 => select(&[0, 0, 0, 1][..]).prop_map(Step::Purge),
        3 => (select(topics()), changes()).prop_map(|(topic, change)| Step::Subscribe(topic, Box::new(change))),
        1 => Just(Step::Flush),
        2 => Just(Step::Reopen),
        1 => Just(Step::Move),
        2 => Just(Step::ObserveClock),
        2 => Just(Step::ConfirmClock),
        1 => any::<Index>().prop_map(Step::SetOffset),
        2 => (1..6usize).prop_map(|page| Step::Snapshot { page }),
    ]
}

fn short() -> BoxedStrategy<Keep> {
    select(&[0, 6, 6, 30][..]).prop_map(|seconds| Keep::For(Duration::from_secs(seconds))).boxed()
}

fn long() -> BoxedStrategy<Keep> {
    let lasting = select(&[1_000, 4_000][..]).prop_map(|seconds| Keep::For(Duration::from_secs(seconds)));
    prop_oneof![lasting, Just(Keep::Forever)].boxed()
}

/// Mostly valid retentions; one in eight is unconstrained and may be invalid (P-2, P-5).
fn retentions() -> impl Strategy<Value = Retention> + use<> {
    let six = |keep: BoxedStrategy<Keep>| (keep.clone(), keep.clone(), keep.clone(), keep.clone(), keep.clone(), keep);
    let mixed = prop_oneof![short(), long()].boxed();
    let all = prop_oneof![six(short()), six(long()), six(mixed)];
    (all, any::<[bool; 3]>()).prop_map(|((regular, current, replaced, requests, dedupe, outbox), dice)| {
        let fallen = Retention { regular, current, replaced, requests, dedupe, outbox };
        if dice == [true; 3] {
            return fallen;
        }
        let of_events = [regular, current, replaced].into_iter();
        let finite = of_events.clone().filter(|keep| *keep != Keep::Forever);
        Retention { requests: of_events.fold(requests, Keep::max), dedupe: finite.fold(dedupe, Keep::max), ..fallen }
    })
}

fn changes() -> impl Strategy<Value = SubscriptionChange> {
    let keeper = option::of(select(&[Keeper::Operator, Keeper::Use, Keeper::People][..]));
    (option::of(any::<bool>()), keeper, option::of(0..3u64), option::weighted(0.7, policies()))
        .prop_map(|(enabled, keeper, ref_count, policy)| SubscriptionChange { enabled, keeper, ref_count, policy })
}

fn policies() -> impl Strategy<Value = IngestPolicy> {
    let retention = (option::weighted(0.2, short()), option::weighted(0.2, short()))
        .prop_map(|(regular, replaced)| TopicRetention { regular, current: None, replaced });
    let max_events = option::weighted(0.4, 1..14u64);
    let max_bytes = option::weighted(0.2, 500..6_000u64);
    (retention, max_events, max_bytes, 0..3u8).prop_map(|(retention, max_events, max_bytes, priority)| IngestPolicy {
        retention,
        max_events,
        max_bytes,
        priority,
        ..IngestPolicy::default()
    })
}
