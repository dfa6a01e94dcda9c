//! Copies of known events: counted in memory, written in batches (P-1). A crash may lose counts, never ids. For stores
//! that write them later than they answer.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kukuri_domain::{EventId, Millis};

use crate::report::IdRecord;

/// Counts are written at least this often, and when so many wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const MANY_WAITING: usize = 50_000;
/// If they can't be written, more than this are not counted.
const MOST_WAITING: usize = 2 * MANY_WAITING;

/// Copies of an event that came since its record was last written.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// When the last one came.
    pub last_seen_at: Millis,
    /// How many there are.
    pub count: u64,
}

impl Repeat {
    /// Adds these copies to the record.
    pub fn add_to(self, record: &mut IdRecord) {
        record.last_seen_at = record.last_seen_at.max(self.last_seen_at);
        record.seen_count += self.count;
    }
}

/// What was counted and not written yet. Has a lock of its own: a copy is answered while a commit is under way.
#[derive(Default)]
pub struct Repeats(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    counts: HashMap<EventId, Repeat>,
    since: Option<Millis>,
}

impl Repeats {
    /// Counts copies of these events.
    pub fn note(&self, ids: impl IntoIterator<Item = EventId>, stamp: Millis) {
        let mut waiting = self.waiting();
        for id in ids {
            waiting.since.get_or_insert(stamp);
            if waiting.counts.len() >= MOST_WAITING && !waiting.counts.contains_key(&id) {
                continue;
            }
            let repeat = waiting.counts.entry(id).or_insert(Repeat { last_seen_at: stamp, count: 0 });
            repeat.last_seen_at = repeat.last_seen_at.max(stamp);
            repeat.count += 1;
        }
    }

    /// What was counted of one.
    pub fn get(&self, id: &EventId) -> Option<Repeat> {
        self.waiting().counts.get(id).copied()
    }

    /// Whether it is time to write them.
    pub fn are_due(&self, now: Millis) -> bool {
        let waiting = self.waiting();
        waiting.counts.len() > MANY_WAITING || waiting.since.is_some_and(|since| now >= since.after(LONGEST_WAIT))
    }

    /// Takes everything out, to be written.
    pub fn take(&self) -> HashMap<EventId, Repeat> {
        let mut waiting = self.waiting();
        waiting.since = None;
        std::mem::take(&mut waiting.counts)
    }

    /// Writing failed: they stay counted.
    pub fn put_back(&self, counts: HashMap<EventId, Repeat>, stamp: Millis) {
        let mut waiting = self.waiting();
        waiting.since.get_or_insert(stamp);
        for (id, lost) in counts {
            let repeat = waiting.counts.entry(id).or_insert(Repeat { count: 0, ..lost });
            repeat.last_seen_at = repeat.last_seen_at.max(lost.last_seen_at);
            repeat.count += lost.count;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
