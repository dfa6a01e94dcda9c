//! When a topic is to be caught up on, and with whom.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kukuri_catchup::{End, Report};

use crate::{peer::PeerId, rejoining::jittered};

/// Whoever comes is asked after a moment: what is on its way arrives by itself.
const SOON: Duration = Duration::from_secs(1);
/// What one peer had, another may lack, or have more of.
const SPREAD: Duration = Duration::from_secs(3);

/// A topic is being compared for no more than this part of the time, if nothing is found.
const SHARE: u32 = 20;

/// What is planned for a topic.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// `None`: nothing, until somebody comes.
    due: Option<Instant>,
    /// Who has come, and was not asked yet.
    new: BTreeSet<PeerId>,
    last: Option<PeerId>,
    failures: u32,
    is_going_on: bool,
}

impl Plan {
    /// A neighbour has come.
    pub(crate) fn came(&mut self, peer: PeerId) {
        self.new.insert(peer);
        self.soon();
    }

    /// A neighbour has left.
    pub(crate) fn went(&mut self, peer: PeerId) {
        self.new.remove(&peer);
    }

    /// A neighbour has begun by itself: one session serves both, so ours can wait.
    pub(crate) fn asked_by(&mut self, peer: PeerId) {
        if self.is_going_on || self.due.is_none() {
            return;
        }
        // Only what was planned for it: whoever asks again and again does not keep us from asking others.
        if self.new.remove(&peer) && self.new.is_empty() {
            let later = jittered(Instant::now(), SPREAD);
            self.due = self.due.map(|due| due.max(later));
        }
    }

    /// Something was lost, as far as one can tell.
    pub(crate) fn soon(&mut self) {
        let soon = jittered(Instant::now(), SOON);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.is_going_on && self.due.is_some_and(|due| due <= now)
    }

    /// Whom of the neighbours to ask now: those who are new first, then not the same again.
    pub(crate) fn begin(&mut self, neighbours: &BTreeSet<PeerId>) -> Option<PeerId> {
        self.due = None;
        let new = self.new.intersection(neighbours).next().copied();
        let after = |last: PeerId| neighbours.range(last..).find(|peer| **peer != last).copied();
        let peer = new.or_else(|| self.last.and_then(after)).or_else(|| neighbours.first().copied())?;
        self.new.remove(&peer);
        self.last = Some(peer);
        self.is_going_on = true;
        Some(peer)
    }

    /// A session has ended, after this time. A topic that takes long to compare is compared less often.
    pub(crate) fn ended(&mut self, report: &Report, took: Duration, every: Duration) {
        let every = every.max(took.saturating_mul(SHARE));
        match report.end {
            End::Finished if report.events_in + report.hints_in > 0 => self.next(SPREAD.min(every)),
            End::Finished | End::NotShared | End::NoHistory => self.next(every),
            // The next one goes on.
            End::Over => self.next(SOON),
            _ => return self.failed(every),
        }
        self.failures = 0;
    }

    /// A session did not come about, or broke off.
    pub(crate) fn failed(&mut self, every: Duration) {
        self.failures += 1;
        self.next(SOON.saturating_mul(1 << self.failures.min(10)).min(every));
    }

    fn next(&mut self, after: Duration) {
        self.is_going_on = false;
        let wait = if self.new.is_empty() { after } else { SOON };
        let next = jittered(Instant::now(), wait);
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use iroh::SecretKey;

    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    fn id(number: u8) -> PeerId {
        SecretKey::from_bytes(&[number; 32]).public()
    }

    #[test]
    fn whoever_comes_is_asked_soon_and_then_all_in_turn() {
        // G-7
        let neighbours: BTreeSet<PeerId> = (1..=3).map(id).collect();
        let mut plan = Plan::default();
        assert!(!plan.is_due(Instant::now() + EVERY * 10), "there is nobody");
        neighbours.iter().for_each(|peer| plan.came(*peer));
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            assert!(plan.is_due(Instant::now() + SOON * 2));
            asked.insert(plan.begin(&neighbours).unwrap());
            assert!(!plan.is_due(Instant::now() + EVERY), "one at a time");
            plan.ended(&Report::default(), SOON, EVERY);
        }
        assert_eq!(asked, neighbours, "each who came is asked");
        assert!(!plan.is_due(Instant::now() + EVERY / 3) && plan.is_due(Instant::now() + EVERY * 2));
        let before = plan.last;
        assert_ne!(plan.begin(&neighbours), before, "not the same again");
    }

    #[test]
    fn whoever_is_asked_need_not_ask() {
        let mut plan = Plan::default();
        plan.asked_by(id(1));
        assert!(!plan.is_due(Instant::now() + EVERY * 10), "it was not a neighbour yet");
        plan.came(id(1));
        plan.asked_by(id(1));
        assert!(!plan.is_due(Instant::now() + SPREAD / 3) && plan.is_due(Instant::now() + SPREAD * 2));
        let due = plan.due;
        plan.asked_by(id(1));
        assert_eq!(plan.due, due, "nobody puts us off twice");
        plan.came(id(2));
        assert!(plan.is_due(Instant::now() + SOON * 2), "another one has come");
        plan.begin(&BTreeSet::from([id(2)]));
        plan.asked_by(id(2));
        assert!(plan.is_going_on);
    }

    #[test]
    fn what_was_found_is_spread_and_what_fails_is_tried_less_and_less() {
        let neighbours = BTreeSet::from([id(1)]);
        let mut plan = Plan::default();
        plan.came(id(1));
        plan.begin(&neighbours);
        plan.ended(&Report { events_in: 1, ..Report::default() }, SOON, EVERY);
        assert!(plan.is_due(Instant::now() + SPREAD * 2));
        for _ in 0..4 {
            plan.begin(&neighbours);
            plan.ended(&Report { end: End::Silent, ..Report::default() }, SOON, EVERY);
        }
        assert!(!plan.is_due(Instant::now() + SOON * 7) && plan.is_due(Instant::now() + EVERY * 2));
        plan.came(id(1));
        assert!(plan.is_due(Instant::now() + SOON * 2), "it has come again");
        plan.begin(&neighbours);
        plan.ended(&Report::default(), EVERY, EVERY);
        assert!(!plan.is_due(Instant::now() + EVERY * 9), "a large topic is not compared all the time");
    }
}
