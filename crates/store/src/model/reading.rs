//! Queries and reports of the model.

use std::{cmp::Reverse, collections::BTreeMap};

use async_trait::async_trait;
use kukuri_domain::{
    Address, Admitted, EventId, Filter, Millis, PublicKey, Sketch, State, Timestamp, TopicId,
    deletion::DeletionTargetKind,
};

use super::{
    ModelStore,
    memory::{Memory, Row},
};
use crate::{
    error::{Result, StoreError},
    ingest::{Ingested, StageChange},
    port::{Events, Inspect},
    query::{Answer, BoundEvent, Completeness, Count, Query, StoredEvent},
    report::{AddressExplanation, CheckReport, Explanation, RowRecord, Stats, TopicStats},
};

#[async_trait]
impl Events for ModelStore {
    async fn ingest(&self, batch: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        Ok(self.write(|memory| memory.ingest(&batch, now)))
    }

    async fn leave_vanish_mark(&self, author: &PublicKey, until: Timestamp, now: Millis) -> Result<Vec<StageChange>> {
        Ok(self.write(|memory| memory.leave_local_mark(author, until, now)))
    }

    async fn known_states(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<State>>> {
        let mut memory = self.memory();
        Ok(ids.iter().map(|id| memory.count_copy(id, now)).collect())
    }

    async fn write_duplicate_counts(&self) -> Result<()> {
        Ok(())
    }

    async fn query(&self, query: &Query) -> Result<Answer> {
        Ok(self.memory().query(query))
    }

    async fn ids(&self, query: &Query, max: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
        // The answer has no JSON whose bytes could be too many.
        let events = self.memory().query(&Query { bytes: usize::MAX, ..query.clone() }).events;
        let mut ids: Vec<_> = events.iter().map(|event| (event.created_at, event.id)).collect();
        ids.sort_unstable();
        Ok((ids.len() <= max).then_some(ids))
    }

    async fn count(&self, query: &Query, mut sketch: Option<Sketch>) -> Result<Count> {
        let authors = self.memory().authors(query);
        if authors.len() > query.budget.rows {
            return Err(StoreError::TooCostly);
        }
        if let Some(sketch) = &mut sketch {
            authors.values().for_each(|author| sketch.add(author));
        }
        Ok(Count { events: authors.len() as u64, sketch })
    }

    async fn get(&self, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
        let memory = self.memory();
        let find = |id: &EventId| {
            let row = memory.row(id)?;
            (row.effective && !row.event.is_expired(now)).then(|| row.bound())
        };
        Ok(ids.iter().map(find).collect())
    }
}

impl Row {
    pub(super) fn bound(&self) -> BoundEvent {
        BoundEvent { event: self.stored(), topics: self.topics.clone(), ingested_at: self.ingested_at }
    }

    fn stored(&self) -> StoredEvent {
        StoredEvent { id: self.event.id, created_at: self.event.created_at, json: self.json.clone() }
    }
}

impl Memory {
    fn topic_stats(&self, topic: &TopicId) -> Option<TopicStats> {
        let last_event_at = self.topics.get(topic)?;
        let effective = self.rows.iter().filter(|row| row.effective && row.topics.contains(topic));
        Some(TopicStats {
            topic: topic.clone(),
            effective: effective.count() as u64,
            by_class: self.usage(Some(topic)),
            stage: self.stage(Some(topic)),
            last_event_at: (*last_event_at > Millis(0)).then_some(*last_event_at),
        })
    }

    fn query(&self, query: &Query) -> Answer {
        let mut found = BTreeMap::new();
        for filter in &query.filters {
            let mut matching = self.matching(filter, query);
            matching.sort_by_key(|row| (Reverse(row.event.created_at), row.event.id));
            let mut bytes = 0;
            for (place, row) in matching.into_iter().take(filter.limit().unwrap_or(usize::MAX)).enumerate() {
                let stored = row.stored();
                bytes += stored.json.len();
                if place > 0 && bytes > query.share() {
                    break;
                }
                found.insert((Reverse(row.event.created_at), row.event.id), stored);
            }
        }
        let rest =
            if self.authors(query).len() > found.len() { Completeness::Truncated } else { Completeness::Complete };
        Answer { seq: self.head, events: found.into_values().collect(), rest }
    }

    /// All matching events with their authors, ignoring limits.
    fn authors(&self, query: &Query) -> BTreeMap<EventId, PublicKey> {
        let rows = query.filters.iter().flat_map(|filter| self.matching(filter, query));
        rows.map(|row| (row.event.id, row.event.pubkey)).collect()
    }

    fn matching(&self, filter: &Filter, query: &Query) -> Vec<&Row> {
        let visible = |row: &&Row| {
            row.effective
                && !row.event.is_expired(query.now)
                && filter.matches(&row.event, &row.topics)
                && query.shows(&row.event, &row.topics, filter)
        };
        self.rows.iter().filter(visible).collect()
    }
}

#[async_trait]
impl Inspect for ModelStore {
    async fn stats(&self) -> Result<Stats> {
        let memory = self.memory();
        let effective = |row: &&Row| row.effective;
        Ok(Stats {
            effective: memory.rows.iter().filter(effective).count() as u64,
            by_class: memory.usage(None),
            stage: memory.stage(None),
            head: memory.head,
            outbox_first: memory.outbox_dropped.next(),
            ids: memory.ids.len() as u64,
            failed: 0,
            disk_bytes: None,
            clock_held: memory.clock.is_held(),
        })
    }

    async fn topic_stats(&self, topics: &[TopicId]) -> Result<Vec<Option<TopicStats>>> {
        let memory = self.memory();
        Ok(topics.iter().map(|topic| memory.topic_stats(topic)).collect())
    }

    async fn list_topics(&self, after: Option<&TopicId>, limit: usize) -> Result<Vec<TopicStats>> {
        let memory = self.memory();
        let rest = memory.topics.keys().filter(|topic| after.is_none_or(|after| *topic > after));
        Ok(rest.filter_map(|topic| memory.topic_stats(topic)).take(limit).collect())
    }

    async fn explain(&self, id: &EventId) -> Result<Explanation> {
        let memory = self.memory();
        let record = memory.ids.get(id).copied();
        let Some(row) = memory.row(id) else {
            let target = DeletionTargetKind::EventId(*id);
            let tombstones = memory.tombstones.values().map(|noted| noted.what.clone());
            let tombstones = tombstones.filter(|tombstone| tombstone.target.target == target).collect();
            return Ok(Explanation { record, tombstones, ..Explanation::default() });
        };
        Ok(Explanation {
            record,
            row: Some(RowRecord { json: row.json.clone(), topics: row.topics.clone(), ingested_at: row.ingested_at }),
            tombstones: memory.tombstones_of(&row.event),
            vanish_marks: memory.vanish_marks_of(&row.event),
            key: row.event.address().and_then(|address| memory.key(&address)),
        })
    }

    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation> {
        let memory = self.memory();
        let target = DeletionTargetKind::Address(address.clone());
        Ok(AddressExplanation {
            key: memory.key(address),
            tombstone: memory.tombstones.get(&(target, address.pubkey())).map(|noted| noted.what.clone()),
            vanish_mark: memory.vanish_marks.get(&address.pubkey()).map(|noted| noted.what),
        })
    }

    async fn check(&self) -> Result<CheckReport> {
        // The model duplicates no data, so nothing can be inconsistent.
        Ok(CheckReport { rows: self.memory().rows.len() as u64, problems: Vec::new() })
    }
}
