//! Reconciliation with a client (NIP-77): both sides find out which events the other lacks.
//!
//! A reconciliation holds the ids its filter matched when it was opened. All reconciliations of the relay share one budget of
//! ids, and each address has a part of what is free of it (Y-1).

use std::{net::IpAddr, sync::Arc, time::Duration};

use kukuri_domain::{EventId, Timestamp};
use kukuri_engine::networks::{AddressLimit, Share, ShareLimits, Shares};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use tokio::time::Instant;

use crate::closed::Closed;

/// Ids that all reconciliations hold together; about 40 bytes each.
const MAX_IDS: usize = 4_000_000;
/// An address may hold the free ids divided by this.
const ADDRESS_PARTS: usize = 4;
/// A reconciliation without a message for this long is ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one message, before hex.
pub(crate) const FRAME_BYTES: u64 = 60_000;

/// The ids that all reconciliations of a relay hold.
#[derive(Default)]
pub(crate) struct NegBudget(Arc<Shares>);

impl NegBudget {
    /// Reserves room for `max` ids, or for as many as the address may hold, before they are read.
    pub(crate) fn reserve(&self, ip: IpAddr, max: usize) -> Result<Share, Closed> {
        let limits = ShareLimits { address: AddressLimit::PartOfFree(ADDRESS_PARTS), total: MAX_IDS };
        self.0.acquire(ip, 1..=max.max(1), limits).map_err(|_| Closed::NegBudgetSpent)
    }
}

/// One open reconciliation.
pub(crate) struct Reconciliation {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    _share: Share,
    last_heard: Instant,
}

impl Reconciliation {
    /// `share` was reserved for at least as many ids.
    pub(crate) fn new(ids: Vec<(Timestamp, EventId)>, mut share: Share) -> Result<Self, Closed> {
        share.shrink_to(ids.len());
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
    fn addresses_share_the_budget_and_give_it_back() {
        // Y-1
        let budget = NegBudget::default();
        let mut held = Vec::new();
        let address = |number| IpAddr::from([192, 0, 2, number]);
        // One connection with limits.sync_sessions and limits.sync_events as they are by default.
        for _ in 0..4 {
            held.push(budget.reserve(address(1), 200_000).unwrap());
            assert_eq!(held.last().unwrap().amount(), 200_000);
        }
        assert_eq!(budget.reserve(address(1), 200_000).err(), Some(Closed::NegBudgetSpent));
        for number in 2..12 {
            while let Ok(share) = budget.reserve(address(number), 200_000) {
                held.push(share);
            }
        }
        assert!(budget.reserve(address(12), 200_000).unwrap().amount() > 10_000, "ten addresses leave something");

        let id = |number: u8| (Timestamp(number.into()), EventId::from_bytes([number; 32]));
        held.clear();
        let small = Reconciliation::new(vec![id(1), id(2)], budget.reserve(address(1), 200_000).unwrap()).unwrap();
        assert_eq!(budget.0.total(), 2, "what was reserved and not read is free");
        drop(small);
        assert_eq!(budget.0.total(), 0);
    }
}
