//! Storing events and taking them away.

use std::{collections::BTreeSet, sync::Arc};

use kukuri_domain::{
    Address, Admitted, Event, EventId, Rank, Reason, State, retention::RetentionClass, sharing::Trace,
    vanish::VanishMark,
};
use kukuri_store::{IdRecord, Op, RowRecord, Standing};

use super::{Cell, Key, KnownId, Place, TopicNo, Work};
use crate::{
    codes::Class,
    error::{Result, damaged},
};

/// A row, as far as decisions and counters need it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) place: Place,
    /// The event without its content, and without tags that say nothing of its owners or its key.
    pub(crate) outline: Event,
    /// The length of its JSON.
    pub(crate) bytes: u64,
    pub(crate) topics: Vec<TopicNo>,
    pub(crate) state: State,
    /// What the server has of it.
    pub(crate) filed: Filed,
    /// It was thrown away, here.
    pub(crate) is_gone: bool,
}

/// What the server has of a row when the transaction begins.
#[derive(Clone, Debug)]
pub(crate) enum Filed {
    /// Nothing: it came with this transaction.
    New(Admitted),
    /// Nothing: it comes from another store.
    Loaded(Arc<Loaded>),
    /// The row, with index rows if it was effective.
    Stored {
        /// Whether it was.
        effective: bool,
    },
}

/// A row of another store, as it was there.
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
        let place = Place { class: Class::of(event.kind), ingested_at: stamp, no: self.node.last_event };
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
        self.remember(admitted, Standing::Effective, Some(place));
        self.put_row(row);
        self.write_outbox(event, &topics, stamp, Op::Upsert)
    }

    /// Remembers the id of an event that was decided on for the first time.
    pub(crate) fn remember(&mut self, admitted: &Admitted, standing: Standing, place: Option<Place>) {
        let stamp = self.stamp();
        let record =
            IdRecord { source: admitted.source(), first_seen_at: stamp, last_seen_at: stamp, seen_count: 1, standing };
        let cell = self.ids.entry(admitted.event().id).or_insert_with(|| Cell::stored(None));
        cell.now = Some(KnownId { record, place });
        self.node.ids += 1;
    }

    /// A row, effective or hidden, loses its standing for this reason.
    pub(crate) fn take_away(&mut self, id: &EventId, reason: Reason, cause: Option<EventId>) -> Result<()> {
        let Some(mut row) = self.row(id).cloned() else { return Ok(()) };
        if row.is_effective() {
            if let Some(address) = row.outline.address() {
                self.leave_key(&address)?;
            }
            self.write_outbox(&row.outline, &row.topics, row.place.ingested_at, Op::Delete(reason))?;
            if row.outline.kind.is_request() {
                self.drop_traces(id);
            }
        }
        self.count(&row, -1)?;
        let keeps_row = self.rules.deletion.keeps_row(reason);
        let standing = Standing::Gone { reason, cause, since: self.stamp() };
        self.change_id(id, |known| {
            known.record.standing = standing;
            known.place = known.place.filter(|_| keeps_row);
        })?;
        row.state = reason.state();
        row.is_gone = !keeps_row;
        if keeps_row {
            self.count(&row, 1)?;
        }
        self.rows.insert(*id, row);
        Ok(())
    }

    /// Throws a row away for good. Of a hidden one nobody need hear (P-8).
    pub(crate) fn throw_away(&mut self, id: &EventId, reason: Reason) -> Result<()> {
        let Some(row) = self.row(id).cloned() else { return Ok(()) };
        if row.is_effective() {
            return self.take_away(id, reason, None);
        }
        self.count(&row, -1)?;
        self.change_id(id, |known| known.place = None)?;
        self.rows.insert(*id, Row { is_gone: true, ..row });
        Ok(())
    }

    /// Takes away every row that a mark covers, in the order of their arrival (D-12), and leaves a trace of that.
    pub(crate) fn vanish(&mut self, mark: &VanishMark) -> Result<()> {
        let rows = self.rows.values().filter(|row| !row.is_gone && mark.covers(&row.outline));
        let mut covered: Vec<_> = rows.map(|row| (row.place.no, row.outline.id)).collect();
        covered.sort_unstable();
        let mut topics = BTreeSet::new();
        for (_, id) in &covered {
            // Where a request that vanishes was told of, the one that takes it away has to be.
            topics.extend(self.topics_reached(id)?);
            if self.row(id).is_some_and(|row| row.outline.kind.is_request()) {
                self.heirs.push((*id, mark.request_id));
            }
            self.take_away(id, Reason::Vanish, Some(mark.request_id))?;
        }
        let trace = Trace::Request { created_at: mark.until, id: mark.request_id };
        self.traces.extend(topics.into_iter().map(|topic| (topic, trace.clone())));
        Ok(())
    }

    /// A version that is refused raises its key's floor all the same (D-9).
    pub(crate) fn raise_floor(&mut self, address: &Address, floor: Rank) {
        self.change_key(address, floor, None);
    }

    fn change_key(&mut self, address: &Address, floor: Rank, current: Option<EventId>) {
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
