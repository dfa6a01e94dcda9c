//! Reconciliation with a client (NIP-77): both sides find out which events the other lacks.
//!
//! A reconciliation holds the ids its filter matched when it was opened. A budget bounds the ids that all reconciliations
//! of the relay hold together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kukuri_domain::{EventId, Timestamp};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use tokio::time::Instant;

use crate::closed::Closed;

/// Ids that all reconciliations hold together; about 40 bytes each.
const MAX_IDS: usize = 4_000_000;
/// A reconciliation without a message for this long is ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one message, before hex.
const FRAME_BYTES: u64 = 60_000;

/// The ids held by all reconciliations.
#[derive(Default)]
pub(crate) struct NegBudget {
    held: AtomicUsize,
}

/// A share of the budget, given back when dropped.
struct BudgetShare {
    budget: Arc<NegBudget>,
    ids: usize,
}

impl NegBudget {
    fn take(self: &Arc<Self>, ids: usize) -> Option<BudgetShare> {
        let share = BudgetShare { budget: Arc::clone(self), ids };
        (self.held.fetch_add(ids, Ordering::Relaxed) + ids <= MAX_IDS).then_some(share)
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.ids, Ordering::Relaxed);
    }
}

/// One open reconciliation.
pub(crate) struct Reconciliation {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    _share: BudgetShare,
    last_heard: Instant,
}

impl Reconciliation {
    pub(crate) fn new(ids: Vec<(Timestamp, EventId)>, budget: &Arc<NegBudget>) -> Result<Self, Closed> {
        let share = budget.take(ids.len()).ok_or(Closed::NegBudgetSpent)?;
        let mut storage = NegentropyStorageVector::with_capacity(ids.len());
        for (Timestamp(created_at), id) in ids {
            storage.insert(created_at, Id::from_byte_array(*id.as_bytes())).map_err(bad_message)?;
        }
        storage.seal().map_err(bad_message)?;
        let negentropy = Negentropy::owned(storage, FRAME_BYTES).map_err(bad_message)?;
        Ok(Self { negentropy, _share: share, last_heard: Instant::now() })
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
        let budget = Arc::new(NegBudget::default());
        let all = budget.take(MAX_IDS).unwrap();
        assert!(budget.take(1).is_none());
        drop(all);
        assert!(budget.take(1).is_some());
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
