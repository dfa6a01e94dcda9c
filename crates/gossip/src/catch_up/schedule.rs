//! When a topic is reconciled next, and with which neighbour.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kukuri_catchup::{Report, SessionEnd};
use kukuri_pacing::{exponential_delay, jittered};

use crate::peer::PeerId;

/// A new neighbour is asked after this time: messages on their way arrive by gossip meanwhile.
const NEW_NEIGHBOUR_DELAY: Duration = Duration::from_secs(1);
/// After a session that brought something: another neighbour may lack it, or have more.
const AFTER_NEWS_DELAY: Duration = Duration::from_secs(3);
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(2);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1_024);
/// The interval is at least this many times as long as the last session took.
const MIN_INTERVAL_PER_SESSION: u32 = 20;

/// The catch-up schedule of a topic.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// `None`: not before a neighbour comes up.
    due: Option<Instant>,
    /// Neighbours that came up and were not asked yet.
    new: BTreeSet<PeerId>,
    last: Option<PeerId>,
    failures: u32,
    is_running: bool,
}

impl Schedule {
    pub(crate) fn neighbour_up(&mut self, peer: PeerId) {
        self.new.insert(peer);
        self.run_soon();
    }

    pub(crate) fn neighbour_down(&mut self, peer: PeerId) {
        self.new.remove(&peer);
    }

    /// Postpones the session that was due for a new neighbour, because the neighbour has started one: it serves both sides.
    pub(crate) fn peer_initiated(&mut self, peer: PeerId) {
        if self.is_running || self.due.is_none() {
            return;
        }
        // Once per neighbour: a peer that starts many sessions does not keep this node from asking others.
        if self.new.remove(&peer) && self.new.is_empty() {
            let later = jittered(Instant::now(), AFTER_NEWS_DELAY);
            self.due = self.due.map(|due| due.max(later));
        }
    }

    pub(crate) fn run_soon(&mut self) {
        let soon = jittered(Instant::now(), NEW_NEIGHBOUR_DELAY);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.is_running && self.due.is_some_and(|due| due <= now)
    }

    /// Starts a session. Returns the neighbour to ask: a new one first, else another than the last time.
    pub(crate) fn start(&mut self, neighbours: &BTreeSet<PeerId>) -> Option<PeerId> {
        self.due = None;
        let new = self.new.intersection(neighbours).next().copied();
        let after = |last: PeerId| neighbours.range(last..).find(|peer| **peer != last).copied();
        let peer = new.or_else(|| self.last.and_then(after)).or_else(|| neighbours.first().copied())?;
        self.new.remove(&peer);
        self.last = Some(peer);
        self.is_running = true;
        Some(peer)
    }

    /// Schedules the next session. A topic whose session took long is reconciled less often.
    pub(crate) fn session_ended(&mut self, report: &Report, took: Duration, interval: Duration) {
        let interval = interval.max(took.saturating_mul(MIN_INTERVAL_PER_SESSION));
        match report.end {
            SessionEnd::Finished if report.events_in + report.hints_in > 0 => {
                self.schedule_after(AFTER_NEWS_DELAY.min(interval));
            }
            SessionEnd::Finished | SessionEnd::NotShared | SessionEnd::NoHistory => self.schedule_after(interval),
            // The next session continues.
            SessionEnd::LimitReached => self.schedule_after(NEW_NEIGHBOUR_DELAY),
            _ => return self.session_failed(interval),
        }
        self.failures = 0;
    }

    /// Schedules a retry after a session that could not start, or broke.
    pub(crate) fn session_failed(&mut self, interval: Duration) {
        self.failures += 1;
        self.schedule_after(exponential_delay(FIRST_RETRY_DELAY, MAX_RETRY_DELAY.min(interval), self.failures));
    }

