//! The facts and the writes that a store supplies to the ingest procedure.

use std::{borrow::Cow, sync::Arc};

use kukuri_domain::{
    Address, Admitted, Event, EventId, Millis, PublicKey, Rank, Reason, State, Timestamp, TopicId,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    remains::{Remains, Subject},
    sharing::Trace,
    vanish::VanishMark,
};

use crate::{counters::Tally, report::Standing};

/// One write transaction of a store, as [`ingest_batch`](super::ingest_batch) reads and changes it.
///
/// A ledger holds no rule and no order of steps. Every read sees the writes before it. All writes commit together.
pub trait Ledger: Tally {
    /// Identifies a stored row, effective or hidden. Ordered by arrival.
    type RowId: Copy + Ord;
    /// A stored row, as read.
    type Row;

    // Facts about an event.

    /// The state of an event whose id is remembered.
    fn known_state(&self, id: &EventId) -> Result<Option<State>, Self::Error>;

    /// Whether the disk has space left for requests (kinds 5 and 62) only, of authors with another event here.
    fn is_disk_full(&self) -> bool {
        false
    }

    /// Whether an author has an effective event (P-6), by a seek in an index. Asked only for authors of requests and versions
    /// of the batch, and only while permanent rows fill their share or the disk is full.
    fn has_event_by(&self, author: &PublicKey) -> Result<bool, Self::Error>;

    /// The tombstones that name the event's id or its address, of any requester.
    fn tombstones_of(&self, event: &Event) -> Result<Vec<Tombstone>, Self::Error>;

    /// The floor and the effective version of a replaceable or addressable event's key.
    fn key_state(&self, address: &Address) -> Result<Option<KeyState>, Self::Error>;

    /// One tombstone, by its target and requester.
    fn tombstone(&self, target: &DeletionTargetKind, requester: &PublicKey) -> Result<Option<Tombstone>, Self::Error>;

    /// The vanish mark of an author.
    fn vanish_mark(&self, author: &PublicKey) -> Result<Option<VanishMark>, Self::Error>;

    /// A stored, effective request with all its tags.
    fn effective_request(&self, id: &EventId) -> Result<Option<Arc<Event>>, Self::Error>;

    /// The remains of a subject's events that have no row, one record per topic (G-7).
    fn remains(&self, subject: &Subject) -> Result<Vec<Remains>, Self::Error>;

    // Facts about stored rows.

    /// The row of an id, if the event is stored.
    fn row_id(&self, id: &EventId) -> Result<Option<Self::RowId>, Self::Error>;

    /// Rows of an address that are not deleted. Rows created after `until` may be left out.
    fn versions_until(&self, address: &Address, until: Timestamp) -> Result<Vec<Self::RowId>, Self::Error>;

    /// All rows that a vanish mark covers, and possibly others of the same author.
    fn rows_owned_by(&self, mark: &VanishMark) -> Result<Vec<Self::RowId>, Self::Error>;

    /// The event of a row, and its state. The content, and tags that name neither owner nor key, may be missing.
    fn outline(&self, row: Self::RowId) -> Result<Option<(Cow<'_, Event>, State)>, Self::Error>;

    /// Reads a row.
    fn read_row(&self, row: Self::RowId) -> Result<Option<Self::Row>, Self::Error>;

    /// The event of a row, with at least the fields of [`Self::outline`].
    fn event_of(row: &Self::Row) -> &Event;

    /// The topics whose shared sets contain a row: those that it is bound to, for a request those that it names
    /// ([`sharing::named_topics`](kukuri_domain::sharing::named_topics)), and those in which it left a trace (G-7).
    fn topics_reached(&mut self, row: &Self::Row) -> Result<Vec<TopicId>, Self::Error>;

    // Writes.

    /// The timestamp of all writes: never before that of an earlier transaction (P-5).
    fn stamp(&self) -> Millis;

    /// Stores an event as effective, bound to these topics: row, indexes, floor, id, counters, outbox rows.
    fn put(&mut self, admitted: &Admitted, topics: &[TopicId]) -> Result<(), Self::Error>;

    /// Records the id of an event that is not stored (P-1).
    fn remember(&mut self, admitted: &Admitted, standing: Standing) -> Result<(), Self::Error>;

    /// Hides or removes a row, depending on the reason (D-7). If the row was effective, this writes its outbox rows and
    /// clears it as its key's effective version. The traces of a request are removed with it.
    fn retire(&mut self, row: Self::Row, reason: Reason, cause: Option<EventId>) -> Result<(), Self::Error>;

    /// Raises the floor of a key that has no effective version (D-9).
    fn raise_floor(&mut self, address: &Address, floor: Rank) -> Result<(), Self::Error>;

    /// Writes a tombstone, replacing the one with the same target and requester.
    fn put_tombstone(&mut self, tombstone: Tombstone) -> Result<(), Self::Error>;

    /// Writes a vanish mark, replacing the author's earlier one.
    fn put_vanish_mark(&mut self, mark: VanishMark) -> Result<(), Self::Error>;

    /// Records remains, or merges them with the known record of the same subject and topic: the earliest time stays. A
    /// topic beyond [`Subject::max_topics`] is left out.
    fn leave_remains(&mut self, remains: Vec<Remains>) -> Result<(), Self::Error>;

    /// Writes the traces whose requests are stored and shared with other nodes (G-7). A topic has one hint per version:
    /// that of the latest request. Returns whether any trace is new.
    fn leave_traces(&mut self, traces: Vec<(TopicId, Trace)>) -> Result<bool, Self::Error>;
}
