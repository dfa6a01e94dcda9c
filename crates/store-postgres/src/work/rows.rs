//! Storing and removing events.

use std::sync::Arc;

use kukuri_domain::{Address, Admitted, Event, EventId, Rank, Reason, State, retention::RetentionClass};
use kukuri_store::{IdRecord, Op, RowRecord, Standing, ingest::Ledger as _};

use super::{Cell, Key, KnownId, RowPlace, TopicNo, Work};
use crate::{
    codes::Class,
    error::{Result, damaged},
};

/// The part of a row that decisions and counters need.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) place: RowPlace,
    /// The event without its content, and with only the tags that determine its owners and its key.
    pub(crate) outline: Event,
    /// Length of its JSON.
    pub(crate) bytes: u64,
    pub(crate) topics: Vec<TopicNo>,
    pub(crate) state: State,
    /// The row's state on the server.
    pub(crate) filed: Filed,
    /// This transaction has purged it.
    pub(crate) is_gone: bool,
}

/// State of a row on the server when the transaction begins.
#[derive(Clone, Debug)]
pub(crate) enum Filed {
    /// Not stored: ingested by this transaction.
    New(Admitted),
    /// Not stored: loaded from another store.
    Loaded(Arc<Loaded>),
    /// Stored, with index rows if it was effective.
    Stored {
        /// Whether it was effective when the transaction began.
        effective: bool,
    },
}

/// A row of another store, unchanged.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) event: Event,
    pub(crate) row: RowRecord,
}

impl Row {
    pub(crate) fn class(&self) -> RetentionClass {
        RetentionClass::of(self.outline.kind, self.is_effective())
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.state == State::Effective
    }
}

impl Work {
    /// Stores an event as effective.
    pub(crate) fn store(&mut self, admitted: &Admitted) -> Result<()> {
        let event = admitted.event();
        self.node.last_event += 1;
        let stamp = self.stamp();
        let place = RowPlace { class: Class::of(event.kind), ingested_at: stamp, no: self.node.last_event };
        let topics: Vec<_> = admitted.topics().iter().map(|topic| self.topic_no(topic)).collect();
        let row = Row {
            place,
            outline: Event { content: String::new(), ..event.clone() },
            bytes: admitted.json().len() as u64,
            topics: topics.clone(),
            state: State::Effective,
            filed: Filed::New(admitted.clone()),
            is_gone: false,
        };
        self.count(&row, 1)?;
        for topic in &topics {
            self.topic(*topic)?.last_event_at = stamp;
        }
        if let Some(address) = event.address() {
            self.change_key(&address, event.rank(), Some(event.id));
        }
        self.note_id(admitted, Standing::Effective, Some(place));
        self.put_row(row);
        self.write_outbox(event, &topics, stamp, Op::Upsert)
    }

    /// Records the id of an event after its first decision.
    pub(super) fn note_id(&mut self, admitted: &Admitted, standing: Standing, place: Option<RowPlace>) {
        let stamp = self.stamp();
        let record =
            IdRecord { source: admitted.source(), first_seen_at: stamp, last_seen_at: stamp, seen_count: 1, standing };
        let cell = self.ids.entry(admitted.event().id).or_insert_with(|| Cell::stored(None));
        cell.now = Some(KnownId { record, place });
        self.node.ids += 1;
    }

    /// Retires a row, effective or hidden, for this reason.
    pub(crate) fn retire(&mut self, mut row: Row, reason: Reason, cause: Option<EventId>) -> Result<()> {
        let id = row.outline.id;
        if row.is_effective() {
            if let Some(address) = row.outline.address() {
                self.leave_key(&address)?;
            }
            self.write_outbox(&row.outline, &row.topics, row.place.ingested_at, Op::Delete(reason))?;
            if row.outline.kind.is_request() {
                self.drop_traces(&id);
                if let (Reason::Vanish, Some(cause)) = (reason, cause) {
                    self.heirs.push((id, cause));
                }
            }
        }
        self.count(&row, -1)?;
        let keeps_row = self.rules.deletion.keeps_row(reason);
        let standing = Standing::Gone { reason, cause, since: self.stamp() };
        self.change_id(&id, |known| {
            known.record.standing = standing;
            known.place = known.place.filter(|_| keeps_row);
        })?;
        row.state = reason.state();
        row.is_gone = !keeps_row;
        if keeps_row {
            self.count(&row, 1)?;
        }
        self.rows.insert(id, row);
        Ok(())
    }

    /// Deletes a row for good. A hidden row is not announced (P-8).
    pub(crate) fn purge_row(&mut self, row: Row, reason: Reason) -> Result<()> {
        if row.is_effective() {
            return self.retire(row, reason, None);
        }
        let id = row.outline.id;
        self.count(&row, -1)?;
        self.change_id(&id, |known| known.place = None)?;
        self.rows.insert(id, Row { is_gone: true, ..row });
        Ok(())
    }

    pub(super) fn change_key(&mut self, address: &Address, floor: Rank, current: Option<EventId>) {
        let raised_at = self.stamp();
        let cell = self.keys.entry(address.digest()).or_insert_with(|| Cell::stored(None));
        cell.now = Some(Key { address: address.clone(), floor, raised_at, current });
    }

    /// The key keeps its floor and has no effective version any more (D-9).
    fn leave_key(&mut self, address: &Address) -> Result<()> {
        let key = self.keys.get_mut(&address.digest()).and_then(|cell| cell.now.as_mut());
        key.ok_or_else(|| damaged(format!("the key {address} has an effective version and no floor")))?.current = None;
        Ok(())
    }

    fn change_id(&mut self, id: &EventId, change: impl FnOnce(&mut KnownId)) -> Result<()> {
        let known = self.ids.get_mut(id).and_then(|cell| cell.now.as_mut());
        change(known.ok_or_else(|| damaged(format!("row {id} has no id record")))?);
        Ok(())
    }
}
