//! The latest ids of events that are not stored: repeats of ephemeral events are caught by them (E-5). And the latest keys
//! of replaceable and addressable events, so that their rate counts new ones only.

use std::{collections::HashSet, hash::Hash};

use kukuri_domain::EventId;
use parking_lot::Mutex;

/// The latest ids, in two generations: the old one goes when the young one is full.
pub struct RecentIds<T = EventId> {
    generation_len: usize,
    generations: Mutex<Generations<T>>,
}

struct Generations<T> {
    young: HashSet<T>,
    old: HashSet<T>,
}

impl<T: Eq + Hash> RecentIds<T> {
    /// Remembers at least the latest `generation_len` ids, at most twice as many.
    pub fn new(generation_len: usize) -> Self {
        let generations = Generations { young: HashSet::new(), old: HashSet::new() };
        Self { generation_len, generations: Mutex::new(generations) }
    }

    /// Whether the id is remembered.
    pub fn contains(&self, id: &T) -> bool {
        let generations = self.generations.lock();
        generations.young.contains(id) || generations.old.contains(id)
    }

    /// Remembers an id. Returns whether it is new.
    pub fn insert(&self, id: T) -> bool {
        let mut generations = self.generations.lock();
        if generations.old.contains(&id) || !generations.young.insert(id) {
            return false;
        }
        if generations.young.len() >= self.generation_len {
            generations.old = std::mem::take(&mut generations.young);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_ids_are_remembered_and_older_ones_dropped() {
        // E-5
        const GENERATION: usize = 16_384;
        let recent = RecentIds::new(GENERATION);
        let id = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            EventId::from_bytes(bytes)
        };
        assert!(recent.insert(id(0)));
        assert!(!recent.insert(id(0)));
        for number in 1..4 * GENERATION {
            assert!(recent.insert(id(number)));
            assert!(recent.contains(&id(number.saturating_sub(GENERATION - 1).max(1))));
        }
        assert!(!recent.contains(&id(0)));
        let held = recent.generations.lock();
        assert!(held.young.len() + held.old.len() <= 2 * GENERATION);
    }
}
