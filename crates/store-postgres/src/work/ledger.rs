//! [`Work`] as the ledger of the ingest procedure.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use kukuri_domain::{
    Address, Admitted, Event, EventId, Millis, PublicKey, Rank, Reason, State, Timestamp, TopicId,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    remains::{Remains, Subject},
    sharing::{self, Trace},
    vanish::VanishMark,
};
use kukuri_store::{
    IdRecord, Op, OutboxRow, StageChange, Standing, StoreRules,
    counters::{Counters, Tally},
    ingest::Ledger,
    subscriptions::Subscriptions,
};

use super::{Key, Noted, Row, RowSource, TopicNo, Work};
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

    fn find_topic(&mut self, topic: &TopicId) -> Result<Option<TopicNo>> {
        Ok(self.topic_nos.get(topic).copied())
    }

    fn topic_id(&mut self, topic: TopicNo) -> Result<TopicId> {
        self.topic(topic).map(|topic| topic.id.clone())
    }

    fn counters(&mut self, topic: Option<TopicNo>) -> Result<&mut Counters> {
        match topic {
            Some(topic) => self.topic(topic).map(|topic| &mut topic.counters),
            None => Ok(&mut self.node.counters),
        }
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
        Ok(self.known.get(id).copied())
    }

    fn has_event_by(&self, author: &PublicKey) -> Result<bool> {
        Ok(self.authors.contains(author) || self.effective_by.get(author).is_some_and(|rows| *rows > 0))
    }

    fn tombstones_of(&self, event: &Event) -> Result<Vec<Tombstone>> {
        let targets = [Some(DeletionTargetKind::EventId(event.id)), event.address().map(DeletionTargetKind::Address)];
        let tombstones = targets.into_iter().flatten().filter_map(|target| self.tombstones.get(&target));
        Ok(tombstones.flat_map(|tombstones| tombstones.values()).map(|noted| noted.what.clone()).collect())
    }

    fn key_state(&self, address: &Address) -> Result<Option<KeyState>> {
        Ok(self.keys.get(&address.digest()).map(Key::state))
    }

    fn tombstone(&self, target: &DeletionTargetKind, requester: &PublicKey) -> Result<Option<Tombstone>> {
        let noted = self.tombstones.get(target).and_then(|tombstones| tombstones.get(requester));
        Ok(noted.map(|noted| noted.what.clone()))
    }

    fn vanish_mark(&self, author: &PublicKey) -> Result<Option<VanishMark>> {
        Ok(self.marks.get(author).map(|noted| noted.what))
    }

    fn effective_request(&self, id: &EventId) -> Result<Option<Arc<Event>>> {
        Ok(self.requests.get(id).cloned())
    }

    fn remains(&self, subject: &Subject) -> Result<Vec<Remains>> {
        Ok(self.remains.get(subject).into_iter().flat_map(BTreeMap::values).cloned().collect())
    }

    fn row_id(&self, id: &EventId) -> Result<Option<(u64, EventId)>> {
        Ok(self.row(id).map(|row| (row.place.no, *id)))
    }

    fn versions_until(&self, address: &Address, until: Timestamp) -> Result<Vec<(u64, EventId)>> {
        let ids = self.versions.get(&address.digest()).map_or(&[][..], Vec::as_slice);
        let rows = ids.iter().filter_map(|id| self.row(id));
        let is_within_reach =
            |row: &&Row| row.record.standing.state() != State::Deleted && row.outline.created_at <= until;
        Ok(rows.filter(is_within_reach).map(|row| (row.place.no, row.outline.id)).collect())
    }

    fn rows_owned_by(&self, mark: &VanishMark) -> Result<Vec<(u64, EventId)>> {
        let covered = self.rows.values().filter(|row| !row.is_gone && mark.covers(&row.outline));
        Ok(covered.map(|row| (row.place.no, row.outline.id)).collect())
    }

    fn outline(&self, (_, id): (u64, EventId)) -> Result<Option<(Cow<'_, Event>, State)>> {
        Ok(self.row(&id).map(|row| (Cow::Borrowed(&row.outline), row.record.standing.state())))
    }

    fn read_row(&self, (_, id): (u64, EventId)) -> Result<Option<Row>> {
        Ok(self.row(&id).cloned())
    }

    fn event_of(row: &Row) -> &Event {
        &row.outline
    }

    fn topics_reached(&mut self, row: &Row) -> Result<Vec<TopicId>> {
        if !row.outline.kind.is_request() {
            return row.topics.iter().map(|no| self.topic_id(*no)).collect();
        }
        let named = sharing::named_topics(&row.outline).map(TopicId::new_unchecked);
        let traced = self.traces.iter().filter(|(_, trace)| trace.item().1 == row.outline.id);
        let stored = self.topics_of_traces.get(&row.outline.id).into_iter().flatten();
        Ok(named.chain(traced.map(|(topic, _)| topic.clone())).chain(stored.cloned()).collect())
    }

    fn stamp(&self) -> Millis {
        self.node.clock.latest
    }

    fn put(&mut self, admitted: &Admitted, topics: &[TopicId]) -> Result<()> {
        let (event, stamp) = (admitted.event(), self.stamp());
        let row = Row {
            place: self.next_place(event, stamp),
            outline: Event { content: String::new(), ..event.clone() },
            bytes: admitted.json().len() as u64,
            topics: topics.iter().map(|topic| self.topic_no(topic)).collect::<Result<_>>()?,
            record: self.new_record(admitted, Standing::Effective),
            source: RowSource::Admitted(admitted.clone()),
            is_gone: false,
        };
        self.count(&row, 1)?;
        for topic in &row.topics {
            let topic = self.topic(*topic)?;
            if event.is_sign_of_use() {
                topic.last_event_at = stamp;
            }
        }
        if let Some(address) = event.address() {
            self.put_key(address, event.rank(), Some(event.id));
        }
        self.write_outbox(&row, Op::Upsert)?;
        self.put_row(row);
        Ok(())
    }

    fn remember(&mut self, admitted: &Admitted, standing: Standing) -> Result<()> {
        let (id, record) = (admitted.event().id, self.new_record(admitted, standing));
        self.known.insert(id, standing.state());
        self.new_ids.push((id, record));
        Ok(())
    }

    fn retire(&mut self, mut row: Row, reason: Reason, cause: Option<EventId>) -> Result<()> {
        let id = row.outline.id;
        if row.is_effective() {
            if let Some(rows) = self.effective_by.get_mut(&row.outline.pubkey) {
                *rows = rows.saturating_sub(1);
            }
            if let Some(address) = row.outline.address() {
                // The key keeps its floor and has no effective version any more (D-9).
                let key = self.keys.get_mut(&address.digest());
                let key = key.ok_or_else(|| damaged(format!("the effective version {address} has no floor")))?;
                key.current = None;
            }
            self.write_outbox(&row, Op::Delete(reason))?;
            if row.outline.kind.is_request() {
                self.gone_requests.push(id);
                self.traces.retain(|(_, trace)| trace.request() != id);
            }
        }
        self.count(&row, -1)?;
        row.record.standing = Standing::Gone { reason, cause, since: self.stamp() };
        row.is_gone = !self.rules.deletion.keeps_row(reason);
        if !row.is_gone {
            self.count(&row, 1)?;
        }
        self.known.insert(id, reason.state());
        self.rows.insert(id, row);
        Ok(())
    }

    fn raise_floor(&mut self, address: &Address, floor: Rank) -> Result<()> {
        self.put_key(address.clone(), floor, None);
        Ok(())
    }

    fn put_tombstone(&mut self, tombstone: Tombstone) -> Result<()> {
        let noted = Noted { at: self.stamp(), what: tombstone };
        self.put_noted_tombstone(noted);
        Ok(())
    }

    fn put_vanish_mark(&mut self, mark: VanishMark) -> Result<()> {
        self.marks.put(mark.pubkey, Noted { what: mark, at: self.stamp() });
        Ok(())
    }

    /// `write_remains` merges them with stored remains of the same subject.
    fn leave_remains(&mut self, remains: Vec<Remains>) -> Result<()> {
        for remains in remains {
            let known = self.remains.entry(remains.subject).or_default();
            if known.len() >= remains.subject.max_topics() && !known.contains_key(&remains.topic) {
                continue;
            }
            let known = known.entry(remains.topic.clone()).or_insert_with(|| remains.clone());
            known.earliest = known.earliest.min(remains.earliest);
            let noted = self.noted_remains.entry((remains.subject, remains.topic.clone())).or_insert(remains);
            noted.earliest = known.earliest;
        }
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
    /// Deletes a row for good. A hidden row is not announced (P-8).
    pub(crate) fn purge_row(&mut self, row: Row, reason: Reason) -> Result<()> {
        if row.is_effective() {
            return self.retire(row, reason, None);
        }
        self.count(&row, -1)?;
        self.rows.insert(row.outline.id, Row { is_gone: true, ..row });
        Ok(())
    }

    pub(crate) fn put_noted_tombstone(&mut self, noted: Noted<Tombstone>) {
        let (target, requester) = (noted.what.target.target.clone(), noted.what.target.requester_pubkey);
        self.tombstones.entry(target).or_default().put(requester, noted);
    }

    fn put_key(&mut self, address: Address, floor: Rank, current: Option<EventId>) {
        let raised_at = self.stamp();
        self.keys.put(address.digest(), Key { address, floor, raised_at, current });
    }

    /// The record of an id after its first decision.
    fn new_record(&mut self, admitted: &Admitted, standing: Standing) -> IdRecord {
        let stamp = self.stamp();
        self.node.ids += 1;
        IdRecord { source: admitted.source(), first_seen_at: stamp, last_seen_at: stamp, seen_count: 1, standing }
    }

    fn write_outbox(&mut self, row: &Row, op: Op) -> Result<()> {
        let (event, effective_key, written_at) = (&row.outline, row.outline.address(), self.stamp());
        for topic in &row.topics {
            let topic = self.topic_id(*topic)?;
            self.node.head = self.node.head.next();
            self.outbox.push(OutboxRow {
                seq: self.node.head,
                op,
                event_id: event.id,
                topic,
                kind: event.kind,
                created_at: event.created_at,
                ingested_at: row.place.ingested_at,
                effective_key: effective_key.clone(),
                written_at,
            });
        }
        Ok(())
    }
}
