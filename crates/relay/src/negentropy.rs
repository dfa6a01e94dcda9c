//! Reconciliation with a client (NIP-77): both sides find out which events the other lacks.
//!
//! A reconciliation holds the ids its filter matched when it was opened. A budget bounds the ids that all reconciliations
//! of the relay hold together.

use std::{sync::Arc, time::Duration};

use kukuri_domain::{EventId, Timestamp};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::closed::Closed;

/// Ids that all reconciliations hold together; about 40 bytes each.
pub(crate) const MAX_IDS: usize = 4_000_000;
/// A reconciliation without a message for this long is ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one message, before hex.
const FRAME_BYTES: u64 = 60_000;

/// One open reconciliation.
pub(crate) struct Reconciliation {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    _permits: OwnedSemaphorePermit,
    last_heard: Instant,
}

impl Reconciliation {
    pub(crate) fn new(ids: Vec<(Timestamp, EventId)>, budget: &Arc<Semaphore>) -> Result<Self, Closed> {
        let count = u32::try_from(ids.len()).map_err(|_| Closed::NegBudgetSpent)?;
        let permits = Arc::clone(budget).try_acquire_many_owned(count).map_err(|_| Closed::NegBudgetSpent)?;
        let mut storage = NegentropyStorageVector::with_capacity(ids.len());
        for (Timestamp(created_at), id) in ids {
            storage.insert(created_at, Id::from_byte_array(*id.as_bytes())).map_err(bad_message)?;
        }
        storage.seal().map_err(bad_message)?;
        let negentropy = Negentropy::owned(storage, FRAME_BYTES).map_err(bad_message)?;
        Ok(Self { negentropy, _permits: permits, last_heard: Instant::now() })
    }

    /// When it is ended unless a message comes.
    pub(crate) fn ends_at(&self) -> Instant {
        self.last_heard + IDLE_TIMEOUT
    }

    /// The answer to a message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, Closed> {
        self.last_heard = Instant::now();
        self.negentropy.reconcile(message).map_err(bad_message)
    }
}

fn bad_message(error: negentropy::Error) -> Closed {
    Closed::BadNegMessage(error.to_string())
}

#[cfg(test)]
impl Reconciliation {
    /// As if no message had come for the whole time-out.
    pub(crate) fn become_idle(&mut self) {
        self.last_heard -= IDLE_TIMEOUT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reconciliations_share_one_budget_and_give_it_back() {
        let budget = Arc::new(Semaphore::new(2));
        let id = |number: u8| (Timestamp(number.into()), EventId::from_bytes([number; 32]));
        let first = Reconciliation::new(vec![id(1), id(2)], &budget).unwrap();
        assert_eq!(Reconciliation::new(vec![id(3)], &budget).err(), Some(Closed::NegBudgetSpent));
        drop(first);
        drop(Reconciliation::new(vec![id(3)], &budget).unwrap());
        assert_eq!(budget.available_permits(), 2);
    }
}
