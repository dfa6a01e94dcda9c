//! Those who follow the outbox: how far behind they are, and what follows for what is taken in (O-9).

use std::sync::{Mutex, PoisonError};

use kukuri_domain::capacity::Stage;
use kukuri_outbox::{State, Status};
use kukuri_store::{OutboxRow, Seq};
use tokio::sync::watch;

use crate::{clock, config::Backlog, metrics::ConsumerFigures};

/// How far behind the node is with what follows from events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lag {
    /// Not far.
    #[default]
    Near,
    /// No history is taken in.
    LiveOnly,
    /// Topics of the lowest priority refuse.
    Shedding,
    /// Clients may publish only slowly.
    Cutting,
}

impl Lag {
    const ALL: [Self; 4] = [Self::Near, Self::LiveOnly, Self::Shedding, Self::Cutting];

    /// What follows from so many rows. A level is left a little below its mark, so that it is not left and entered in turn.
    pub(crate) fn of(marks: &Backlog, rows: u64, before: Self) -> Self {
        let level = |rows: u64| {
            let passed = [marks.live_only, marks.shedding, marks.cutting].iter().filter(|mark| rows >= **mark).count();
            Self::from_number(passed as u8)
        };
        level(rows).max(before.min(level(rows.saturating_add(rows / 19))))
    }

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The stage of P-6 that it amounts to.
    pub(crate) fn stage(self) -> Stage {
        match self {
            Self::Near => Stage::Open,
            Self::LiveOnly => Stage::LiveOnly,
            Self::Shedding | Self::Cutting => Stage::Shedding,
        }
    }
}

/// The consumers that are watched.
#[derive(Default)]
pub(crate) struct Consumers {
    watched: Mutex<Vec<Watched>>,
}

struct Watched {
    name: &'static str,
    status: watch::Receiver<Status>,
    figures: ConsumerFigures,
}

/// What one is at.
pub(crate) struct Standing {
    pub(crate) name: &'static str,
    pub(crate) state: &'static str,
    pub(crate) backlog: u64,
}

impl Consumers {
    /// Watches one from now on. What is returned measures how old changes are when their effect is there.
    pub(crate) fn watch(
        &self,
        name: &'static str,
        status: watch::Receiver<Status>,
        figures: ConsumerFigures,
    ) -> impl Fn(&[OutboxRow]) + Send + Sync + use<> {
        let ages = figures.lag_seconds.clone();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.push(Watched { name, status, figures });
        move |rows| {
            let now = clock::now().0;
            rows.iter().for_each(|row| ages.record(now.saturating_sub(row.written_at.0) as f64 / 1_000.0));
        }
    }

    /// What all are at, and the same for collectors of figures.
    pub(crate) fn look(&self, head: Seq) -> Vec<Standing> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let look = |one: &Watched| {
            let status = one.status.borrow();
            let (backlog, (state, number)) = (backlog(&status, head), in_words(&status.state));
            one.figures.backlog.set(backlog as f64);
            one.figures.state.set(f64::from(number));
            Standing { name: one.name, state, backlog }
        };
        watched.iter().map(look).collect()
    }

    /// The longest backlog.
    pub(crate) fn backlog(&self, head: Seq) -> u64 {
        self.look(head).iter().map(|standing| standing.backlog).max().unwrap_or_default()
    }
}

/// Rows that are still to be done. One that waits for an operator does not look at the head itself. One that has not begun,
/// or is filled from a snapshot for the first time, does not do rows.
fn backlog(status: &Status, head: Seq) -> u64 {
    let has_begun = status.offset > Seq(0) || !matches!(status.state, State::Standby | State::Rebuilding { .. });
    if has_begun && status.state != State::Starting { head.0.saturating_sub(status.offset.0) } else { 0 }
}

fn in_words(state: &State) -> (&'static str, u8) {
    match state {
        State::Following => ("following", 0),
        State::Starting => ("starting", 1),
        State::Standby => ("standby", 2),
        State::Rebuilding { .. } => ("rebuilding", 3),
        State::Paused => ("paused", 4),
        State::Retrying { .. } => ("retrying", 5),
        State::Stuck { .. } => ("stuck", 6),
        State::TooFarBehind { .. } => ("too far behind", 7),
        State::Stopped => ("stopped", 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_begins_at_its_mark_and_is_left_a_little_below() {
        // O-9
        let marks = Backlog { live_only: 100, shedding: 200, cutting: 1_000 };
        let mut lag = Lag::Near;
        for (rows, expected) in [
            (99, Lag::Near),
            (100, Lag::LiveOnly),
            (96, Lag::LiveOnly),
            (94, Lag::Near),
            (250, Lag::Shedding),
            (5_000, Lag::Cutting),
            (960, Lag::Cutting),
            (940, Lag::Shedding),
            (0, Lag::Near),
        ] {
            lag = Lag::of(&marks, rows, lag);
            assert_eq!(lag, expected, "{rows}");
        }
    }

    #[test]
    fn whoever_waits_for_an_operator_falls_behind_and_whoever_is_filled_for_the_first_time_does_not() {
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
            assert_eq!(backlog(&status, Seq(100)), rows, "{status:?}");
        }
    }
}
