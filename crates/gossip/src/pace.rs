//! How fast something may go: so much a second, and after a rest some time's worth at once.

use std::time::{Duration, Instant};

use crate::settings::Rate;

/// What may come at once after a rest, as time at the steady pace.
pub(crate) const IN_BURST: Duration = Duration::from_secs(2);
/// What may go at once: less. The library's queues are short, and large messages that fill those of several nodes at once
/// stop all of them.
pub(crate) const OUT_BURST: Duration = Duration::from_millis(250);

/// One thing that is counted.
#[derive(Clone, Copy, Debug)]
struct Pace {
    per_second: f64,
    burst: Duration,
    /// When all that went would have gone at a steady pace.
    due: Instant,
}

impl Pace {
    fn new(per_second: f64, burst: Duration, now: Instant) -> Self {
        Self { per_second: per_second.max(1.0), burst, due: now }
    }

    /// When so much may go.
    fn when(&self, now: Instant) -> Instant {
        self.due.checked_sub(self.burst).map_or(now, |at| at.max(now))
    }

    fn take(&mut self, amount: f64, now: Instant) {
        self.due = self.due.max(now) + Duration::from_secs_f64(amount / self.per_second);
    }
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    messages: Pace,
    bytes: Pace,
}

impl Allowance {
    pub(crate) fn new(rate: Rate, burst: Duration, now: Instant) -> Self {
        Self {
            messages: Pace::new(f64::from(rate.messages), burst, now),
            bytes: Pace::new(rate.bytes as f64, burst, now),
        }
    }

    /// When a message may go, if it is taken now.
    pub(crate) fn when(&self, now: Instant) -> Instant {
        self.messages.when(now).max(self.bytes.when(now))
    }

    /// Counts a message.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) {
        self.messages.take(1.0, now);
        self.bytes.take(bytes as f64, now);
    }

    /// Counts a message if it may go at once.
    pub(crate) fn admit(&mut self, bytes: usize, now: Instant) -> bool {
        let may_go = self.when(now) <= now;
        if may_go {
            self.take(bytes, now);
        }
        may_go
    }

    /// Whether it is as if nothing had ever gone.
    pub(crate) fn is_rested(&self, now: Instant) -> bool {
        self.messages.due.max(self.bytes.due) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { messages: 10, bytes: 1_000 };

    fn admitted(allowance: &mut Allowance, bytes: usize, now: Instant) -> usize {
        (0..1_000).filter(|_| allowance.admit(bytes, now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_so_much_a_second() {
        // G-6
        let start = Instant::now();
        let mut allowance = Allowance::new(RATE, IN_BURST, start);
        assert!(
            (20..=21).contains(&admitted(&mut allowance, 1, start)),
            "two seconds' worth, and the one that fills it"
        );
        assert!(!allowance.admit(1, start));
        let later = start + Duration::from_secs(1);
        assert!((9..=11).contains(&admitted(&mut allowance, 1, later)));
        assert!(!allowance.is_rested(later));
        let much_later = start + Duration::from_secs(60);
        assert!(allowance.is_rested(much_later));
        assert!((20..=21).contains(&admitted(&mut allowance, 1, much_later)), "rest adds up to one burst only");
    }

    #[test]
    fn bytes_count_as_messages_do() {
        let start = Instant::now();
        let mut allowance = Allowance::new(RATE, IN_BURST, start);
        assert!((4..=5).contains(&admitted(&mut allowance, 500, start)), "2,000 bytes");
    }

    #[test]
    fn who_waits_for_a_turn_gets_turns_at_the_steady_pace() {
        let start = Instant::now();
        let mut allowance = Allowance::new(RATE, IN_BURST, start);
        let turns: Vec<Instant> = (0..61)
            .map(|_| {
                let turn = allowance.when(start);
                allowance.take(1, start);
                turn
            })
            .collect();
        assert!(turns.is_sorted());
        assert_eq!(turns[10], start);
        let last = turns[60] - start;
        assert!(last >= Duration::from_millis(3_900) && last <= Duration::from_millis(4_100), "{last:?}");
    }
}
