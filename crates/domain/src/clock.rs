//! The clock hold: while the system clock may be wrong, nothing is removed because of its age (P-5).
//!
//! A purge or an expiry sweep can't be undone. So a store records the time that it trusts. If the system clock is far
//! ahead of it, purges and sweeps wait (the clock is *held*) and timestamps advance by elapsed time only. A clock that
//! is behind removes nothing, so it holds nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// Configuration of the clock hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRules {
    /// A system clock further ahead of the trusted time than this is held.
    pub max_jump: Duration,
    /// A held clock that runs steadily for this long is trusted.
    pub confirm_after: Duration,
}

impl Default for ClockRules {
    fn default() -> Self {
        Self { max_jump: Duration::from_hours(24), confirm_after: Duration::from_hours(72) }
    }
}

/// A store's record of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The trusted time, which never runs backwards: the timestamp of writes (`ingested_at`).
    pub latest: Millis,
    /// The system clock as last seen, zero before the first time.
    pub last: Millis,
    /// Set while the clock is held: the trusted time from which on it has run without another jump.
    pub held_since: Option<Millis>,
}

impl Clock {
    /// Whether purges by age and expiry sweeps have to wait.
    pub const fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// Reads the system clock. The result's `latest` is the timestamp for writes.
    ///
    /// Reading the same time twice changes nothing more.
    #[must_use]
    pub fn tick(self, now: Millis, rules: &ClockRules) -> Self {
        if self == Self::default() {
            return Self { latest: now, last: now, held_since: None };
        }
        let is_ahead = now > self.latest.after(rules.max_jump);
        match self.held_since {
            None if is_ahead => Self { last: now, held_since: Some(self.latest), ..self },
            None => self.confirmed(now),
            Some(since) => {
                let has_returned = !is_ahead && self.latest <= now.after(rules.max_jump);
                if has_returned { self.confirmed(now) } else { self.tick_held(now, since, rules) }
            }
        }
    }

    fn tick_held(self, now: Millis, since: Millis, rules: &ClockRules) -> Self {
        let has_jumped = now > self.last.after(rules.max_jump) || self.last > now.after(rules.max_jump);
        if has_jumped {
            return Self { last: now, held_since: Some(self.latest), ..self };
        }
        // `last` does not follow a small step back: with the clocks of several processes, which differ a little, each
        // step ahead would count again.
        let elapsed = Duration::from_millis(now.0.saturating_sub(self.last.0));
        let advanced = Self { latest: self.latest.after(elapsed), last: self.last.max(now), ..self };
        if advanced.latest >= since.after(rules.confirm_after) { advanced.confirmed(now) } else { advanced }
    }

    /// Trusts `now` and ends the hold.
    #[must_use]
    pub fn confirmed(self, now: Millis) -> Self {
        Self { latest: self.latest.max(now), last: now, held_since: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;
    const START: u64 = 1_800_000_000;

    fn at(seconds: i64) -> Millis {
        Millis::from_secs(START.saturating_add_signed(seconds))
    }

    #[test]
    fn clock_far_ahead_is_held_until_it_returns_or_has_run_steadily() {
        // P-5. System clock and trusted time in seconds after the start.
        type Row = (i64, bool, i64, &'static str);
        let stories: [&[Row]; 6] = [
            &[
                (0, false, 0, "the first time is no jump"),
                (-1_000, false, 0, "timestamps do not run backwards"),
                (DAY, false, DAY, "a day ahead is within the limit"),
                (2 * DAY + 1, true, DAY, "a second more is a jump"),
                (2 * DAY, false, 2 * DAY, "and back within the limit"),
                (9 * DAY, true, 2 * DAY, "a jump"),
                (9 * DAY, true, 2 * DAY, "reading the same time again changes nothing"),
                (9 * DAY + 60, true, 2 * DAY + 60, "a held clock advances by elapsed time"),
                (9 * DAY + 50, true, 2 * DAY + 60, "a small step back changes nothing"),
                (9 * DAY + 70, true, 2 * DAY + 70, "and is not counted again"),
                (2 * DAY + 80, false, 2 * DAY + 80, "the clock has returned"),
            ],
            &[
                (0, false, 0, ""),
                (60 * DAY, true, 0, "a jump"),
                (60 * DAY + 20 * HOUR, true, 20 * HOUR, "a node that was off for less than a day goes on"),
                (61 * DAY + 16 * HOUR, true, 40 * HOUR, ""),
                (62 * DAY + 12 * HOUR, true, 60 * HOUR, "steady for 60 hours"),
                (63 * DAY - 1, true, 3 * DAY - 1, "a second is missing"),
                (63 * DAY, false, 63 * DAY, "after three days of steady running it is trusted"),
            ],
            &[
                (0, false, 0, ""),
                (60 * DAY, true, 0, "a jump"),
                (61 * DAY, true, DAY, "steady for a day"),
                (90 * DAY, true, DAY, "another jump"),
                (91 * DAY, true, 2 * DAY, ""),
                (92 * DAY, true, 3 * DAY, "the days before the second jump do not count"),
                (93 * DAY, false, 93 * DAY, "three days after it"),
            ],
            &[
                (0, false, 0, ""),
                (-60 * DAY, false, 0, "a clock that is behind removes nothing and is not held"),
                (10, false, 10, "and has not jumped when it is right again"),
                (-(START as i64), false, 10, "1970"),
                (20, false, 20, ""),
            ],
            &[
                (0, false, 0, ""),
                (60 * DAY, true, 0, "a jump"),
                (-(START as i64), true, 0, "1970 is no return"),
                (10 - START as i64, true, 10, "elapsed time goes on"),
                (30, false, 30, "now it is right"),
            ],
            &[
                (0, false, 0, "two processes on one database, one of them 60 days ahead"),
                (60 * DAY + 1, true, 0, "it is held"),
                (2, false, 2, "the other is not"),
                (60 * DAY + 3, true, 2, "and timestamps follow the right clock"),
                (4, false, 4, ""),
            ],
        ];
        for (story, rows) in stories.iter().enumerate() {
            let mut clock = Clock::default();
            for (now, is_held, latest, why) in *rows {
                clock = clock.tick(at(*now), &ClockRules::default());
                assert_eq!((clock.is_held(), clock.latest), (*is_held, at(*latest)), "story {story}: {why}");
            }
        }
    }

    #[test]
    fn confirmation_ends_the_hold_at_once() {
        // P-5
        let rules = ClockRules::default();
        let held = Clock::default().tick(at(0), &rules).tick(at(60 * DAY), &rules);
        assert!(held.is_held());
        let confirmed = held.confirmed(at(60 * DAY + 1));
        assert_eq!((confirmed.is_held(), confirmed.latest), (false, at(60 * DAY + 1)));
        assert!(!confirmed.tick(at(60 * DAY + 2), &rules).is_held());
        let set_back = confirmed.tick(at(5), &rules);
        assert_eq!((set_back.is_held(), set_back.latest), (false, confirmed.latest), "timestamps stay");
    }
}
