//! Ids of ephemeral events that passed lately: they are not stored, so repeats are caught here (E-5).

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kukuri_domain::EventId;

/// At least this many of the latest ids are remembered, at most twice as many.
const GENERATION: usize = 16_384;

/// Ids seen lately.
#[derive(Default)]
pub(crate) struct Recent {
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashSet<EventId>,
    old: HashSet<EventId>,
}

impl Recent {
    pub(crate) fn contains(&self, id: &EventId) -> bool {
        let generations = self.generations();
        generations.young.contains(id) || generations.old.contains(id)
    }

    /// Remembers it. Returns whether it was new.
    pub(crate) fn insert(&self, id: EventId) -> bool {
        let mut generations = self.generations();
        if generations.old.contains(&id) || !generations.young.insert(id) {
            return false;
        }
        if generations.young.len() >= GENERATION {
            generations.old = std::mem::take(&mut generations.young);
        }
        true
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_ids_are_remembered_and_older_ones_make_room() {
        // E-5
        let recent = Recent::default();
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
        let held = recent.generations();
        assert!(held.young.len() + held.old.len() <= 2 * GENERATION);
    }
}
