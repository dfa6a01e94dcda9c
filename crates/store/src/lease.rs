//! Leases on outbox consumers: one instance at a time runs a consumer (O-6).

use std::collections::HashMap;

use kukuri_domain::Millis;
use parking_lot::Mutex;

use crate::error::{Result, StoreError};

/// The unique id of an instance that runs a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder(pub u128);

/// In-memory leases, for stores that only one process can write to.
#[derive(Debug, Default)]
pub struct Leases {
    held: Mutex<HashMap<String, (Holder, Millis)>>,
}

impl Leases {
    /// Acquires or renews a lease. `false`: another holder has it.
    pub fn take(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> bool {
        let mut held = self.held.lock();
        let is_free = held.get(consumer).is_none_or(|(other, until)| *other == holder || *until <= now);
        if is_free {
            held.insert(consumer.to_owned(), (holder, until));
        }
        is_free
    }

    /// Releases a lease, if `holder` still has it.
    pub fn release(&self, consumer: &str, holder: Holder) {
        let mut held = self.held.lock();
        if held.get(consumer).is_some_and(|(other, _)| *other == holder) {
            held.remove(consumer);
        }
    }

    /// Fails with `LeaseLost` if `holder` does not have the lease. An expired lease that no other holder took still
    /// counts.
    pub fn check(&self, consumer: &str, holder: Holder) -> Result<()> {
        let is_own = self.held.lock().get(consumer).is_some_and(|(other, _)| *other == holder);
        if is_own { Ok(()) } else { Err(StoreError::LeaseLost(consumer.to_owned())) }
    }
}