    fn schedule_after(&mut self, delay: Duration) {
        self.is_running = false;
        let delay = if self.new.is_empty() { delay } else { NEW_NEIGHBOUR_DELAY };
        let next = jittered(Instant::now(), delay);
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use iroh::SecretKey;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);

    fn id(number: u8) -> PeerId {
        SecretKey::from_bytes(&[number; 32]).public()
    }

    #[test]
    fn new_neighbours_are_asked_soon_and_then_all_in_turn_g7() {
        let (begun, neighbours) = (Instant::now(), (1..=3).map(id).collect::<BTreeSet<PeerId>>());
        let mut schedule = Schedule::default();
        assert!(!schedule.is_due(Instant::now() + INTERVAL * 10), "there is no neighbour");
        neighbours.iter().for_each(|peer| schedule.neighbour_up(*peer));
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            assert!(schedule.is_due(Instant::now() + NEW_NEIGHBOUR_DELAY * 2));
            asked.insert(schedule.start(&neighbours).unwrap());
            assert!(!schedule.is_due(Instant::now() + INTERVAL), "one session at a time");
            schedule.session_ended(&Report::default(), NEW_NEIGHBOUR_DELAY, INTERVAL);
        }
        assert_eq!(asked, neighbours, "each new neighbour is asked");
        assert!(!schedule.is_due(begun + INTERVAL / 3) && schedule.is_due(Instant::now() + INTERVAL * 2));
        let before = schedule.last;
        assert_ne!(schedule.start(&neighbours), before, "another one than before");
    }

    #[test]
    fn a_session_of_the_neighbour_postpones_ours_once() {
        let (begun, mut schedule) = (Instant::now(), Schedule::default());
        schedule.peer_initiated(id(1));
        assert!(!schedule.is_due(Instant::now() + INTERVAL * 10), "the peer was not a neighbour yet");
        schedule.neighbour_up(id(1));
        schedule.peer_initiated(id(1));
        assert!(!schedule.is_due(begun + AFTER_NEWS_DELAY / 3));
        assert!(schedule.is_due(Instant::now() + AFTER_NEWS_DELAY * 2));
        let due = schedule.due;
        schedule.peer_initiated(id(1));
        assert_eq!(schedule.due, due, "no peer postpones it twice");
        schedule.neighbour_up(id(2));
        assert!(schedule.is_due(Instant::now() + NEW_NEIGHBOUR_DELAY * 2), "another neighbour has come up");
        schedule.start(&BTreeSet::from([id(2)]));
        schedule.peer_initiated(id(2));
        assert!(schedule.is_running);
    }

    #[test]
    fn the_next_session_is_soon_after_news_and_later_after_each_failure() {
        let (begun, neighbours) = (Instant::now(), BTreeSet::from([id(1)]));
        let mut schedule = Schedule::default();
        schedule.neighbour_up(id(1));
        schedule.start(&neighbours);
        schedule.session_ended(&Report { events_in: 1, ..Report::default() }, NEW_NEIGHBOUR_DELAY, INTERVAL);
        assert!(schedule.is_due(Instant::now() + AFTER_NEWS_DELAY * 2));
        for _ in 0..4 {
            schedule.start(&neighbours);
            let broken = Report { end: SessionEnd::PeerTimeout, ..Report::default() };
            schedule.session_ended(&broken, NEW_NEIGHBOUR_DELAY, INTERVAL);
        }
        assert!(!schedule.is_due(begun + NEW_NEIGHBOUR_DELAY * 7));
        assert!(schedule.is_due(Instant::now() + INTERVAL * 2));
        schedule.neighbour_up(id(1));
        assert!(schedule.is_due(Instant::now() + NEW_NEIGHBOUR_DELAY * 2), "the neighbour has come up again");
        schedule.start(&neighbours);
        schedule.session_ended(&Report::default(), INTERVAL, INTERVAL);
        assert!(!schedule.is_due(Instant::now() + INTERVAL * 9), "a large topic is reconciled less often");
    }
}
