//! A semaphore with a share per peer: bounds concurrent requests, and no peer holds more permits than its share (G-6).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::peer::PeerId;

/// One peer holds at most this part of the permits, so that a slow one does not stop the others.
const PEER_SHARE_DIVISOR: usize = 4;
/// Also where the share would be smaller.
const MIN_PEER_PERMITS: usize = 2;

#[derive(Debug)]
pub(crate) struct PeerSemaphore {
    all_peers: Arc<Semaphore>,
    peer_share: usize,
    /// Of peers that hold permits.
    by_peer: Mutex<HashMap<PeerId, Arc<Semaphore>>>,
}

/// Given back when dropped: of the peer, and of all peers.
pub(crate) type PeerPermit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl PeerSemaphore {
    pub(crate) fn new(max_permits: usize) -> Self {
        let peer_share = (max_permits / PEER_SHARE_DIVISOR).max(MIN_PEER_PERMITS);
        Self { all_peers: Arc::new(Semaphore::new(max_permits)), peer_share, by_peer: Mutex::default() }
    }

    /// `None`: the peer has its share, or all permits are held.
    pub(crate) fn try_acquire(&self, peer: PeerId) -> Option<PeerPermit> {
        let mut by_peer = self.by_peer.lock();
        by_peer.retain(|_, own| own.available_permits() < self.peer_share);
        let own = by_peer.entry(peer).or_insert_with(|| Arc::new(Semaphore::new(self.peer_share)));
        let own = Arc::clone(own).try_acquire_owned().ok()?;
        Some((own, Arc::clone(&self.all_peers).try_acquire_owned().ok()?))
    }

    pub(crate) fn has_permit_for(&self, peer: PeerId) -> bool {
        let has_share = self.by_peer.lock().get(&peer).is_none_or(|own| own.available_permits() > 0);
        has_share && !self.is_exhausted()
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.all_peers.available_permits() == 0
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
            let _permit = semaphore.try_acquire(peer(1)).unwrap();
            assert_eq!(semaphore.by_peer.lock().len(), 1, "a peer without permits takes no memory");
        }
    }
}
