//! The topics that are joined: how to send to each, and who its neighbours are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use iroh_gossip::api::GossipSender;
use kukuri_domain::TopicId;
use tokio::task::AbortHandle;

use crate::{catching_up::Plan, peer::PeerId, rejoining::Backoff};

/// All topics that are joined.
#[derive(Default)]
pub(crate) struct Swarm {
    joined: RwLock<BTreeMap<TopicId, Arc<Joined>>>,
}

/// One of them. Dropped, it is left.
pub(crate) struct Joined {
    pub(crate) topic: TopicId,
    pub(crate) sender: GossipSender,
    pub(crate) around: Arc<Around>,
    /// It holds the other half: a topic is left when both are gone.
    pub(crate) reader: AbortHandle,
}

/// What happens around us in a topic.
#[derive(Default)]
pub(crate) struct Around {
    neighbours: Mutex<BTreeSet<PeerId>>,
    received: AtomicU64,
    has_lagged: AtomicBool,
    pub(crate) backoff: Mutex<Backoff>,
    plan: Mutex<Plan>,
}

/// How the swarm is, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) topics: usize,
    pub(crate) alone: usize,
    pub(crate) peers: usize,
    pub(crate) neighbours: usize,
}

impl Around {
    pub(crate) fn neighbours(&self) -> BTreeSet<PeerId> {
        self.held().clone()
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.held().is_empty()
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Something was lost: messages, or who came and went.
    pub(crate) fn lag(&self) {
        self.has_lagged.store(true, Ordering::Relaxed);
        self.plan().soon();
    }

    pub(crate) fn has_lagged(&self) -> bool {
        self.has_lagged.load(Ordering::Relaxed)
    }

    pub(crate) fn came(&self, peer: PeerId) {
        self.held().insert(peer);
        self.backoff().reset();
        self.plan().came(peer);
    }

    pub(crate) fn went(&self, peer: PeerId) {
        self.held().remove(&peer);
        self.backoff().reset();
        self.plan().went(peer);
    }

    pub(crate) fn backoff(&self) -> MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to catch up with now. If there is a place for none of the neighbours, they are waited for.
    pub(crate) fn begin_catch_up(&self, has_place: impl Fn(PeerId) -> bool) -> Option<PeerId> {
        let mut neighbours = self.neighbours();
        let is_alone = neighbours.is_empty();
        neighbours.retain(|peer| has_place(*peer));
        if neighbours.is_empty() && !is_alone { None } else { self.plan().begin(&neighbours) }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<PeerId>> {
        self.neighbours.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Swarm {
    pub(crate) fn get(&self, topic: &TopicId) -> Option<Arc<Joined>> {
        self.joined().get(topic).cloned()
    }

    pub(crate) fn contains(&self, topic: &TopicId) -> bool {
        self.joined().contains_key(topic)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Joined>> {
        self.joined().values().cloned().collect()
    }

    /// Whether this is a neighbour in any topic.
    pub(crate) fn has_neighbour(&self, peer: &PeerId) -> bool {
        self.joined().values().any(|joined| joined.around.held().contains(peer))
    }

    pub(crate) fn insert(&self, joined: Joined) {
        let mut all = self.joined.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(joined.topic.clone(), Arc::new(joined));
    }

    /// Leaves all but these. Returns how many it left.
    pub(crate) fn retain(&self, wanted: &BTreeSet<TopicId>) -> usize {
        let mut all = self.joined.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.len();
        all.retain(|topic, _| wanted.contains(topic));
        before - all.len()
    }

    /// Leaves all.
    pub(crate) fn clear(&self) {
        self.retain(&BTreeSet::new());
    }

    pub(crate) fn summary(&self) -> Summary {
        let all = self.joined();
        let mut summary = Summary { topics: all.len(), ..Summary::default() };
        let mut peers = BTreeSet::new();
        for joined in all.values() {
            let neighbours = joined.around.held();
            summary.alone += usize::from(neighbours.is_empty());
            summary.neighbours += neighbours.len();
            peers.extend(neighbours.iter().copied());
        }
        summary.peers = peers.len();
        summary
    }

    fn joined(&self) -> RwLockReadGuard<'_, BTreeMap<TopicId, Arc<Joined>>> {
        self.joined.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use iroh::SecretKey;

    use super::*;

    #[test]
    fn who_has_no_place_is_passed_over_and_waited_for() {
        // G-6, G-7
        let [slow, other] = [1, 2].map(|number| SecretKey::from_bytes(&[number; 32]).public());
        let soon = Instant::now() + Duration::from_secs(60);
        let around = Around::default();
        around.came(slow);
        assert_eq!(around.begin_catch_up(|peer| peer != slow), None);
        assert!(around.plan().is_due(soon), "it is not forgotten");
        around.came(other);
        assert_eq!(around.begin_catch_up(|peer| peer != slow), Some(other), "the other is asked meanwhile");
    }
}
