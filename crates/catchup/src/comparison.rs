//! Compares a part of a topic's set with the peer's, by negentropy.

use kukuri_domain::EventId;
use kukuri_store::Item;
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use crate::report::SessionEnd;

/// Approximate size of one negentropy message.
const MESSAGE_BYTES: u64 = 60_000;

pub(crate) struct Comparison {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    items: usize,
    have: Vec<Id>,
    need: Vec<Id>,
}

/// The ids that each side lacks.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) lacking_there: Vec<EventId>,
    pub(crate) lacking_here: Vec<EventId>,
}

impl Comparison {
    pub(crate) fn of(items: &[Item]) -> Result<Self, SessionEnd> {
        let mut storage = NegentropyStorageVector::with_capacity(items.len());
        for item in items {
            storage.insert(item.created_at.0, Id::from_byte_array(*item.id.as_bytes())).map_err(malformed)?;
        }
        storage.seal().map_err(malformed)?;
        let negentropy = Negentropy::owned(storage, MESSAGE_BYTES).map_err(malformed)?;
        Ok(Self { negentropy, items: items.len(), have: Vec::new(), need: Vec::new() })
    }

    pub(crate) fn first_message(&mut self) -> Result<Vec<u8>, SessionEnd> {
        self.negentropy.initiate().map_err(malformed)
    }

    /// The responder's answer to a message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, SessionEnd> {
        self.negentropy.reconcile(message).map_err(malformed)
    }

    /// The initiator's next message. `None`: the comparison is complete. At most `max_lacking` ids may be lacking here.
    pub(crate) fn next_message(&mut self, message: &[u8], max_lacking: usize) -> Result<Option<Vec<u8>>, SessionEnd> {
        let next = self.negentropy.reconcile_with_ids(message, &mut self.have, &mut self.need).map_err(malformed)?;
        // A correct peer names each id once.
        if self.need.len() > max_lacking || self.have.len() > self.items {
            return Err(SessionEnd::Misbehaved("a part has more items than allowed"));
        }
        Ok(next)
    }

    pub(crate) fn difference(self) -> Difference {
        Difference { lacking_there: ids(self.have), lacking_here: ids(self.need) }
    }
}

fn ids(ids: Vec<Id>) -> Vec<EventId> {
    let mut ids: Vec<_> = ids.into_iter().map(|id| EventId::from_bytes(*id.as_bytes())).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn malformed(_: negentropy::Error) -> SessionEnd {
    SessionEnd::Misbehaved("a malformed negentropy message")
}
