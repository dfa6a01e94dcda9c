//! [`Work`] as the ledger of the ingest procedure.

use std::{borrow::Cow, sync::Arc};

use kukuri_domain::{
    Address, Admitted, Event, EventId, Millis, PublicKey, Rank, Reason, State, Timestamp, TopicId,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    sharing::Trace,
    vanish::VanishMark,
};
use kukuri_store::{
    StageChange, Standing, StoreRules,
    counters::{Counters, Tally},
    ingest::Ledger,
    subscriptions::Subscriptions,
};

use super::{Cell, Noted, Row, TopicNo, Work};
use crate::error::{Failure, Result, damaged};

impl Tally for Work {
    type Error = Failure;
    type TopicNo = TopicNo;

    fn rules(&self) -> &StoreRules {
        &self.rules
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn node_counters(&mut self) -> &mut Counters {
        &mut self.node.counters
    }

    fn find_topic(&mut self, topic: &TopicId) -> Result<Option<TopicNo>> {
        Ok(self.topic_nos.get(topic).copied())
    }

    fn topic_id(&mut self, topic: TopicNo) -> Result<TopicId> {
        self.topic(topic).map(|topic| topic.id.clone())
    }

    fn topic_counters(&mut self, topic: TopicNo) -> Result<&mut Counters> {
        self.topic(topic).map(|topic| &mut topic.counters)
    }

    fn changed_topics(&mut self) -> &mut Vec<TopicNo> {
        &mut self.changed_topics
    }

    fn stage_changes(&mut self) -> &mut Vec<StageChange> {
        &mut self.stages
    }
}

impl Ledger for Work {
    /// Row number (order of arrival) and event id.
    type RowId = (u64, EventId);
    type Row = Row;

    fn known_state(&self, id: &EventId) -> Result<Option<State>> {
        Ok(self.known_id(id).map(|known| known.record.standing.state()))
    }

    fn vanish_marks_of(&self, event: &Event) -> Result<Vec<VanishMark>> {
        Ok(event.owners().filter_map(|owner| self.mark(&owner)).collect())
    }

    fn tombstones_of(&self, event: &Event) -> Result<Vec<Tombstone>> {
        let mut tombstones = self.tombstones_under(&DeletionTargetKind::EventId(event.id));
        if let Some(address) = event.address() {
            tombstones.extend(self.tombstones_under(&DeletionTargetKind::Address(address)));
        }
        Ok(tombstones)
    }

    fn key_state(&self, address: &Address) -> Result<Option<KeyState>> {
        Ok(self.key(address).map(|key| key.state()))
    }

    fn tombstone(&self, target: &DeletionTargetKind, requester: &PublicKey) -> Result<Option<Tombstone>> {
        let cell = self.tombstones.get(&(target.clone(), *requester));
        Ok(cell.and_then(|cell| cell.now.as_ref()).map(|noted| noted.what.clone()))
    }

    fn vanish_mark(&self, author: &PublicKey) -> Result<Option<VanishMark>> {
        Ok(self.mark(author))
    }

    fn effective_request(&self, id: &EventId) -> Result<Option<Arc<Event>>> {
        Ok(self.requests.get(id).cloned())
    }

    fn row_id(&self, id: &EventId) -> Result<Option<(u64, EventId)>> {
        Ok(self.row(id).map(|row| (row.place.no, *id)))
    }

    fn versions_until(&self, address: &Address, until: Timestamp) -> Result<Vec<(u64, EventId)>> {
        let is_within_reach = |row: &&Row| row.state != State::Deleted && row.outline.created_at <= until;
        let rows = self.versions(address).filter(is_within_reach);
        Ok(rows.map(|row| (row.place.no, row.outline.id)).collect())
    }

    fn rows_owned_by(&self, mark: &VanishMark) -> Result<Vec<(u64, EventId)>> {
        let covered = self.rows.values().filter(|row| !row.is_gone && mark.covers(&row.outline));
        Ok(covered.map(|row| (row.place.no, row.outline.id)).collect())
    }

    fn outline(&self, (_, id): (u64, EventId)) -> Result<Option<(Cow<'_, Event>, State)>> {
        Ok(self.row(&id).map(|row| (Cow::Borrowed(&row.outline), row.state)))
    }

    fn read_row(&self, (_, id): (u64, EventId)) -> Result<Option<Row>> {
        Ok(self.row(&id).cloned())
    }

    fn event_of(row: &Row) -> &Event {
        &row.outline
    }

    /// Only topics with traces of this transaction; the stored ones are looked up when traces are written.
    fn topics_reached(&mut self, row: &Row) -> Result<Vec<TopicId>> {
        let mut topics = row.topics.iter().map(|no| self.topic_id(*no)).collect::<Result<Vec<_>>>()?;
        if row.outline.kind.is_request() {
            let traced = self.traces.iter().filter(|(_, trace)| trace.item().1 == row.outline.id);
            topics.extend(traced.map(|(topic, _)| topic.clone()));
        }
        Ok(topics)
    }

    fn stamp(&self) -> Millis {
        self.node.clock.latest
    }

    fn put(&mut self, admitted: &Admitted) -> Result<()> {
        self.store(admitted)
    }

    fn remember(&mut self, admitted: &Admitted, standing: Standing) -> Result<()> {
        self.note_id(admitted, standing, None);
        Ok(())
    }

    fn retire(&mut self, row: Row, reason: Reason, cause: Option<EventId>) -> Result<()> {
        self.retire(row, reason, cause)
    }

    fn raise_floor(&mut self, address: &Address, floor: Rank) -> Result<()> {
        self.change_key(address, floor, None);
        Ok(())
    }

    fn put_tombstone(&mut self, tombstone: Tombstone) -> Result<()> {
        let at = self.stamp();
        let cell = self.tombstone_cell(&tombstone);
        cell.now = Some(Noted { what: tombstone, at });
        Ok(())
    }

    fn put_vanish_mark(&mut self, mark: VanishMark) -> Result<()> {
        let at = self.stamp();
        let cell = self.marks.entry(mark.pubkey).or_insert_with(|| Cell::stored(None));
        cell.now = Some(Noted { what: mark, at });
        Ok(())
    }

    /// `write_traces` checks whether their request is stored and shared.
    fn leave_traces(&mut self, traces: Vec<(TopicId, Trace)>) -> Result<bool> {
        let is_new = traces.iter().fold(false, |is_new, (topic, trace)| {
            // Keep every trace of an item, not only the first: its request may turn out not to be stored.
            self.traced.insert((topic.clone(), trace.item().1)) || is_new
        });
        self.traces.extend(traces);
        Ok(is_new)
    }
}

impl Work {
    /// The row of an id that a purge or a sweep has just read.
    pub(crate) fn read_before(&self, id: &EventId) -> Result<Row> {
        self.row(id).cloned().ok_or_else(|| damaged(format!("row {id} was not read")))
    }
}
