//! A node's clock may be set wrong; what would be thrown away for it can't be brought back (P-5).

use std::time::Duration;

use crate::time::Millis;

/// A step of the clock larger than this is a jump.
pub const JUMP: Duration = Duration::from_secs(3_600);

/// The clock as a store has seen it: never backwards, and suspicious of leaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The latest time seen, zero before the first: what `ingested_at` never falls behind.
    pub latest: Millis,
    /// Set by a jump ahead: purges wait until someone confirms that this is the time.
    pub held: bool,
}

impl Clock {
    /// Takes note of `now`. The result's `latest` is the time to stamp with.
    ///
    /// A step ahead of more than [`JUMP`] sets `held`; so does a clock that long behind what was seen before.
    #[must_use]
    pub fn tick(self, now: Millis) -> Self {
        let first = self.latest == Millis::default();
        let jumped = now > self.latest.after(JUMP) || self.latest > now.after(JUMP);
        Self { latest: self.latest.max(now), held: self.held || (jumped && !first) }
    }

    /// An operator has looked: `now` is the time.
    #[must_use]
    pub fn confirmed(self, now: Millis) -> Self {
        Self { latest: self.latest.max(now), held: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_runs_backwards_and_is_held_by_a_jump_until_confirmed() {
        let started = Clock::default().tick(Millis::from_secs(1_000_000));
        assert_eq!(started, Clock { latest: Millis::from_secs(1_000_000), held: false });

        let back = started.tick(Millis::from_secs(999_000));
        assert_eq!(back, Clock { latest: Millis::from_secs(1_000_000), held: false }, "a small step back is no jump");

        let ahead = back.tick(Millis::from_secs(1_003_600));
        assert!(!ahead.held, "one hour is not over one hour");
        let leapt = ahead.tick(Millis::from_secs(1_007_201));
        assert!(leapt.held);
        assert!(leapt.tick(Millis::from_secs(1_007_202)).held, "it stays held");
        assert!(!leapt.confirmed(Millis::from_secs(1_007_202)).held);

        assert!(ahead.tick(Millis::from_secs(900_000)).held, "a clock far behind its stamps is a jump too");
    }
}
