//! How far the outbox consumers are behind, and what the node still takes in when they are far behind (O-9).

use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::{Duration, Instant},
};

use kukuri_domain::capacity::Stage;
use kukuri_outbox::{State, Status};
use kukuri_store::{OutboxRow, Seq};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    clock,
    config::BacklogLimits,
    metrics::{EngineMetrics, Gauge, Histogram},
};

/// An import stops waiting for a backlog that has not shrunk for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The states in the order of `kukuri_consumer_state`.
const STATES: [&str; 9] =
    ["following", "starting", "standby", "rebuilding", "paused", "retrying", "stuck", "too_far_behind", "stopped"];

/// How far behind the outbox consumers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BacklogLevel {
    /// Near the head of the outbox.
    #[default]
    Near,
    /// No history is taken in.
    LiveOnly,
    /// Topics of the lowest priority refuse.
    Shedding,
    /// Each client may publish only a tenth of its rate.
    Cutting,
}

impl BacklogLevel {
    const ALL: [Self; 4] = [Self::Near, Self::LiveOnly, Self::Shedding, Self::Cutting];

    /// The word for it in `/healthz`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::LiveOnly => "live_only",
            Self::Shedding => "shedding",
            Self::Cutting => "cutting",
        }
    }

    /// The level for a backlog of `rows`. A level is left 5 % below its limit, so that it is not entered and left in turn.
    fn of(limits: &BacklogLimits, rows: u64, before: Self) -> Self {
        let level = |rows: u64| {
            let limits = [limits.live_only, limits.shedding, limits.cutting];
            Self::from_number(limits.iter().filter(|limit| rows >= **limit).count() as u8)
        };
        level(rows).max(before.min(level(rows.saturating_add(rows / 19))))
    }

    fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The capacity stage it amounts to (P-6).
    pub(crate) fn stage(self) -> Stage {
        match self {
            Self::Near => Stage::Open,
            Self::LiveOnly => Stage::LiveOnly,
            Self::Shedding | Self::Cutting => Stage::Shedding,
        }
    }
}

/// The watched consumers, and the level that was measured last.
#[derive(Default)]
pub(crate) struct Backlog {
    watched: Mutex<Vec<WatchedConsumer>>,
    level: AtomicU8,
}

struct WatchedConsumer {
    name: &'static str,
    status: watch::Receiver<Status>,
    backlog: Gauge,
    state: Gauge,
}

/// A consumer's state and backlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerHealth {
    /// Its name.
    pub name: &'static str,
    /// The word for its state.
    pub state: &'static str,
    /// Outbox rows it has not processed yet.
    pub backlog: u64,
}

impl Backlog {
    /// Watches a consumer. The caller passes processed rows to the returned function, which measures their age.
    pub(crate) fn watch(
        &self,
        name: &'static str,
        status: watch::Receiver<Status>,
        metrics: &EngineMetrics,
    ) -> impl Fn(&[OutboxRow]) + Send + Sync + use<> {
        let (backlog, state) = (metrics.consumer_backlog.of(name), metrics.consumer_state.of(name));
        self.watched.lock().push(WatchedConsumer { name, status, backlog, state });
        let ages: Histogram = metrics.consumer_lag_seconds.of(name);
        move |rows| {
            let now = clock::now().0;
            rows.iter().for_each(|row| ages.record(now.saturating_sub(row.written_at.0) as f64 / 1_000.0));
        }
    }

    pub(crate) fn level(&self) -> BacklogLevel {
        BacklogLevel::from_number(self.level.load(Ordering::Relaxed))
    }

    /// Measures the longest backlog in rows. The level holds until the next measurement.
    pub(crate) fn measure(&self, limits: &BacklogLimits, head: Seq) -> u64 {
        let rows = self.consumers(head).iter().map(|consumer| consumer.backlog).max().unwrap_or_default();
        let before = self.level();
        let level = BacklogLevel::of(limits, rows, before);
        self.level.store(level as u8, Ordering::Relaxed);
        let (from, to) = (before.as_str(), level.as_str());
        if level > before {
            tracing::warn!(
                rows,
                from,
                to,
                "outbox consumers are behind: fewer events are accepted until they catch up"
            );
        } else if level < before {
            tracing::info!(rows, from, to, "outbox consumers are catching up");
        }
        rows
    }

    /// Waits while consumers are behind and their backlog shrinks. For imports, which have the time.
    pub(crate) async fn wait_until_near(&self, measure: impl Fn() -> u64) {
        let (mut fewest, mut since) = (u64::MAX, Instant::now());
        while self.level() >= BacklogLevel::LiveOnly && since.elapsed() < STALL_TIMEOUT {
            tokio::time::sleep(POLL_INTERVAL).await;
            let rows = measure();
            if rows < fewest {
                (fewest, since) = (rows, Instant::now());
            }
        }
    }

    /// State and backlog of every consumer; sets their gauges as well.
    pub(crate) fn consumers(&self, head: Seq) -> Vec<ConsumerHealth> {
        let read = |one: &WatchedConsumer| {
            let status = one.status.borrow();
            let rows = backlog_of(&status, head);
            one.backlog.set(rows as f64);
            let number = STATES.iter().position(|name| *name == status.state.name()).unwrap_or_default();
            one.state.set(number as f64);
            ConsumerHealth { name: one.name, state: status.state.name(), backlog: rows }
        };
        self.watched.lock().iter().map(read).collect()
    }
}

/// Rows still to be processed. A consumer that waits for an operator does not look at the head itself. One that has not
/// begun, or is filled from a snapshot for the first time, processes no rows yet.
fn backlog_of(status: &Status, head: Seq) -> u64 {
    let has_begun = status.offset > Seq(0) || !matches!(status.state, State::Standby | State::Rebuilding { .. });
    if has_begun && status.state != State::Starting { head.0.saturating_sub(status.offset.0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_level_begins_at_its_limit_and_is_left_five_percent_below() {
        // O-9
        let limits = BacklogLimits { live_only: 100, shedding: 200, cutting: 1_000 };
        let mut level = BacklogLevel::Near;
        for (rows, expected) in [
            (99, BacklogLevel::Near),
            (100, BacklogLevel::LiveOnly),
            (96, BacklogLevel::LiveOnly),
            (94, BacklogLevel::Near),
            (250, BacklogLevel::Shedding),
            (5_000, BacklogLevel::Cutting),
            (960, BacklogLevel::Cutting),
            (940, BacklogLevel::Shedding),
            (0, BacklogLevel::Near),
        ] {
            level = BacklogLevel::of(&limits, rows, level);
            assert_eq!(level, expected, "{rows}");
        }
    }

    #[test]
    fn a_stuck_consumer_falls_behind_and_one_being_filled_does_not() {
        // O-9
        let at = |state, offset| Status { state, offset: Seq(offset), ..Status::default() };
        let stuck = || State::Stuck { at: Seq(6), why: String::new() };
        for (status, rows) in [
            (at(State::Following, 90), 10),
            (at(stuck(), 5), 95),
            (at(State::Paused, 0), 100),
            (at(State::Rebuilding { done: 1, of: 9 }, 40), 60),
            (at(State::Rebuilding { done: 1, of: 9 }, 0), 0),
            (at(State::Starting, 0), 0),
            (at(State::Standby, 0), 0),
            (at(State::Standby, 70), 30),
        ] {
            assert_eq!(backlog_of(&status, Seq(100)), rows, "{status:?}");
        }
    }
}
