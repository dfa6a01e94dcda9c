//! Who runs a consumer: one at a time (O-6).

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kukuri_domain::Millis;

use crate::error::{Result, StoreError};

/// Somebody who runs a consumer, by a number that nobody else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder(pub u128);

/// Leases in memory, for stores that one process alone can write to.
#[derive(Debug, Default)]
pub struct Leases {
    held: Mutex<HashMap<String, (Holder, Millis)>>,
}

impl Leases {
    /// Takes or prolongs a lease. `false`: another has it.
    pub fn take(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> bool {
        let mut held = self.held();
        let is_free = held.get(consumer).is_none_or(|(other, until)| *other == holder || *until <= now);
        if is_free {
            held.insert(consumer.to_owned(), (holder, until));
        }
        is_free
    }

    /// Gives a lease back, if it is still the holder's.
    pub fn release(&self, consumer: &str, holder: Holder) {
        let mut held = self.held();
        if held.get(consumer).is_some_and(|(other, _)| *other == holder) {
            held.remove(consumer);
        }
    }

    /// Whether nobody has taken a lease since its holder had it.
    pub fn check(&self, consumer: &str, holder: Holder) -> Result<()> {
        let is_own = self.held().get(consumer).is_some_and(|(other, _)| *other == holder);
        if is_own { Ok(()) } else { Err(StoreError::LeaseLost { consumer: consumer.to_owned() }) }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, (Holder, Millis)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
