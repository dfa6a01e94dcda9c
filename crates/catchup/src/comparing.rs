//! The items of a part of a set, as negentropy wants them.

use kukuri_domain::EventId;
use kukuri_store::Item;
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use crate::report::End;

/// The bytes of one message, about.
const MESSAGE_BYTES: u64 = 60_000;

/// A part that is being compared.
pub(crate) struct Comparison {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    items: usize,
    have: Vec<Id>,
    need: Vec<Id>,
}

/// What each side lacks of a part.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// What the other lacks.
    pub(crate) theirs: Vec<EventId>,
    /// What is lacking here.
    pub(crate) ours: Vec<EventId>,
}

impl Comparison {
    pub(crate) fn of(items: &[Item]) -> Result<Self, End> {
        let mut storage = NegentropyStorageVector::with_capacity(items.len());
        for item in items {
            storage.insert(item.created_at.0, Id::from_byte_array(*item.id.as_bytes())).map_err(wrong)?;
        }
        storage.seal().map_err(wrong)?;
        let negentropy = Negentropy::owned(storage, MESSAGE_BYTES).map_err(wrong)?;
        Ok(Self { negentropy, items: items.len(), have: Vec::new(), need: Vec::new() })
    }

    /// The first message of the side that asks.
    pub(crate) fn begin(&mut self) -> Result<Vec<u8>, End> {
        self.negentropy.initiate().map_err(wrong)
    }

    /// The answer of the side that is asked.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, End> {
        self.negentropy.reconcile(message).map_err(wrong)
    }

    /// What the side that asks says next. `None`: everything is told. No more than `most` ids may be lacking here.
    pub(crate) fn go_on(&mut self, message: &[u8], most: usize) -> Result<Option<Vec<u8>>, End> {
        let next = self.negentropy.reconcile_with_ids(message, &mut self.have, &mut self.need).map_err(wrong)?;
        // Each is named once by whoever keeps to the protocol.
        if self.need.len() > most || self.have.len() > self.items {
            return Err(End::Misbehaved("a part has more items than it may"));
        }
        Ok(next)
    }

    pub(crate) fn difference(self) -> Difference {
        Difference { theirs: ids(self.have), ours: ids(self.need) }
    }
}

fn ids(ids: Vec<Id>) -> Vec<EventId> {
    let mut ids: Vec<_> = ids.into_iter().map(|id| EventId::from_bytes(*id.as_bytes())).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn wrong(_: negentropy::Error) -> End {
    End::Misbehaved("a message of the comparison makes no sense")
}
