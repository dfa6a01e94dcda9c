//! Asking for events.

use kukuri_domain::{Filter, Millis, Sketch, Viewer};

use crate::{event::StoredEvent, outbox::Seq};

/// A question: events that match any of the filters, that this viewer may see now.
#[derive(Clone, Debug)]
pub struct Query {
    /// Any of these. A filter's own limit counts for it alone; one without a limit gets everything (W-1).
    pub filters: Vec<Filter>,
    /// Who asks (E-10).
    pub viewer: Viewer,
    /// What has expired by now is not shown.
    pub now: Millis,
    /// How many bytes of JSON the answer may have, so that large events do not make it larger than a reader can hold.
    /// Each filter has an equal share, and at least one event; what is over it is left out as by a limit.
    pub bytes: usize,
}

impl Query {
    /// The bytes of JSON that one filter may be answered with.
    pub fn share(&self) -> usize {
        self.bytes / self.filters.len().max(1)
    }

    /// Everything that one filter matches.
    pub fn of(filter: Filter, viewer: Viewer, now: Millis) -> Self {
        Self { filters: vec![filter], viewer, now, bytes: usize::MAX }
    }
}

/// The answer: newest first, ties by the lower id, each event once (W-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outbox sequence it was read at: what came later is not in it and will be live (W-2).
    pub seq: Seq,
    /// The events.
    pub events: Vec<StoredEvent>,
    /// Whether limits have left matches out (NIP-67).
    pub rest: Rest,
}

/// What an answer leaves out of the stored events that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: every match was sent.
    None,
    /// Something, for certain.
    More,
    /// A filter was cut by its limit, and telling whether that left a match out would need more reading.
    Unknown,
}

/// How many events match a query, limits aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// How many there are, each counted once.
    pub events: u64,
    /// The sketch that was given, with their authors noted in it (NIP-45).
    pub sketch: Option<Sketch>,
}
