//! Rate limiters and a backoff. All are plain values: the caller passes the time and does the waiting.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    time::{Duration, Instant},
};

/// Messages and bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Messages per second.
    pub messages: u32,
    /// Bytes per second.
    pub bytes: u64,
}

/// A rate limiter (GCRA): a steady rate, and after a pause a burst.
#[derive(Clone, Copy, Debug)]
struct RateLimiter {
    per_second: f64,
    burst: Duration,
    /// When everything spent so far would be paid for at the steady rate.
    paid_at: Instant,
}

impl RateLimiter {
    /// A rate below 1 counts as 1.
    fn new(per_second: f64, burst: Duration, now: Instant) -> Self {
        Self { per_second: per_second.max(1.0), burst, paid_at: now }
    }

    fn ready_at(&self, now: Instant) -> Instant {
        self.paid_at.checked_sub(self.burst).map_or(now, |at| at.max(now))
    }

    fn spend(&mut self, amount: f64, now: Instant) {
        self.paid_at = self.paid_at.max(now) + Duration::from_secs_f64(amount / self.per_second);
    }
}

/// Limits the number of messages, and their bytes.
#[derive(Clone, Copy, Debug)]
pub struct MessageRateLimiter {
    messages: RateLimiter,
    bytes: RateLimiter,
}

impl MessageRateLimiter {
    /// `burst` is the time at the steady rate that may be spent at once after a pause.
    pub fn new(rate: Rate, burst: Duration, now: Instant) -> Self {
        Self {
            messages: RateLimiter::new(f64::from(rate.messages), burst, now),
            bytes: RateLimiter::new(rate.bytes as f64, burst, now),
        }
    }

    /// The earliest time at which more may pass: `now` or later.
    pub fn ready_at(&self, now: Instant) -> Instant {
        self.messages.ready_at(now).max(self.bytes.ready_at(now))
    }

    /// Counts messages, whether or not the limiter is ready.
    pub fn spend(&mut self, messages: usize, bytes: usize, now: Instant) {
        self.messages.spend(messages as f64, now);
        self.bytes.spend(bytes as f64, now);
    }

    fn try_spend(&mut self, bytes: usize, now: Instant) -> bool {
        let is_ready = self.ready_at(now) <= now;
        if is_ready {
            self.spend(1, bytes, now);
        }
        is_ready
    }

    /// Whether the limiter is in the same state as a new one.
    fn is_idle(&self, now: Instant) -> bool {
        self.messages.paid_at.max(self.bytes.paid_at) <= now
    }
}

/// Limits the messages of each key, and of all keys together.
#[derive(Debug)]
pub struct KeyedRateLimiter<K> {
    all_keys: MessageRateLimiter,
    by_key: HashMap<K, MessageRateLimiter>,
    key_rate: Rate,
    burst: Duration,
    max_keys: usize,
}

impl<K: Hash + Eq> KeyedRateLimiter<K> {
    /// At about `max_keys` keys, the limiters of idle ones are dropped.
    pub fn new(all_keys: Rate, key_rate: Rate, burst: Duration, max_keys: usize, now: Instant) -> Self {
        let all_keys = MessageRateLimiter::new(all_keys, burst, now);
        Self { all_keys, by_key: HashMap::new(), key_rate, burst, max_keys }
    }

    /// Counts a message if it may pass now.
    pub fn try_spend(&mut self, key: K, bytes: usize, now: Instant) -> bool {
        // The own limit first: a key that exceeds it spends nothing of the limit for all keys.
        self.of_key(key, now).try_spend(bytes, now) && self.all_keys.try_spend(bytes, now)
    }

    /// Counts a message if it may pass by `deadline`. Returns when it may.
    pub fn spend_before(&mut self, deadline: Instant, key: K, bytes: usize, now: Instant) -> Option<Instant> {
        let all_ready_at = self.all_keys.ready_at(now);
        let own = self.of_key(key, now);
        let ready_at = own.ready_at(now).max(all_ready_at);
        if ready_at > deadline {
            return None;
        }
        own.spend(1, bytes, now);
        self.all_keys.spend(1, bytes, now);
        Some(ready_at)
    }

