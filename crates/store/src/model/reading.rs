//! Queries and reports of the model.

use std::{cmp::Reverse, collections::BTreeMap};

use kukuri_domain::{Address, EventId, Filter, Millis, PublicKey, Sketch};

use super::memory::{Memory, Row};
use crate::{
    event::{BoundEvent, StoredEvent},
    outbox::{SnapshotCursor, SnapshotPage},
    query::{Answer, Count, Query, Rest},
    report::{AddressExplanation, Explanation, RowRecord, Stats, TopicStats},
};

impl Row {
    fn bound(&self) -> BoundEvent {
        BoundEvent { event: self.stored(), topics: self.topics.clone(), ingested_at: self.ingested_at }
    }

    fn stored(&self) -> StoredEvent {
        StoredEvent { id: self.event.id, created_at: self.event.created_at, json: self.json.clone() }
    }
}

impl Memory {
    pub(super) fn query(&self, query: &Query) -> Answer {
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
        let rest = if self.count(query, None).events > found.len() as u64 { Rest::More } else { Rest::None };
        Answer { seq: self.head, events: found.into_values().collect(), rest }
    }

    pub(super) fn count(&self, query: &Query, mut sketch: Option<Sketch>) -> Count {
        let rows = query.filters.iter().flat_map(|filter| self.matching(filter, query));
        let authors: BTreeMap<EventId, PublicKey> = rows.map(|row| (row.event.id, row.event.pubkey)).collect();
        if let Some(sketch) = &mut sketch {
            authors.values().for_each(|author| sketch.add(author));
        }
        Count { events: authors.len() as u64, sketch }
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

    pub(super) fn get(&self, ids: &[EventId], now: Millis) -> Vec<Option<BoundEvent>> {
        let find = |id: &EventId| {
            let row = self.rows.iter().find(|row| row.event.id == *id)?;
            (row.effective && !row.event.is_expired(now)).then(|| row.bound())
        };
        ids.iter().map(find).collect()
    }

    pub(super) fn snapshot(&self, cursor: SnapshotCursor, limit: usize) -> SnapshotPage {
        let seq = cursor.seq.unwrap_or(self.head);
        let rest: Vec<&Row> = self.rows.iter().filter(|row| row.effective && row.place > cursor.after).collect();
        let page = &rest[..limit.min(rest.len())];
        let next = (page.len() < rest.len())
            .then(|| SnapshotCursor { seq: Some(seq), after: page.last().map_or(cursor.after, |row| row.place) });
        SnapshotPage { seq, events: page.iter().map(|row| row.bound()).collect(), next }
    }

    pub(super) fn stats(&self) -> Stats {
        let effective = |topic| {
            let rows = self.rows.iter().filter(|row| row.effective);
            rows.filter(|row| row.topics.contains(topic)).count() as u64
        };
        let topics = self.topics.iter().map(|(topic, last_event_at)| TopicStats {
            topic: topic.clone(),
            effective: effective(topic),
            by_class: self.usage(Some(topic)),
            stage: self.stage(Some(topic)),
            last_event_at: Some(*last_event_at),
        });
        Stats {
            effective: self.rows.iter().filter(|row| row.effective).count() as u64,
            by_class: self.usage(None),
            stage: self.stage(None),
            topics: topics.collect(),
            head: self.head,
            outbox_first: self.outbox_dropped.next(),
            ids: self.ids.len() as u64,
            failed: 0,
            disk_bytes: None,
            clock_held: self.clock.held,
        }
    }

    pub(super) fn explain(&self, id: &EventId) -> Explanation {
        let Some(row) = self.rows.iter().find(|row| row.event.id == *id) else {
            let tombstones = self.tombstones.values().map(|noted| &noted.what);
            let names = kukuri_domain::deletion::DeletionTargetKind::EventId(*id);
            return Explanation {
                record: self.ids.get(id).copied(),
                tombstones: tombstones.filter(|tombstone| tombstone.target.target == names).cloned().collect(),
                ..Explanation::default()
            };
        };
        let marks = row.event.owners().filter_map(|owner| self.vanish_marks.get(&owner));
        Explanation {
            record: self.ids.get(id).copied(),
            row: Some(RowRecord { json: row.json.clone(), topics: row.topics.clone(), ingested_at: row.ingested_at }),
            tombstones: self.tombstones_of(&row.event),
            vanish_marks: marks.map(|noted| noted.what).collect(),
            key: row.event.address().and_then(|address| self.key(&address)),
        }
    }

    pub(super) fn explain_address(&self, address: &Address) -> AddressExplanation {
        let target = kukuri_domain::deletion::DeletionTargetKind::Address(address.clone());
        AddressExplanation {
            key: self.key(address),
            tombstone: self.tombstones.get(&(target, address.pubkey())).map(|noted| noted.what.clone()),
            vanish_mark: self.vanish_marks.get(&address.pubkey()).map(|noted| noted.what),
        }
    }
}
