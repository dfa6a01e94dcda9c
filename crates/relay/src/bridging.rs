//! What a bridge to other nodes needs of the relay: what clients published here, and which topics are carried. What comes
//! in over it goes by [`Relay::take_in`].

use std::sync::OnceLock;

use kukuri_domain::{
    Admitted, Event, Source, Timestamp, TopicId, capacity::Stage, retention::RetentionClass,
    subscription::NodeSubscription,
};
use kukuri_store::StoreError;
use metrics::Counter;
use tokio::sync::mpsc;

use crate::{clock, relay::Relay};

/// What may wait for whoever passes it on: a few of the writer's largest batches.
const MOST_WAITING: usize = 8_192;

/// What clients of this process published and nobody here had seen before.
pub(crate) struct Published {
    taken: OnceLock<mpsc::Sender<Admitted>>,
    lost: Counter,
}

impl Published {
    pub(crate) fn new(lost: Counter) -> Self {
        Self { taken: OnceLock::new(), lost }
    }

    /// Notes what was decided on and is new. What did not come from a client is not passed on (G-2, G-3).
    pub(crate) fn note(&self, admitted: &Admitted) {
        let Some(taken) = self.taken.get().filter(|_| admitted.source() == Source::Client) else { return };
        // The writer does not wait for others.
        if let Err(mpsc::error::TrySendError::Full(_)) = taken.try_send(admitted.clone()) {
            self.lost.increment(1);
        }
    }
}

impl Relay {
    /// What clients of this process publish from now on, once it is stored or, if it is ephemeral, delivered: new events
    /// only, each once. `None`: somebody else takes them.
    pub fn published(&self) -> Option<mpsc::Receiver<Admitted>> {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        self.published.taken.set(sender).is_ok().then_some(receiver)
    }

    /// The topics that are carried between nodes: enabled, and not shed while room is short (G-1, P-6). They are read anew,
    /// so that what comes over one of them finds it enabled.
    pub async fn carried_topics(&self) -> Result<Vec<NodeSubscription>, StoreError> {
        self.read_topics().await?;
        let stage = self.store.stats().await?.stage.max(self.disk_level().stage()).max(self.lag().stage());
        let is_shed = |one: &NodeSubscription| stage >= Stage::Shedding && self.topics.load(&one.topic).is_first_to_go;
        let mut carried = self.topics.all_enabled();
        carried.retain(|one| !is_shed(one));
        Ok(carried)
    }
    /// From when on regular events of a topic are kept here, if its past is exchanged with other nodes (G-7, S-1).
    pub fn shares_since(&self, topic: &TopicId) -> Option<Timestamp> {
        let policy = self.topics.policy(topic).filter(|policy| policy.backfill)?;
        let keep = self.config().retention.in_topic(RetentionClass::Regular, &policy.retention);
        Some(keep.cutoff(clock::now()).map_or(Timestamp(0), |cutoff| cutoff.seconds()))
    }

    /// Whether another node may tell of an event in a topic (G-4). What `kukuri:global` holds depends on the other's mode: what
    /// is not taken in here is refused like any other.
    pub fn is_carried_by(&self, event: &Event, topic: &TopicId) -> bool {
        let is_bound = || self.config().admission.topics.bind(event).is_ok_and(|topics| topics.contains(topic));
        *topic == TopicId::global() || is_bound()
    }
}
