//! Events that a test wants to fail inside a store, where nothing else would make them.

use kukuri_domain::{Admitted, EventId};

use crate::error::{Result, StoreError};

/// Which events fail, and how.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Deciding on them fails.
    pub failing: Vec<EventId>,
    /// Deciding on them panics.
    pub panicking: Vec<EventId>,
}

impl Faults {
    /// Fails or panics if this event is to. A store under test calls it where it decides.
    pub fn strike(&self, admitted: &Admitted) -> Result<()> {
        let id = admitted.event().id;
        assert!(!self.panicking.contains(&id), "a test wants this event to panic");
        if self.failing.contains(&id) {
            return Err(StoreError::Damaged("a test wants this event to fail".to_owned()));
        }
        Ok(())
    }
}
