//! Reconciliation with a client (NIP-77): both sides find out which events the other lacks.
//!
//! A reconciliation holds the ids its filter matched when it was opened. All of them together hold no more than a
//! bound, whoever opened them.

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

/// The ids that all reconciliations of this relay hold together: some 40 bytes each.
const MOST_IDS: usize = 4_000_000;
/// A reconciliation that rests for this long is ended.
const IDLE: Duration = Duration::from_secs(60);
/// The bytes of one message, before they become hex.
const FRAME_BYTES: u64 = 60_000;

/// The ids held by all reconciliations.
#[derive(Default)]
pub(crate) struct SyncRoom {
    held: AtomicUsize,
}

/// Room that was taken. Dropped, it is free again.
struct Held {
    room: Arc<SyncRoom>,
    ids: usize,
}

impl SyncRoom {
    fn take(self: &Arc<Self>, ids: usize) -> Option<Held> {
        let held = Held { room: Arc::clone(self), ids };
        (self.held.fetch_add(ids, Ordering::Relaxed) + ids <= MOST_IDS).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.held.fetch_sub(self.ids, Ordering::Relaxed);
    }
}

/// Why a reconciliation ended. The text is the reason of `NEG-ERR`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("blocked: more than {0} events match; narrow the filter")]
    TooManyEvents(usize),
    #[error("blocked: this relay has too many reconciliations now; try again later")]
    NoRoom,
    #[error("invalid: {0}")]
    Message(String),
}

/// One reconciliation that is going on.
pub(crate) struct Reconciliation {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    _held: Held,
    last_heard: Instant,
}

impl Reconciliation {
    pub(crate) fn new(ids: Vec<(Timestamp, EventId)>, room: &Arc<SyncRoom>) -> Result<Self, SyncError> {
        let held = room.take(ids.len()).ok_or(SyncError::NoRoom)?;
        let wrong = |error: negentropy::Error| SyncError::Message(error.to_string());
        let mut storage = NegentropyStorageVector::with_capacity(ids.len());
        for (Timestamp(created_at), id) in ids {
            storage.insert(created_at, Id::from_byte_array(*id.as_bytes())).map_err(wrong)?;
        }
        storage.seal().map_err(wrong)?;
        let negentropy = Negentropy::owned(storage, FRAME_BYTES).map_err(wrong)?;
        Ok(Self { negentropy, _held: held, last_heard: Instant::now() })
    }

    /// When it is ended, if nothing more is said.
    pub(crate) fn ends_at(&self) -> Instant {
        self.last_heard + IDLE
    }

    /// The answer to a message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, SyncError> {
        self.last_heard = Instant::now();
        self.negentropy.reconcile(message).map_err(|error| SyncError::Message(error.to_string()))
    }
}

#[cfg(test)]
impl Reconciliation {
    /// Nothing has been said for as long as may be.
    pub(crate) fn rest(&mut self) {
        self.last_heard -= IDLE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reconciliations_together_have_a_bound_and_give_their_room_back() {
        let room = Arc::new(SyncRoom::default());
        let most = room.take(MOST_IDS).unwrap();
        assert!(room.take(1).is_none());
        drop(most);
        assert!(room.take(1).is_some());
        assert_eq!(room.held.load(Ordering::Relaxed), 0);
    }
}
