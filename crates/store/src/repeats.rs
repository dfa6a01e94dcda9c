//! Counts copies of known events in memory, for stores that write the counts in batches (P-1). A crash may lose counts,
//! never ids.

use std::{collections::HashMap, time::Duration};

use kukuri_domain::{EventId, Millis};
use parking_lot::Mutex;

use crate::report::IdRecord;

/// Counts are written after `FLUSH_INTERVAL` or at `FLUSH_COUNT` ids, whichever comes first.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);
const FLUSH_COUNT: usize = 50_000;
/// Bound on memory while counts can't be written: copies of further ids are not counted.
const MAX_COUNTED_IDS: usize = 2 * FLUSH_COUNT;

/// Copies of an event that arrived since its record was last written.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// When the last copy arrived.
    pub last_seen_at: Millis,
    /// Number of copies.
    pub count: u64,
}

impl Repeat {
    /// Adds these copies to the record.
    pub fn add_to(self, record: &mut IdRecord) {
        record.last_seen_at = record.last_seen_at.max(self.last_seen_at);
        record.seen_count += self.count;
    }
}

/// Counts that are not written yet. They have their own lock, so that a copy is answered while a commit is in progress.
#[derive(Default)]
pub struct Repeats(Mutex<Unwritten>);

#[derive(Default)]
struct Unwritten {
    counts: HashMap<EventId, Repeat>,
    since: Option<Millis>,
}

impl Repeats {
    /// Counts copies of these events.
    pub fn note(&self, ids: impl IntoIterator<Item = EventId>, stamp: Millis) {
        let mut unwritten = self.0.lock();
        for id in ids {
            unwritten.since.get_or_insert(stamp);
            if unwritten.counts.len() >= MAX_COUNTED_IDS && !unwritten.counts.contains_key(&id) {
                continue;
            }
            let repeat = unwritten.counts.entry(id).or_insert(Repeat { last_seen_at: stamp, count: 0 });
            repeat.last_seen_at = repeat.last_seen_at.max(stamp);
            repeat.count += 1;
        }
    }

    /// The unwritten count of one event.
    pub fn get(&self, id: &EventId) -> Option<Repeat> {
        self.0.lock().counts.get(id).copied()
    }

    /// Whether the counts are due to be written.
    pub fn are_due(&self, now: Millis) -> bool {
        let unwritten = self.0.lock();
        unwritten.counts.len() > FLUSH_COUNT || unwritten.since.is_some_and(|since| now >= since.after(FLUSH_INTERVAL))
    }

    /// Takes all counts out, to be written.
    pub fn take(&self) -> HashMap<EventId, Repeat> {
        let mut unwritten = self.0.lock();
        unwritten.since = None;
        std::mem::take(&mut unwritten.counts)
    }

    /// Adds back counts that could not be written.
    pub fn put_back(&self, counts: HashMap<EventId, Repeat>, stamp: Millis) {
        let mut unwritten = self.0.lock();
        unwritten.since.get_or_insert(stamp);
        for (id, lost) in counts {
            let repeat = unwritten.counts.entry(id).or_insert(Repeat { count: 0, ..lost });
            repeat.last_seen_at = repeat.last_seen_at.max(lost.last_seen_at);
            repeat.count += lost.count;
        }
    }
}
