//! The topics this node takes in, in memory: read again when they change, opened by use, closed when idle (T-8).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kukuri_domain::{
    Millis, Refusal, TopicId,
    capacity::{Capacity, Load, shed_priority},
    subscription::{IngestPolicy, Keeper, NodeSubscription, SubscriptionChange},
};
use kukuri_store::{Store, StoreError};
use parking_lot::RwLock;

use crate::{clock, config::TopicIntake, refused::PublishRefused};

/// A snapshot of the node-level subscriptions (S-1).
#[derive(Default)]
pub(crate) struct Topics {
    snapshot: RwLock<TopicSnapshot>,
    /// Topics are opened one at a time, so that their number stays within `topics.max`.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct TopicSnapshot {
    by_id: HashMap<TopicId, NodeSubscription>,
    enabled: usize,
    shed_priority: Option<u8>,
    /// A topic that an operator or members keep.
    has_members_topic: bool,
}

impl Topics {
    /// Reads the subscriptions from the store.
    pub(crate) async fn reload(&self, store: &dyn Store) -> Result<(), StoreError> {
        let all = store.subscriptions().await?;
        let enabled = || all.iter().filter(|subscription| subscription.enabled);
        let snapshot = TopicSnapshot {
            enabled: enabled().count(),
            has_members_topic: all.iter().any(|one| one.keeper != Keeper::Use && !one.topic.is_global()),
            shed_priority: shed_priority(enabled().map(|subscription| subscription.policy.priority)),
            by_id: all.into_iter().map(|subscription| (subscription.topic.clone(), subscription)).collect(),
        };
        *self.snapshot.write() = snapshot;
        Ok(())
    }

    pub(crate) fn is_enabled(&self, topic: &TopicId) -> bool {
        self.snapshot.read().by_id.get(topic).is_some_and(|subscription| subscription.enabled)
    }

    /// Whether a topic is enabled, and was opened by use.
    pub(crate) fn is_kept_by_use(&self, topic: &TopicId) -> bool {
        let snapshot = self.snapshot.read();
        snapshot.by_id.get(topic).is_some_and(|known| known.enabled && known.keeper == Keeper::Use)
    }

    /// Whether every topic is the global one, or was opened by use.
    pub(crate) fn are_all_for_everybody(&self) -> bool {
        !self.snapshot.read().has_members_topic
    }

