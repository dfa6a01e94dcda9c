//! Places for what may take long: there are so many, and no peer holds more of them than its share (G-6).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::peer::PeerId;

/// A slow peer holds this part of them, and the others go on.
const SHARE: usize = 4;
/// With few places a peer has more than one, too.
const LEAST: usize = 2;

/// The places there are for something.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    held: Mutex<HashMap<PeerId, usize>>,
}

/// One of them, until it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    peer: PeerId,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// A place for something with this peer, if there is one.
    pub(crate) fn take(self: &Arc<Self>, peer: PeerId) -> Option<Place> {
        let mut held = self.held();
        if !self.is_free_for(peer, &held) {
            return None;
        }
        *held.entry(peer).or_default() += 1;
        Some(Place { places: Arc::clone(self), peer })
    }

    /// Whether there is a place for this peer.
    pub(crate) fn has_one_for(&self, peer: PeerId) -> bool {
        self.is_free_for(peer, &self.held())
    }

    /// Whether there is none for anybody.
    pub(crate) fn are_full(&self) -> bool {
        self.held().values().sum::<usize>() >= self.most
    }

    fn is_free_for(&self, peer: PeerId, held: &HashMap<PeerId, usize>) -> bool {
        let own = held.get(&peer).copied().unwrap_or_default();
        own < (self.most / SHARE).max(LEAST) && held.values().sum::<usize>() < self.most
    }

    fn held(&self) -> MutexGuard<'_, HashMap<PeerId, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.places.held();
        if let Some(own) = held.get_mut(&self.peer) {
            *own -= 1;
        }
        held.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use iroh::SecretKey;

    use super::*;

    #[test]
    fn a_peer_has_its_share_of_the_places_and_gives_them_back() {
        // G-6
        let peer = |number: u8| SecretKey::from_bytes(&[number; 32]).public();
        for (most, share) in [(4, 2), (16, 4), (64, 16)] {
            let places = Places::new(most);
            let take = |number: u8| std::iter::from_fn(|| places.take(peer(number))).collect::<Vec<Place>>();
            let (mut first, mut others) = (take(1), Vec::new());
            assert_eq!(first.len(), share, "of {most}");
            assert!(!places.has_one_for(peer(1)) && places.has_one_for(peer(2)));
            (2..).take_while(|_| !places.are_full()).for_each(|number| others.extend(take(number)));
            assert_eq!(first.len() + others.len(), most);
            assert!(places.take(peer(99)).is_none(), "all together have a bound, too");
            drop(first.pop().unwrap());
            assert!(places.has_one_for(peer(1)) && places.has_one_for(peer(99)));
            drop((first, others));
            assert!(places.held().is_empty(), "who holds none is forgotten");
        }
    }
}
