//! WebSocket usage of members: counted in memory, because it is decided on without waiting for a database, and written in
//! batches.
//!
//! Several nodes share a limit by the counters in the database: each write returns the day's count on all nodes. Between two writes a
//! node does not know what the others have counted, so that together they may pass a limit by what they take in meanwhile
//! ([`WRITE_INTERVAL`]). What is not written yet is lost by a crash.

use std::{collections::HashMap, time::Duration};

use kukuri_domain::{PublicKey, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Refused, Result,
    database::Database,
    metric::Metric,
    usage::{self, DailyUse},
};

/// The longest time between two writes while something is counted.
pub const WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two writes.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// A counter's person, metric and day.
type CounterKey = (PublicKey, Metric, u64);

#[derive(Clone, Copy, Default)]
struct Counter {
    /// The day's count on all nodes, as far as it is known here.
    total: u64,
    /// The part of it that is not written yet.
    unwritten: u64,
    /// Whether the counter in the database has been read.
    is_known: bool,
}

/// Counters of members, in memory: at most one for each account and metric, and those of one day.
#[derive(Default)]
pub struct MemberUsage {
    counters: Mutex<HashMap<CounterKey, Counter>>,
    /// A counter was begun: what the database has of the day is not known.
    begun: Notify,
    /// One write at a time.
    writing: tokio::sync::Mutex<()>,
}

impl MemberUsage {
    /// Counts a unit, if the limit allows it.
    pub fn count(&self, person: &PublicKey, metric: Metric, limit: u64, now: Timestamp) -> Result<(), Refused> {
        let refused = |current| Refused::QuotaExceeded { metric, current, limit, reset_at: Some(usage::reset_at(now)) };
        if limit == 0 {
            return Err(refused(0));
        }
        let mut counters = self.counters.lock();
        let counter = counters.entry((*person, metric, usage::day_of(now))).or_default();
        if counter.total >= limit {
            return Err(refused(counter.total));
        }
        if !counter.is_known && counter.unwritten == 0 {
            self.begun.notify_one();
        }
        counter.total += 1;
        counter.unwritten += 1;
        Ok(())
    }

    /// Waits until a write is due: soon after a counter was begun, else after [`WRITE_INTERVAL`].
    pub async fn write_is_due(&self) {
        tokio::time::sleep(MIN_WRITE_INTERVAL).await;
        // An elapsed interval is one of the two ends.
        let _ = tokio::time::timeout(WRITE_INTERVAL, self.begun.notified()).await;
    }

    /// Adds what is not written yet to the counters in the database, and reads what other nodes have counted. What fails stays for
    /// the next time.
    pub async fn write(&self, database: &Database, now: Timestamp) -> Result<()> {
        let _writing = self.writing.lock().await;
        let unwritten: Vec<DailyUse> = {
            let counters = self.counters.lock();
            let unwritten = counters.iter().filter(|(_, counter)| counter.unwritten > 0);
            let daily = |(&(person, metric, day), counter): (&CounterKey, &Counter)| DailyUse {
                person,
                metric,
                day,
                units: counter.unwritten,
            };
            unwritten.map(daily).collect()
        };
        let mut rest = unwritten.as_slice();
        while !rest.is_empty() {
            let (batch, next) = rest.split_at(usage::batch_len(rest.len()));
            let totals = usage::add_all(database, batch).await?;
            let mut counters = self.counters.lock();
            for (added, total) in batch.iter().zip(totals) {
                let Some(counter) = counters.get_mut(&(added.person, added.metric, added.day)) else { continue };
                counter.unwritten -= added.units;
                counter.total = total + counter.unwritten;
                counter.is_known = true;
            }
            rest = next;
        }
        let today = usage::day_of(now);
        self.counters.lock().retain(|(_, _, day), counter| *day == today || counter.unwritten > 0);
        Ok(())
    }
}