    /// The first of these topics that use may open, or has opened (T-9).
    pub(crate) fn first_open<'t>(&self, topics: &'t [TopicId]) -> Option<&'t TopicId> {
        let snapshot = self.snapshot.read();
        let may_open = |known: Option<&NodeSubscription>| {
            known.is_some_and(|known| known.enabled) || NodeSubscription::may_open_by_use(known)
        };
        topics.iter().find(|topic| may_open(snapshot.by_id.get(*topic)))
    }

    /// The enabled topics, ordered by id.
    pub(crate) fn all_enabled(&self) -> Vec<NodeSubscription> {
        let snapshot = self.snapshot.read();
        let mut enabled: Vec<_> = snapshot.by_id.values().filter(|one| one.enabled).cloned().collect();
        enabled.sort_unstable_by(|left, right| left.topic.cmp(&right.topic));
        enabled
    }

    pub(crate) fn policy(&self, topic: &TopicId) -> Option<IngestPolicy> {
        let snapshot = self.snapshot.read();
        snapshot.by_id.get(topic).filter(|subscription| subscription.enabled).map(|subscription| subscription.policy)
    }

    /// The capacities of enabled topics that have one (P-6).
    pub(crate) fn capacities(&self) -> HashMap<TopicId, Capacity> {
        let snapshot = self.snapshot.read();
        let enabled = snapshot.by_id.values().filter(|subscription| subscription.enabled);
        let capacities = enabled.map(|subscription| (subscription.topic.clone(), subscription.policy.capacity()));
        capacities.filter(|(_, capacity)| *capacity != Capacity::default()).collect()
    }

    pub(crate) fn enabled_count(&self) -> usize {
        self.snapshot.read().enabled
    }

    /// Whether a topic is among the first to be shed (P-6). How full it is, the store knows.
    pub(crate) fn load(&self, topic: &TopicId) -> Load {
        let snapshot = self.snapshot.read();
        let priority = snapshot.by_id.get(topic).map(|subscription| subscription.policy.priority);
        Load { is_shed_first: priority.is_some() && priority == snapshot.shed_priority, ..Load::default() }
    }

    /// Enables topics that may be opened by use. Returns how many it opened.
    pub(crate) async fn open(
        &self,
        topics: &[TopicId],
        intake: &TopicIntake,
        store: &dyn Store,
    ) -> Result<usize, PublishRefused> {
        let TopicIntake::Open { max, .. } = *intake else { return Err(Refusal::TopicNotEnabled.into()) };
        let _one_at_a_time = self.opening.lock().await;
        let wanted: Vec<&TopicId> = topics.iter().filter(|topic| !self.is_enabled(topic)).collect();
        {
            let snapshot = self.snapshot.read();
            if wanted.iter().any(|topic| !NodeSubscription::may_open_by_use(snapshot.by_id.get(*topic))) {
                return Err(Refusal::TopicNotEnabled.into());
            }
            if snapshot.enabled + wanted.len() > max {
                return Err(PublishRefused::TooManyTopics(max));
            }
        }
        for topic in &wanted {
            let opened = store.change_subscription(topic, SubscriptionChange::open(), clock::now()).await;
            opened.map_err(open_failed)?;
        }
        self.reload(store).await.map_err(open_failed)?;
        Ok(wanted.len())
    }

    /// Takes in the topics that members subscribe to, and stops those that members kept and nobody subscribes to any more (S-7).
    /// Returns how many changed.
    pub(crate) async fn follow_members(
        &self,
        members: &BTreeMap<TopicId, u64>,
        stop_unused: bool,
        store: &dyn Store,
    ) -> Result<usize, StoreError> {
        // From the store: another process may have changed them since they were read.
        let known: HashMap<TopicId, NodeSubscription> =
            store.subscriptions().await?.into_iter().map(|one| (one.topic.clone(), one)).collect();
        let kept = known.values().filter(|one| one.keeper == Keeper::People).map(|one| &one.topic);
        let concerned: BTreeSet<&TopicId> = members.keys().chain(kept).collect();
        let mut changed = 0;
        for topic in concerned {
            let count = members.get(topic).copied().unwrap_or_default();
            if let Some(change) = NodeSubscription::follow_members(known.get(topic), count, stop_unused) {
                store.change_subscription(topic, change, clock::now()).await?;
                changed += 1;
            }
        }
        if changed > 0 {
            self.reload(store).await?;
        }
        Ok(changed)
    }

    /// Closes topics that were opened by use and have had no event for `topics.idle`. Returns how many.
    pub(crate) async fn close_idle(
        &self,
        intake: &TopicIntake,
        store: &dyn Store,
        now: Millis,
    ) -> Result<usize, StoreError> {
        let TopicIntake::Open { idle, .. } = *intake else { return Ok(0) };
        let candidates: Vec<NodeSubscription> = {
            let snapshot = self.snapshot.read();
            // A subscription that changed recently is not idle: most often no statistics have to be read.
            let may_be_idle = |one: &&NodeSubscription| one.is_idle(None, idle, now);
            snapshot.by_id.values().filter(may_be_idle).cloned().collect()
        };
        if candidates.is_empty() {
            return Ok(0);
        }
        let topics: Vec<TopicId> = candidates.iter().map(|subscription| subscription.topic.clone()).collect();
        let stats = store.topic_stats(&topics).await?;
        let mut closed = 0;
        for (subscription, stats) in candidates.into_iter().zip(stats) {
            let last = stats.and_then(|stats| stats.last_event_at);
            if subscription.is_idle(last, idle, now) {
                store.change_subscription(&subscription.topic, SubscriptionChange::close_idle(), now).await?;
                closed += 1;
            }
        }
        self.reload(store).await?;
        Ok(closed)
    }
}

fn open_failed(error: StoreError) -> Refusal {
    tracing::error!(%error, "can't open a topic; its event is refused");
    Refusal::Failed
}
