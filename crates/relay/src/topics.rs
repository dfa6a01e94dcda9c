//! The topics this node takes in, as the relay knows them: read when they change, opened by use, closed when idle (T-8).

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use kukuri_domain::{
    Millis, TopicId,
    capacity::{TopicLoad, shed_priority},
    subscription::{IngestPolicy, NodeSubscription, SubscriptionChange},
};
use kukuri_store::{Store, StoreError};

use crate::{clock, config::TopicIntake};

/// What is known of topics.
#[derive(Default)]
pub(crate) struct Topics {
    known: RwLock<Known>,
    /// Topics are opened one at a time, so that their number stays within its bound.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    by_id: HashMap<TopicId, NodeSubscription>,
    enabled: usize,
    first_to_go: Option<u8>,
}

/// Why a topic was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// Only an operator opens it.
    Closed,
    /// There are as many as there may be.
    TooMany(usize),
    /// The store failed.
    Failed,
}

impl Topics {
    /// Reads them anew.
    pub(crate) async fn read(&self, store: &dyn Store) -> Result<(), StoreError> {
        let all = store.subscriptions().await?;
        let enabled = || all.iter().filter(|subscription| subscription.enabled);
        let known = Known {
            enabled: enabled().count(),
            first_to_go: shed_priority(enabled().map(|subscription| subscription.policy.priority)),
            by_id: all.into_iter().map(|subscription| (subscription.topic.clone(), subscription)).collect(),
        };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    pub(crate) fn is_enabled(&self, topic: &TopicId) -> bool {
        self.known().by_id.get(topic).is_some_and(|subscription| subscription.enabled)
    }

    /// Those that are enabled, by their ids.
    pub(crate) fn all_enabled(&self) -> Vec<NodeSubscription> {
        let known = self.known();
        let mut enabled: Vec<_> = known.by_id.values().filter(|one| one.enabled).cloned().collect();
        enabled.sort_unstable_by(|left, right| left.topic.cmp(&right.topic));
        enabled
    }

    /// How a topic is taken in, if it is enabled.
    pub(crate) fn policy(&self, topic: &TopicId) -> Option<IngestPolicy> {
        let known = self.known();
        known.by_id.get(topic).filter(|subscription| subscription.enabled).map(|subscription| subscription.policy)
    }

    /// How many are enabled.
    pub(crate) fn enabled(&self) -> usize {
        self.known().enabled
    }

    /// Whether it is among the first to be shed (P-6). How full it is, the store knows.
    pub(crate) fn load(&self, topic: &TopicId) -> TopicLoad {
        let known = self.known();
        let priority = known.by_id.get(topic).map(|subscription| subscription.policy.priority);
        TopicLoad { is_first_to_go: priority.is_some() && priority == known.first_to_go, ..TopicLoad::default() }
    }

    /// Enables those that are not, if they may be opened by use. Returns how many it opened.
    pub(crate) async fn open(
        &self,
        topics: &[TopicId],
        intake: &TopicIntake,
        store: &dyn Store,
    ) -> Result<usize, NotOpened> {
        let TopicIntake::Open { most, .. } = *intake else { return Err(NotOpened::Closed) };
        let _alone = self.opening.lock().await;
        let wanted: Vec<&TopicId> = topics.iter().filter(|topic| !self.is_enabled(topic)).collect();
        {
            let known = self.known();
            if wanted.iter().any(|topic| !NodeSubscription::may_open_by_use(known.by_id.get(*topic))) {
                return Err(NotOpened::Closed);
            }
            if known.enabled + wanted.len() > most {
                return Err(NotOpened::TooMany(most));
            }
        }
        for topic in &wanted {
            let opened = store.change_subscription(topic, SubscriptionChange::open(), clock::now()).await;
            opened.map_err(|error| {
                tracing::error!(%error, "a topic could not be opened");
                NotOpened::Failed
            })?;
        }
        self.read(store).await.map_err(|_| NotOpened::Failed)?;
        Ok(wanted.len())
    }

    /// Closes those that were opened by use and have had no event for long. Returns how many.
    pub(crate) async fn close_idle(
        &self,
        intake: &TopicIntake,
        store: &dyn Store,
        now: Millis,
    ) -> Result<usize, StoreError> {
        let TopicIntake::Open { idle, .. } = *intake else { return Ok(0) };
        let candidates: Vec<NodeSubscription> = {
            let known = self.known();
            // Nothing has been idle that changed lately: the figures of all topics need not be read.
            let may_be_idle = |one: &&NodeSubscription| one.is_idle(None, idle, now);
            known.by_id.values().filter(may_be_idle).cloned().collect()
        };
        if candidates.is_empty() {
            return Ok(0);
        }
        let last: HashMap<TopicId, Option<Millis>> =
            store.stats().await?.topics.into_iter().map(|topic| (topic.topic, topic.last_event_at)).collect();
        let mut closed = 0;
        for subscription in candidates {
            let last = last.get(&subscription.topic).copied().flatten();
            if subscription.is_idle(last, idle, now) {
                store.change_subscription(&subscription.topic, SubscriptionChange::close_idle(), now).await?;
                closed += 1;
            }
        }
        self.read(store).await?;
        Ok(closed)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}
