//! The joined topics: their senders, neighbours, backoff and catch-up schedule.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use iroh_gossip::api::GossipSender;
use kukuri_domain::TopicId;
use kukuri_pacing::Backoff;
use parking_lot::{Mutex, RwLock};
use tokio::task::AbortHandle;

use crate::{catch_up::Schedule, peer::PeerId};

/// Delays between attempts to rejoin a topic, or to dial a peer.
pub(crate) const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct JoinedTopics {
    joined: RwLock<BTreeMap<TopicId, Arc<JoinedTopic>>>,
}

/// The topic is left when this is dropped.
pub(crate) struct JoinedTopic {
    pub(crate) topic: TopicId,
    pub(crate) sender: GossipSender,
    pub(crate) state: Arc<Mutex<TopicState>>,
    /// The task that holds the receiver. iroh-gossip leaves a topic when sender and receiver are gone.
    pub(crate) receive_task: AbortHandle,
}

pub(crate) struct TopicState {
    pub(crate) neighbours: BTreeSet<PeerId>,
    /// Messages received since the topic was joined.
    pub(crate) received: u64,
    /// iroh-gossip dropped events of this topic: messages, or neighbours that came and went.
    pub(crate) has_lagged: bool,
    pub(crate) rejoin_backoff: Backoff,
    pub(crate) catch_up: Schedule,
}

/// Counts over all joined topics, for metrics and `/healthz`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicCounts {
    pub(crate) topics: usize,
    pub(crate) without_neighbours: usize,
    pub(crate) peers: usize,
    pub(crate) neighbours: usize,
}

impl Default for TopicState {
    fn default() -> Self {
        Self {
            neighbours: BTreeSet::new(),
            received: 0,
            has_lagged: false,
            rejoin_backoff: Backoff::new(FIRST_RETRY_DELAY, MAX_RETRY_DELAY, Instant::now()),
            catch_up: Schedule::default(),
        }
    }
}

impl TopicState {
    pub(crate) fn neighbour_up(&mut self, peer: PeerId) {
        self.neighbours.insert(peer);
        self.rejoin_backoff.reset(Instant::now());
        self.catch_up.neighbour_up(peer);
    }

    pub(crate) fn neighbour_down(&mut self, peer: PeerId) {
        self.neighbours.remove(&peer);
        self.rejoin_backoff.reset(Instant::now());
        self.catch_up.neighbour_down(peer);
    }

    /// Starts a due catch-up with one of the neighbours that have a permit. If none of them has, the catch-up stays due.
    pub(crate) fn start_catch_up(&mut self, has_permit: impl Fn(PeerId) -> bool) -> Option<PeerId> {
        let candidates: BTreeSet<PeerId> = self.neighbours.iter().copied().filter(|peer| has_permit(*peer)).collect();
        if candidates.is_empty() && !self.neighbours.is_empty() { None } else { self.catch_up.start(&candidates) }
    }
}

impl Drop for JoinedTopic {
    fn drop(&mut self) {
        self.receive_task.abort();
    }
}

impl JoinedTopics {
    pub(crate) fn get(&self, topic: &TopicId) -> Option<Arc<JoinedTopic>> {
        self.joined.read().get(topic).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<JoinedTopic>> {
        self.joined.read().values().cloned().collect()
    }

    /// Whether the peer is a neighbour in any topic.
    pub(crate) fn has_neighbour(&self, peer: &PeerId) -> bool {
        self.joined.read().values().any(|joined| joined.state.lock().neighbours.contains(peer))
    }

    pub(crate) fn insert(&self, joined: JoinedTopic) {
        self.joined.write().insert(joined.topic.clone(), Arc::new(joined));
    }

    /// Leaves all topics but these. Returns how many were left.
    pub(crate) fn retain(&self, wanted: &BTreeSet<TopicId>) -> usize {
        let mut joined = self.joined.write();
        let before = joined.len();
        joined.retain(|topic, _| wanted.contains(topic));
        before - joined.len()
    }

    pub(crate) fn leave_all(&self) {
        self.retain(&BTreeSet::new());
    }

    pub(crate) fn counts(&self) -> TopicCounts {
        let joined = self.joined.read();
        let mut counts = TopicCounts { topics: joined.len(), ..TopicCounts::default() };
        let mut peers = BTreeSet::new();
        for joined in joined.values() {
            let TopicState { neighbours, .. } = &*joined.state.lock();
            counts.without_neighbours += usize::from(neighbours.is_empty());
            counts.neighbours += neighbours.len();
            peers.extend(neighbours.iter().copied());
        }
        counts.peers = peers.len();
        counts
    }
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;

    use super::*;

    #[test]
    fn catch_up_skips_a_neighbour_without_a_permit_and_stays_due_g6_g7() {
        let [slow, other] = [1, 2].map(|number| SecretKey::from_bytes(&[number; 32]).public());
        let soon = Instant::now() + Duration::from_secs(60);
        let mut state = TopicState::default();
        state.neighbour_up(slow);
        assert_eq!(state.start_catch_up(|peer| peer != slow), None);
        assert!(state.catch_up.is_due(soon), "the catch-up stays due");
        state.neighbour_up(other);
        assert_eq!(state.start_catch_up(|peer| peer != slow), Some(other), "the other neighbour is asked meanwhile");
    }
}
