//! Guard against a wrong clock: a jump must not purge rows, which is irreversible (P-5).

use std::time::Duration;

use crate::time::Millis;

/// A step of the clock larger than this is a jump.
pub const JUMP: Duration = Duration::from_secs(3_600);

/// A store's clock guard: its time never runs backwards, and a jump holds sweeps and purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The latest time ever seen: the lower bound of `ingested_at`.
    pub latest: Millis,
    /// The time last seen, zero before the first: jumps are measured from it.
    pub last: Millis,
    /// Set by a jump: sweeps and purges wait until an operator confirms the time.
    pub held: bool,
}

impl Clock {
    /// Advances the guard to `now`. The result's `latest` is the timestamp for writes.
    ///
    /// A step of more than [`JUMP`], ahead or back, sets `held`.
    #[must_use]
    pub fn tick(self, now: Millis) -> Self {
        let first = self.last == Millis::default();
        let jumped = now > self.last.after(JUMP) || self.last > now.after(JUMP);
        Self { latest: self.latest.max(now), last: now, held: self.held || (jumped && !first) }
    }

    /// Ends the hold: an operator has confirmed that `now` is the right time.
    #[must_use]
    pub fn confirmed(self, now: Millis) -> Self {
        Self { latest: self.latest.max(now), last: now, held: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_runs_backwards_and_is_held_by_a_jump_until_confirmed() {
        // P-5
        let at = Millis::from_secs;
        let mut clock = Clock::default();
        for (now, held, why) in [
            (1_000_000, false, "the first time is no jump"),
            (999_000, false, "nor is a small step back"),
            (1_002_600, false, "one hour is not over one hour"),
            (1_006_201, true, "a second more is"),
            (1_006_202, true, "and it stays held"),
        ] {
            let before = clock;
            clock = clock.tick(at(now));
            assert_eq!(clock.held, held, "{why}");
            assert!(clock.latest >= before.latest, "{why}");
        }
        assert!(clock.tick(at(900_000)).held, "a clock far behind is a jump too");
    }

    #[test]
    fn confirmation_ends_the_hold_after_a_corrected_jump() {
        let at = Millis::from_secs;
        let leapt = Clock::default().tick(at(1_000_000)).tick(at(9_000_000));
        let corrected = leapt.tick(at(1_000_060));
        assert!(corrected.held);
        let confirmed = corrected.confirmed(at(1_000_070));
        assert!(!confirmed.held);
        let later = confirmed.tick(at(1_000_080));
        assert!(!later.held, "the right time is no jump any more");
        assert_eq!(later.latest, at(9_000_000), "stamps do not run backwards all the same");
    }
}
