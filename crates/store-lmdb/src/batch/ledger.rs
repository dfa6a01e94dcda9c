//! A write transaction as the ledger of the ingest procedure.

use std::{borrow::Cow, sync::Arc};

use kukuri_domain::{
    Address, Admitted, Event, EventId, Kind, Letter, Millis, PublicKey, Rank, Reason, State, Timestamp, TopicId,
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

use super::{Batch, StoredRow};
use crate::{
    error::{Failure, Result, engine},
    key::{self, AuthorNo, EventNo, Order, TopicNo, prefix},
    known::{tombstones_of, vanish_marks_of},
    lookup::row_of,
    pack::Unpack,
    record::{Cover, Row, TombstoneRecord, VanishRecord},
    tables::Table,
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

    fn node_counters(&mut self) -> &mut Counters {
        &mut self.node.counters
    }

    fn find_topic(&mut self, topic: &TopicId) -> Result<Option<TopicNo>> {
        self.known_topic_no(topic)
    }

    fn topic_id(&mut self, topic: TopicNo) -> Result<TopicId> {
        self.topic(topic).map(|topic| topic.id.clone())
    }

    fn topic_counters(&mut self, topic: TopicNo) -> Result<&mut Counters> {
        self.topic(topic).map(|topic| &mut topic.record.counters)
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
    type Row = StoredRow;

    fn known_state(&self, id: &EventId) -> Result<Option<State>> {
        Ok(self.known_id(id)?.map(|known| known.record.standing.state()))
    }

    fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    fn vanish_marks_of(&self, event: &Event) -> Result<Vec<VanishMark>> {
        vanish_marks_of(&self.ctx.tables, &self.txn, event)
    }

    fn tombstones_of(&self, event: &Event) -> Result<Vec<Tombstone>> {
        tombstones_of(&self.ctx.tables, &self.txn, event)
    }

    fn key_state(&self, address: &Address) -> Result<Option<KeyState>> {
        Ok(self.key(address)?.map(|key| key.state()))
    }

    fn tombstone(&self, target: &DeletionTargetKind, requester: &PublicKey) -> Result<Option<Tombstone>> {
        let record = self.get(Table::Tombstones, &key::tombstone(target, requester))?;
        Ok(record.map(TombstoneRecord::unpack).transpose()?.map(|record| record.tombstone))
    }

    fn vanish_mark(&self, author: &PublicKey) -> Result<Option<VanishMark>> {
        let record = self.get(Table::Vanished, author.as_bytes())?;
        Ok(record.map(VanishRecord::unpack).transpose()?.map(|record| record.mark))
    }

    fn effective_request(&self, id: &EventId) -> Result<Option<Arc<Event>>> {
        let row = row_of(&self.ctx.tables, &self.txn, id)?.filter(Row::is_effective);
        Ok(row.map(|row| row.event()).transpose()?.map(Arc::new))
    }

    fn row_id(&self, id: &EventId) -> Result<Option<EventNo>> {
        Ok(self.known_id(id)?.and_then(|known| known.no))
    }

    fn versions_until(&self, address: &Address, until: Timestamp) -> Result<Vec<EventNo>> {
        let mut rows: Vec<_> = self.key(address)?.and_then(|key| key.current).into_iter().collect();
        for no in self.numbers_under(Table::Hidden, &key::hidden_versions(address))? {
            // An address may have many versions: later ones need no parsing.
            if self.created_at(no)? <= until {
                rows.push(no);
            }
        }
        Ok(rows)
    }

    /// Rows of the mark's author, gift wraps for the author, and hidden rows of either.
    fn rows_owned_by(&self, mark: &VanishMark) -> Result<Vec<EventNo>> {
        let mut rows = self.numbers_under(Table::Hidden, &key::hidden_of(&mark.pubkey))?;
        if let Some(author) = self.get(Table::Authors, mark.pubkey.as_bytes())? {
            let author = AuthorNo(Unpack::new("authors", author).u32()?);
            self.indexed_until(mark.until, Table::ByAuthor, &prefix::author(author), |_| true, &mut rows)?;
        }
        let recipient = prefix::tag(Letter::P, &mark.pubkey.to_string());
        self.indexed_until(mark.until, Table::ByTag, &recipient, |cover| cover.kind == Kind::GIFT_WRAP, &mut rows)?;
        Ok(rows)
    }

    fn outline(&self, row: EventNo) -> Result<Option<(Cow<'_, Event>, State)>> {
        Ok(Batch::outline(self, row)?.map(|(event, state)| (Cow::Owned(event), state)))
    }

    fn read_row(&self, row: EventNo) -> Result<Option<StoredRow>> {
        self.row(row)
    }

    fn event_of(row: &StoredRow) -> &Event {
        &row.event
    }

    fn topics_reached(&mut self, row: &StoredRow) -> Result<Vec<TopicId>> {
        Batch::topics_reached(self, row)
    }

    fn stamp(&self) -> Millis {
        self.node.clock.latest
    }

    fn put(&mut self, admitted: &Admitted) -> Result<()> {
        self.store(admitted)
    }

    fn remember(&mut self, admitted: &Admitted, standing: Standing) -> Result<()> {
        self.put_id(admitted, standing, None)
    }

    fn retire(&mut self, row: StoredRow, reason: Reason, cause: Option<EventId>) -> Result<()> {
        self.retire(row, reason, cause)
    }

    fn raise_floor(&mut self, address: &Address, floor: Rank) -> Result<()> {
        Batch::raise_floor(self, address, floor)
    }

    fn put_tombstone(&mut self, tombstone: Tombstone) -> Result<()> {
        let key = key::tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey);
        let record = TombstoneRecord { tombstone, noted_at: self.stamp() };
        Batch::put(self, Table::Tombstones, &key, &record.pack())
    }

    fn put_vanish_mark(&mut self, mark: VanishMark) -> Result<()> {
        let record = VanishRecord { mark, noted_at: self.stamp() };
        Batch::put(self, Table::Vanished, mark.pubkey.as_bytes(), &record.pack())
    }

    fn leave_traces(&mut self, traces: Vec<(TopicId, Trace)>) -> Result<bool> {
        Batch::leave_traces(self, &traces)
    }
}

impl Batch<'_> {
    /// The row numbers at the end of the keys with this prefix.
    fn numbers_under(&self, table: Table, prefix: &[u8]) -> Result<Vec<EventNo>> {
        let mut numbers = Vec::new();
        for entry in self.ctx.tables.of(table).prefix_iter(&self.txn, prefix).map_err(engine)? {
            let (key, _) = entry.map_err(engine)?;
            numbers.push(EventNo::of_key(key)?);
        }
        Ok(numbers)
    }

    fn indexed_until(
        &self,
        until: Timestamp,
        table: Table,
        prefix: &[u8],
        wanted: impl Fn(&Cover) -> bool,
        numbers: &mut Vec<EventNo>,
    ) -> Result<()> {
        let entries = self.ctx.tables.of(table).prefix_iter(&self.txn, prefix).map_err(engine)?;
        for entry in entries {
            let (key, cover) = entry.map_err(engine)?;
            let Some(order) = Order::of_key(key) else { continue };
            if order.created_at() <= until && wanted(&Cover::unpack(cover)?) {
                numbers.push(order.no());
            }
        }
        Ok(())
    }
}
