//! Fault injection: events whose decision fails or panics inside the store under test.

use kukuri_domain::{Admitted, EventId};

use crate::error::{Result, StoreError};

/// The events that fail, and how.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The decision on these events returns an error.
    pub failing: Vec<EventId>,
    /// The decision on these events panics.
    pub panicking: Vec<EventId>,
}

impl Faults {
    /// Fails or panics if the event is listed. A store under test calls this before its decision.
    pub fn strike(&self, admitted: &Admitted) -> Result<()> {
        let id = admitted.event().id;
        assert!(!self.panicking.contains(&id), "a test wants this event to panic");
        if self.failing.contains(&id) {
            return Err(StoreError::Damaged("a test wants this event to fail".to_owned()));
        }
        Ok(())
    }
}
