//! A rate limiter and a backoff. Both are plain values: the caller passes the time and does the waiting.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

/// A rate limiter (GCRA): a steady rate, and after a pause a burst.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    per_second: f64,
    burst: Duration,
    /// When everything spent so far would be paid for at the steady rate.
    paid_at: Instant,
}

impl RateLimiter {
    /// `burst` is the time at the steady rate that may be spent at once after a pause. A rate below 1 counts as 1.
    pub fn new(per_second: f64, burst: Duration, now: Instant) -> Self {
        Self { per_second: per_second.max(1.0), burst, paid_at: now }
    }

    /// The earliest time at which more may be spent: `now` or later.
    pub fn ready_at(&self, now: Instant) -> Instant {
        self.paid_at.checked_sub(self.burst).map_or(now, |at| at.max(now))
    }

    /// Spends an amount, whether or not the limiter is ready.
    pub fn spend(&mut self, amount: f64, now: Instant) {
        self.paid_at = self.paid_at.max(now) + Duration::from_secs_f64(amount / self.per_second);
    }

    /// Whether the limiter is in the same state as a new one.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.paid_at <= now
    }
}

/// Exponential backoff with jitter: each attempt doubles the delay until the next, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    delay: Duration,
    next: Instant,
}

impl Backoff {
    /// The first attempt is due after `first`, with jitter.
    pub fn new(first: Duration, max: Duration, now: Instant) -> Self {
        Self { first, max, delay: first, next: jittered(now, first) }
    }

    /// The first attempt is due now.
    pub fn due_now(first: Duration, max: Duration, now: Instant) -> Self {
        Self { first, max, delay: first, next: now }
    }

    /// Begins again with the first delay.
    pub fn reset(&mut self, now: Instant) {
        *self = Self::new(self.first, self.max, now);
    }

    /// Begins again, with an attempt that is due now.
    pub fn reset_to_now(&mut self, now: Instant) {
        *self = Self::due_now(self.first, self.max, now);
    }

    /// Whether an attempt is due. If so, schedules the next one.
    pub fn take_if_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.delay = (self.delay * 2).min(self.max);
            self.next = jittered(now, self.delay);
        }
        is_due
    }
}

/// The delay after this many failures in a row: `first` after one, doubled with each further one, at most `max`.
pub fn exponential_delay(first: Duration, max: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(max)
}

/// Between half the delay and one and a half from now, so that tasks and nodes do not act in step.
pub fn jittered(now: Instant, delay: Duration) -> Instant {
    now + delay / 2 + delay * u32::try_from(random_below(1_000)).unwrap_or_default() / 1_000
}

/// A number below `bound`. For jitter, not for secrets.
pub fn random_below(bound: u64) -> u64 {
    RandomState::new().hash_one(0) % bound.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(60);

    #[test]
    fn delays_grow_to_the_maximum_until_a_reset() {
        let start = Instant::now();
        let mut backoff = Backoff::new(FIRST, MAX, start);
        assert!(!backoff.take_if_due(start) && Backoff::due_now(FIRST, MAX, start).take_if_due(start));
        let mut now = start;
        let mut waited = Vec::new();
        for _ in 0..12 {
            let before = now;
            while !backoff.take_if_due(now) {
                now += Duration::from_millis(100);
            }
            waited.push(now - before);
        }
        assert!(waited[0] <= FIRST * 2);
        assert!(waited[11] >= MAX / 2 && waited[11] <= MAX * 2, "{waited:?}");
        backoff.reset(now);
        assert!(!backoff.take_if_due(now) && backoff.take_if_due(now + FIRST * 2));
        backoff.reset_to_now(now);
        assert!(backoff.take_if_due(now));
    }

    #[test]
    fn delay_doubles_with_each_failure_up_to_the_maximum() {
        let delays = [0, 1, 2, 3, 7, 99].map(|failures| exponential_delay(FIRST, MAX, failures).as_secs());
        assert_eq!(delays, [1, 1, 2, 4, 60, 60]);
    }

    #[test]
    fn limiter_allows_a_burst_and_then_the_steady_rate() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut limiter = RateLimiter::new(10.0, second * 2, start);
        let ready: Vec<Duration> = (0..6)
            .map(|_| {
                let ready_at = limiter.ready_at(start);
                limiter.spend(10.0, start);
                ready_at - start
            })
            .collect();
        assert_eq!(ready, [0, 0, 0, 1, 2, 3].map(Duration::from_secs));
        assert!(!limiter.is_idle(start + second * 5) && limiter.is_idle(start + second * 7));
        limiter.spend(20.0, start + second * 60);
        assert_eq!(limiter.ready_at(start + second * 60), start + second * 60, "a pause adds up to one burst");
        limiter.spend(1.0, start + second * 60);
        assert!(limiter.ready_at(start + second * 60) > start + second * 60, "and to no more");
    }

    #[test]
    fn limiter_without_a_burst_delays_the_next_spend() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(10.0, Duration::ZERO, start);
        let ready: Vec<Duration> = (0..5)
            .map(|_| {
                let ready_at = limiter.ready_at(start);
                limiter.spend(10.0, start);
                ready_at - start
            })
            .collect();
        assert_eq!(ready, [0, 1, 2, 3, 4].map(Duration::from_secs), "the first is free");
        let later = start + Duration::from_secs(60);
        assert_eq!(limiter.ready_at(later), later, "a pause is neither saved up nor paid for");
        limiter.spend(10.0, later);
        assert_eq!(limiter.ready_at(later), later + Duration::from_secs(1));
    }
}
