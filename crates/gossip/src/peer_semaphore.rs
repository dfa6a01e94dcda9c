//! A semaphore with a share per peer: bounds concurrent requests, and no peer holds more permits than its share (G-6).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::peer::PeerId;

/// One peer holds at most this part of the permits, so that a slow one does not stop the others.
const PEER_SHARE_DIVISOR: usize = 4;
/// Also where the share would be smaller.
const MIN_PEER_PERMITS: usize = 2;

#[derive(Debug)]
pub(crate) struct PeerSemaphore {
    max_permits: usize,
    held: Mutex<HashMap<PeerId, usize>>,
}

/// Given back when dropped.
pub(crate) struct PeerPermit {
    semaphore: Arc<PeerSemaphore>,
    peer: PeerId,
}

impl PeerSemaphore {
    pub(crate) fn new(max_permits: usize) -> Arc<Self> {
        Arc::new(Self { max_permits, held: Mutex::default() })
    }

    /// `None`: the peer has its share, or all permits are held.
    pub(crate) fn try_acquire(self: &Arc<Self>, peer: PeerId) -> Option<PeerPermit> {
        let mut held = self.held.lock();
        if !self.is_available(peer, &held) {
            return None;
        }
        *held.entry(peer).or_default() += 1;
        Some(PeerPermit { semaphore: Arc::clone(self), peer })
    }

    pub(crate) fn has_permit_for(&self, peer: PeerId) -> bool {
        self.is_available(peer, &self.held.lock())
    }

    /// Whether all permits are held.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.held.lock().values().sum::<usize>() >= self.max_permits
    }

    fn is_available(&self, peer: PeerId, held: &HashMap<PeerId, usize>) -> bool {
        let own = held.get(&peer).copied().unwrap_or_default();
        let share = (self.max_permits / PEER_SHARE_DIVISOR).max(MIN_PEER_PERMITS);
        own < share && held.values().sum::<usize>() < self.max_permits
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut held = self.semaphore.held.lock();
        if let Some(own) = held.get_mut(&self.peer) {
            *own -= 1;
        }
        held.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use iroh::SecretKey;

    use super::*;

    #[test]
    fn a_peer_gets_at_most_its_share_and_returns_its_permits_g6() {
        let peer = |number: u8| SecretKey::from_bytes(&[number; 32]).public();
        for (max_permits, share) in [(4, 2), (16, 4), (64, 16)] {
            let semaphore = PeerSemaphore::new(max_permits);
            let acquire_all =
                |number: u8| std::iter::from_fn(|| semaphore.try_acquire(peer(number))).collect::<Vec<PeerPermit>>();
            let (mut first, mut others) = (acquire_all(1), Vec::new());
            assert_eq!(first.len(), share, "of {max_permits}");
            assert!(!semaphore.has_permit_for(peer(1)) && semaphore.has_permit_for(peer(2)));
            (2..).take_while(|_| !semaphore.is_exhausted()).for_each(|number| others.extend(acquire_all(number)));
            assert_eq!(first.len() + others.len(), max_permits);
            assert!(semaphore.try_acquire(peer(99)).is_none(), "all peers together are bounded, too");
            drop(first.pop().unwrap());
            assert!(semaphore.has_permit_for(peer(1)) && semaphore.has_permit_for(peer(99)));
            drop((first, others));
            assert!(semaphore.held.lock().is_empty(), "a peer without permits takes no memory");
        }
    }
}