    fn of_key(&mut self, key: K, now: Instant) -> &mut MessageRateLimiter {
        if self.by_key.len() >= self.max_keys {
            self.by_key.retain(|_, limiter| !limiter.is_idle(now));
        }
        self.by_key.entry(key).or_insert_with(|| MessageRateLimiter::new(self.key_rate, self.burst, now))
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
        let mut limiter = MessageRateLimiter::new(Rate { messages: 10, bytes: 1 << 30 }, second * 2, start);
        let ready: Vec<Duration> = (0..6)
            .map(|_| {
                let ready_at = limiter.ready_at(start);
                limiter.spend(10, 1, start);
                ready_at - start
            })
            .collect();
        assert_eq!(ready, [0, 0, 0, 1, 2, 3].map(Duration::from_secs));
        assert!(!limiter.is_idle(start + second * 5) && limiter.is_idle(start + second * 7));
        limiter.spend(20, 1, start + second * 60);
        assert_eq!(limiter.ready_at(start + second * 60), start + second * 60, "a pause adds up to one burst");
        limiter.spend(1, 1, start + second * 60);
        assert!(limiter.ready_at(start + second * 60) > start + second * 60, "and to no more");
    }

    #[test]
    fn limiter_without_a_burst_delays_the_next_spend() {
        let start = Instant::now();
        let mut limiter = MessageRateLimiter::new(Rate { messages: 10, bytes: 1 << 30 }, Duration::ZERO, start);
        let ready: Vec<Duration> = (0..5)
            .map(|_| {
                let ready_at = limiter.ready_at(start);
                limiter.spend(10, 1, start);
                ready_at - start
            })
            .collect();
        assert_eq!(ready, [0, 1, 2, 3, 4].map(Duration::from_secs), "the first is free");
        let later = start + Duration::from_secs(60);
        assert_eq!(limiter.ready_at(later), later, "a pause is neither saved up nor paid for");
        limiter.spend(10, 1, later);
        assert_eq!(limiter.ready_at(later), later + Duration::from_secs(1));
    }

    const RATE: Rate = Rate { messages: 10, bytes: 1_000 };
    const BURST: Duration = Duration::from_secs(2);

    fn passed(limiter: &mut MessageRateLimiter, bytes: usize, now: Instant) -> usize {
        (0..1_000).filter(|_| limiter.try_spend(bytes, now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_the_steady_rate_g6() {
        let start = Instant::now();
        let mut limiter = MessageRateLimiter::new(RATE, BURST, start);
        assert!(
            (20..=21).contains(&passed(&mut limiter, 1, start)),
            "two seconds' worth, and the message that fills it"
        );
        assert!(!limiter.try_spend(1, start));
        let later = start + Duration::from_secs(1);
        assert!((9..=11).contains(&passed(&mut limiter, 1, later)));
        assert!(!limiter.is_idle(later));
        let much_later = start + Duration::from_secs(60);
        assert!(limiter.is_idle(much_later));
        assert!((20..=21).contains(&passed(&mut limiter, 1, much_later)), "a pause adds up to one burst only");
    }

    #[test]
    fn bytes_are_limited_like_messages() {
        let start = Instant::now();
        let mut limiter = MessageRateLimiter::new(RATE, BURST, start);
        assert!((4..=5).contains(&passed(&mut limiter, 500, start)), "2,000 bytes");
    }

    #[test]
    fn queued_messages_become_ready_at_the_steady_rate() {
        let start = Instant::now();
        let mut limiter = KeyedRateLimiter::new(RATE, RATE, BURST, 8, start);
        let deadline = start + Duration::from_secs(60);
        let ready: Vec<Instant> = (0..61).map(|_| limiter.spend_before(deadline, 1, 1, start).unwrap()).collect();
        assert!(ready.is_sorted());
        assert_eq!(ready[10], start);
        let last = ready[60] - start;
        assert!(last >= Duration::from_millis(3_900) && last <= Duration::from_millis(4_100), "{last:?}");
        assert_eq!(limiter.spend_before(start, 1, 1, start), None, "it would have to wait too long");
    }

    #[test]
    fn a_flooding_peer_is_limited_and_others_pass_g6() {
        let now = Instant::now();
        let rate = |messages| Rate { messages, bytes: 1 << 30 };
        let mut limiter = KeyedRateLimiter::new(rate(50), rate(10), BURST, 1_024, now);
        let mut passed = |peer, at| (0..1_000).filter(|_| limiter.try_spend(peer, 1, at)).count();
        assert!((20..=21).contains(&passed(1, now)), "its own burst and no more");
        assert!((20..=21).contains(&passed(2, now)), "another peer is not affected");
        let rest: usize = (3..100).map(|peer| passed(peer, now)).sum();
        assert!((55..=62).contains(&rest), "all peers together are limited, too: {rest}");
        let later = now + Duration::from_secs(3_600);
        for peer in 0..3_000_u64 {
            limiter.try_spend(peer, 1, later + Duration::from_secs(peer));
        }
        assert!(limiter.by_key.len() <= 1_024, "limiters of idle peers are dropped");
    }
}
