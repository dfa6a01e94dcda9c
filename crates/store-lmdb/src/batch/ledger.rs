//! A write transaction as the ledger of the ingest procedure.

use std::{borrow::Cow, sync::Arc};

use kukuri_domain::{
    Address, Admitted, Event, EventId, Kind, Millis, PublicKey, Rank, Reason, State, Tags, Timestamp, TopicId,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    remains::{Remains, Subject},
    sharing::{self, Trace},
    vanish::VanishMark,
};
use kukuri_store::{
    Op, StageChange, Standing, StoreRules,
    counters::{Counters, Tally},
    ingest::Ledger,
    subscriptions::Subscriptions,
};

use super::{Batch, StoredRow};
use crate::{
    error::{Failure, Result, damaged},
    key::{self, AuthorNo, EventNo, TopicNo, prefix},
    record::{KeyRecord, TombstoneRecord, VanishRecord},
    tables::Table,
    traces,
};

impl Tally for Batch<'_> {
    type Error = Failure;
    type TopicNo = TopicNo;

    fn rules(&self) -> &StoreRules {
        self.ctx.rules
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.ctx.subscriptions
    }

    fn find_topic(&mut self, topic: &TopicId) -> Result<Option<TopicNo>> {
        self.known_topic_no(topic)
    }

    fn topic_id(&mut self, topic: TopicNo) -> Result<TopicId> {
        self.topic(topic).map(|topic| topic.id.clone())
    }

    fn counters(&mut self, topic: Option<TopicNo>) -> Result<&mut Counters> {
        match topic {
            Some(topic) => self.topic(topic).map(|topic| &mut topic.record.counters),
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

impl Ledger for Batch<'_> {
    type RowId = EventNo;
    type Row = StoredRow<'static>;

    fn known_state(&self, id: &EventId) -> Result<Option<State>> {
        Ok(self.view().known_id(id)?.map(|known| known.record.standing.state()))
    }

    fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    fn has_event_by(&self, author: &PublicKey) -> Result<bool> {
        let Some(author) = self.view().find::<AuthorNo>(author.as_bytes())? else { return Ok(false) };
        Ok(self.view().prefix_iter(Table::ByAuthor, &prefix::author(author))?.next().transpose()?.is_some())
    }

    fn tombstones_of(&self, event: &Event) -> Result<Vec<Tombstone>> {
        self.view().tombstones_of(event)
    }

    fn key_state(&self, address: &Address) -> Result<Option<KeyState>> {
        Ok(self.view().key(address)?.map(|key| key.state()))
    }

    fn tombstone(&self, target: &DeletionTargetKind, requester: &PublicKey) -> Result<Option<Tombstone>> {
        let record: Option<TombstoneRecord> = self.view().find(&key::tombstone(target, requester))?;
        record.map(|record| self.view().tombstone_in(record)).transpose()
    }

    fn vanish_mark(&self, author: &PublicKey) -> Result<Option<VanishMark>> {
        self.view().vanish_mark(author)
    }

    fn effective_request(&self, id: &EventId) -> Result<Option<Arc<Event>>> {
        self.view().effective_row_of(id)?.map(|row| row.event().map(Arc::new)).transpose()
    }

    fn remains(&self, subject: &Subject) -> Result<Vec<Remains>> {
        self.view().remains(subject)
    }

    fn row_id(&self, id: &EventId) -> Result<Option<EventNo>> {
        Ok(self.view().known_id(id)?.and_then(|known| known.no))
    }

    fn versions_until(&self, address: &Address, until: Timestamp) -> Result<Vec<EventNo>> {
        let current = self.view().key(address)?.and_then(|key| key.current);
        let mut rows = self.view().hidden_until(&key::hidden_versions(address), until)?;
        rows.extend(current);
        Ok(rows)
    }

    fn rows_owned_by(&self, mark: &VanishMark) -> Result<Vec<EventNo>> {
        let replaced = self.replaced_mark.filter(|replaced| replaced.pubkey == mark.pubkey);
        self.view().rows_covered_by(mark, replaced.map(|replaced| replaced.until))
    }

    fn outline(&self, row: EventNo) -> Result<Option<(Cow<'_, Event>, State)>> {
        let Some(row) = self.view().row(row)? else { return Ok(None) };
        let mut event = row.event()?;
        event.content = String::new();
        if event.kind != Kind::GIFT_WRAP && !event.kind.is_keyed() {
            event.tags = Tags::default();
        }
        Ok(Some((Cow::Owned(event), row.state)))
    }

    fn read_row(&self, no: EventNo) -> Result<Option<StoredRow<'static>>> {
        self.view().row(no)?.map(|row| StoredRow::read(no, row)).transpose()
    }

    fn event_of<'r>(row: &'r StoredRow<'static>) -> &'r Event {
        &row.event
    }

    fn topics_reached(&mut self, row: &StoredRow<'static>) -> Result<Vec<TopicId>> {
        if !row.event.kind.is_request() {
            return self.topic_ids(&row.topics);
        }
        let traces = traces::of_id(self.view(), &row.event.id)?;
        let named = sharing::named_topics(&row.event).map(TopicId::new_unchecked);
        Ok(named.chain(traces.into_iter().map(|record| record.topic)).collect())
    }

    fn stamp(&self) -> Millis {
        self.node.clock.latest
    }

    fn put(&mut self, admitted: &Admitted, topics: &[TopicId]) -> Result<()> {
        let (event, stamp) = (admitted.event(), self.stamp());
        let row = self.add_row(Cow::Borrowed(event), topics, admitted.json().clone(), stamp, State::Effective)?;
        let address = event.address();
        if let Some(address) = &address {
            self.put_key(address, &KeyRecord { floor: event.rank(), raised_at: stamp, current: Some(row.no) })?;
        }
        for topic in &row.topics {
            let record = &mut self.topic(*topic)?.record;
            if event.is_sign_of_use() {
                record.last_event_at = stamp;
            }
        }
        self.put_id(admitted, Standing::Effective, Some(row.no))?;
        self.write_outbox(&row, address, Op::Upsert)
    }

    fn remember(&mut self, admitted: &Admitted, standing: Standing) -> Result<()> {
        self.put_id(admitted, standing, None)
    }

    fn retire(&mut self, mut row: StoredRow<'static>, reason: Reason, cause: Option<EventId>) -> Result<()> {
        if row.is_effective() {
            let address = row.event.address();
            // The key keeps its floor and has no effective version any more (D-9).
            if let Some(address) = &address
                && let Some(key) = self.view().key(address)?
            {
                self.put_key(address, &KeyRecord { current: None, ..key })?;
            }
            if row.event.kind.is_request() {
                self.drop_traces(&row.event)?;
            }
            self.write_outbox(&row, address, Op::Delete(reason))?;
        }
        let keeps_row = self.ctx.rules.deletion.keeps_row(reason);
        let id = row.event.id;
        let mut known = self.view().known_id(&id)?.ok_or_else(|| damaged(format!("row {id} has no id record")))?;
        known.no = keeps_row.then_some(row.no);
        known.record.standing = Standing::Gone { reason, cause, since: self.stamp() };
        self.put_known_id(&id, known)?;
        self.unfile(&row)?;
        if !keeps_row {
            return self.delete(Table::Events, &row.no.key());
        }
        row.state = reason.state();
        self.put(Table::Events, &row.no.key(), &row.pack())?;
        self.file(&row)
    }

    fn raise_floor(&mut self, address: &Address, floor: Rank) -> Result<()> {
        self.put_key(address, &KeyRecord { floor, raised_at: self.stamp(), current: None })
    }

    fn put_tombstone(&mut self, tombstone: Tombstone) -> Result<()> {
        let key = key::tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey);
        self.put_record(&key, &TombstoneRecord::new(tombstone, self.stamp()))
    }

    fn put_vanish_mark(&mut self, mark: VanishMark) -> Result<()> {
        self.replaced_mark = self.view().vanish_mark(&mark.pubkey)?;
        self.put_record(mark.pubkey.as_bytes(), &VanishRecord::new(mark, self.stamp()))
    }

    fn leave_remains(&mut self, remains: Vec<Remains>) -> Result<()> {
        let stamp = self.stamp();
        remains.into_iter().try_for_each(|remains| self.merge_remains(remains, stamp))
    }

    fn leave_traces(&mut self, traces: Vec<(TopicId, Trace)>) -> Result<bool> {
        let mut is_new = false;
        // Cached, because many traces belong to one request, which may be long.
        let mut last: Option<(EventId, bool)> = None;
        for (topic, trace) in traces {
            let request = trace.request();
            let passes = match last {
                Some((id, passes)) if id == request => passes,
                _ => traces::passed_on(self.view(), &request)?.is_some(),
            };
            last = Some((request, passes));
            if passes {
                is_new |= self.put_trace(topic, trace)?;
            }
        }
        Ok(is_new)
    }
}
