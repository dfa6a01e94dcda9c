//! Loads pieces of another store unchanged: nothing is decided, announced or stamped again.

use std::sync::Arc;

use kukuri_domain::{Event, EventId, Millis, TopicId, capacity::Stage, deletion::Tombstone, vanish::VanishMark};
use kukuri_store::{IdRecord, RowRecord, Standing};

use super::{Cell, Filed, Key, KnownId, Loaded, Noted, Row, RowPlace, Work};
use crate::{codes::Class, error::Result};

impl Work {
    pub(crate) fn load_topic(&mut self, id: &TopicId, stage: Stage, last_event_at: Millis) -> Result<()> {
        let no = self.topic_no(id);
        let topic = self.topic(no)?;
        topic.counters.stage = stage;
        topic.last_event_at = last_event_at;
        Ok(())
    }

    pub(crate) fn load_tombstone(&mut self, tombstone: Tombstone, at: Millis) {
        let cell = self.tombstone_cell(&tombstone);
        cell.now = Some(Noted { what: tombstone, at });
    }

    pub(crate) fn load_mark(&mut self, mark: VanishMark, at: Millis) {
        self.marks.insert(mark.pubkey, Cell { was: None, now: Some(Noted { what: mark, at }) });
    }

    /// Loads a row, effective or hidden. Rows come in the other store's order of arrival.
    pub(crate) fn load_row(&mut self, event: Event, record: IdRecord, row: RowRecord) -> Result<()> {
        self.node.last_event += 1;
        let place = RowPlace { class: Class::of(event.kind), ingested_at: row.ingested_at, no: self.node.last_event };
        let id = event.id;
        if let (Standing::Effective, Some(address)) = (record.standing, event.address()) {
            // The key's floor was loaded before; without one, this version is the floor.
            let raised_at = self.key(&address).map_or(row.ingested_at, |key| key.raised_at);
            let cell = self.keys.entry(address.digest()).or_insert_with(|| Cell::stored(None));
            cell.now = Some(Key { address, floor: event.rank(), raised_at, current: Some(id) });
        }
        let row = Row {
            place,
            outline: Event { content: String::new(), ..event.clone() },
            bytes: row.json.len() as u64,
            topics: row.topics.iter().map(|topic| self.topic_no(topic)).collect(),
            state: record.standing.state(),
            filed: Filed::Loaded(Arc::new(Loaded { event, row })),
            is_gone: false,
        };
        self.count(&row, 1)?;
        self.rows.insert(id, row);
        self.load_id(id, record, Some(place));
        Ok(())
    }

    pub(crate) fn load_id(&mut self, id: EventId, record: IdRecord, place: Option<RowPlace>) {
        self.ids.insert(id, Cell { was: None, now: Some(KnownId { record, place }) });
        self.node.ids += 1;
    }
}
