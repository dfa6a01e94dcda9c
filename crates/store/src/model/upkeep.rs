//! Expiry and purges of the model.

use async_trait::async_trait;
use kukuri_domain::{
    EventId, Millis, Reason, TopicId, capacity::Stage, clock::Clock, remains::Subject, retention::Retention,
};

use super::{
    ModelStore,
    memory::{Memory, Row},
};
use crate::{
    error::Result,
    ingest::StageChange,
    maintenance::{DryRun, PurgeCursor, PurgeStep, Purged, Swept},
    port::Upkeep,
    report::Standing,
};

#[async_trait]
impl Upkeep for ModelStore {
    async fn expire_some(&self, now: Millis) -> Result<(Swept, bool)> {
        Ok((self.write(|memory| memory.expire(now)), false))
    }

    async fn purge_some(&self, retention: &Retention, now: Millis, cursor: PurgeCursor) -> Result<PurgeStep> {
        Ok(PurgeStep { purged: self.write(|memory| memory.purge(retention, now, &cursor))?, next: None })
    }

    async fn dry_run_purge(&self, retention: &Retention, now: Millis, _max_rows: usize) -> Result<DryRun> {
        Ok(DryRun { purged: self.memory().clone().purge(retention, now, &PurgeCursor::default())?, is_complete: true })
    }

    async fn observe_clock(&self, now: Millis) -> Result<Clock> {
        Ok(self.write(|memory| {
            memory.tick(now);
            memory.clock
        }))
    }

    async fn confirm_clock(&self, now: Millis) -> Result<()> {
        self.write(|memory| memory.clock = memory.clock.confirmed(now));
        Ok(())
    }
}

impl Memory {
    fn expire(&mut self, now: Millis) -> Swept {
        self.tick(now);
        if self.clock.is_held() {
            return Swept { held: true, ..Swept::default() };
        }
        let due: Vec<EventId> =
            self.rows.iter().filter(|row| row.effective && row.event.is_expired(now)).map(|row| row.event.id).collect();
        for id in &due {
            self.retire(id, Reason::Expiration, None);
        }
        self.update_stages();
        let waiting = self.rows.iter().filter(|row| row.effective);
        Swept { expired: due.len() as u64, next: waiting.filter_map(|row| row.event.expiration()).min(), held: false }
    }

    fn purge(&mut self, retention: &Retention, now: Millis, cursor: &PurgeCursor) -> Result<Purged> {
        let policies: Vec<_> = self.subscriptions.values().map(|subscription| subscription.policy.retention).collect();
        retention.validate(&policies)?;
        self.tick(now);
        let mut purged = Purged { held: self.clock.is_held(), ..Purged::default() };
        let is_by_age = !purged.held && !cursor.is_for_capacity_only;
        if is_by_age {
            purged.by_retention = self.purge_by_age(retention, now);
        }
        purged.stages.extend(self.update_stages());
        let topics: Vec<_> = self.topics.keys().cloned().collect();
        for place in topics.iter().map(Some).chain([None]) {
            purged.by_capacity += self.make_room(place);
            purged.stages.extend(self.update_stages());
        }
        if is_by_age {
            purged.ids = self.forget_ids(retention, now);
            purged.outbox = self.drop_outbox(retention, now);
            purged.memories = self.drop_memories(retention, now);
        }
        purged.stages = StageChange::summed_up(purged.stages);
        Ok(purged)
    }

    fn purge_by_age(&mut self, retention: &Retention, now: Millis) -> u64 {
        let is_over = |row: &&Row| {
            let policies: Vec<_> = row.topics.iter().map(|topic| self.policy(topic).retention).collect();
            retention.keep(row.class(), &policies).is_over(row.ingested_at, now)
        };
        let over: Vec<EventId> = self.rows.iter().filter(is_over).map(|row| row.event.id).collect();
        over.iter().for_each(|id| self.purge_row(id, Reason::Retention));
        over.len() as u64
    }

    /// Removes the oldest purgeable rows while a topic (or the node) is in stage `Purging` and above `purge_to`.
    fn make_room(&mut self, place: Option<&TopicId>) -> u64 {
        let mut count = 0;
        while self.stage(place) == Stage::Purging {
            let usage = self.counted(place);
            if !self.capacity(place).is_exceeded(usage, self.rules.thresholds.purge_to) {
                break;
            }
            let belongs = |row: &&Row| place.is_none_or(|topic| row.topics.contains(topic));
            let gives_way = self.rows.iter().filter(belongs).filter(|row| row.class().gives_way());
            let Some(oldest) = gives_way.min_by_key(|row| row.place).map(|row| row.event.id) else { break };
            self.purge_row(&oldest, Reason::Capacity);
            count += 1;
        }
        count
    }

    /// Purges a row. An effective row is announced in the outbox; a hidden one is not (P-8).
    fn purge_row(&mut self, id: &EventId, reason: Reason) {
        if self.row(id).is_some_and(|row| row.effective) {
            self.retire(id, reason, None);
        } else {
            self.rows.retain(|row| row.event.id != *id);
        }
    }

    fn forget_ids(&mut self, retention: &Retention, now: Millis) -> u64 {
        let before = self.ids.len();
        let rows = &self.rows;
        self.ids.retain(|id, record| {
            record.standing == Standing::Effective
                || rows.iter().any(|row| row.event.id == *id)
                || !retention.dedupe.is_over(record.last_seen_at, now)
        });
        let ids = &self.ids;
        self.remains.retain(|(subject, _), _| match subject {
            Subject::Event(id) => ids.contains_key(id),
            Subject::Key(_) | Subject::Author(_) => true,
        });
        (before - self.ids.len()) as u64
    }

    fn drop_outbox(&mut self, retention: &Retention, now: Millis) -> u64 {
        let before = self.outbox.len();
        self.outbox.retain(|row| !retention.outbox.is_over(row.written_at, now));
        let dropped = (before - self.outbox.len()) as u64;
        self.outbox_dropped.0 += dropped;
        dropped
    }

    /// Purges tombstones, vanish marks, remains, and floors without an effective version by the retention of requests
    /// (P-5). The remains of one event go with its id.
    fn drop_memories(&mut self, retention: &Retention, now: Millis) -> u64 {
        let stays = |at| !retention.requests.is_over(at, now);
        let count = |memory: &Self| {
            memory.tombstones.len() + memory.vanish_marks.len() + memory.floors.len() + memory.remains.len()
        };
        let before = count(self);
        self.tombstones.retain(|_, noted| stays(noted.at));
        self.vanish_marks.retain(|_, noted| stays(noted.at));
        self.remains.retain(|(subject, _), noted| matches!(subject, Subject::Event(_)) || stays(noted.at));
        let effective: Vec<_> =
            self.rows.iter().filter(|row| row.effective).filter_map(|row| row.event.address()).collect();
        self.floors.retain(|address, noted| stays(noted.at) || effective.contains(address));
        (before - count(self)) as u64
    }
}
