//! Rate limits for messages: their number and their bytes.

use std::time::{Duration, Instant};

use kukuri_pacing::RateLimiter;

use crate::settings::Rate;

/// Burst of received messages, as time at the steady rate.
pub(crate) const RECEIVE_BURST: Duration = Duration::from_secs(2);
/// Burst of sent messages. The queues of iroh-gossip are short: large messages that fill the queues of several nodes at once
/// stop all of these nodes.
pub(crate) const SEND_BURST: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRateLimiter {
    messages: RateLimiter,
    bytes: RateLimiter,
}

impl MessageRateLimiter {
    pub(crate) fn new(rate: Rate, burst: Duration, now: Instant) -> Self {
        Self {
            messages: RateLimiter::new(f64::from(rate.messages), burst, now),
            bytes: RateLimiter::new(rate.bytes as f64, burst, now),
        }
    }

    /// The earliest time at which a message may pass.
    pub(crate) fn message_ready_at(&self, now: Instant) -> Instant {
        self.messages.ready_at(now).max(self.bytes.ready_at(now))
    }

    /// Counts a message.
    pub(crate) fn spend_message(&mut self, bytes: usize, now: Instant) {
        self.messages.spend(1.0, now);
        self.bytes.spend(bytes as f64, now);
    }

    /// Counts a message if it may pass now.
    pub(crate) fn try_spend_message(&mut self, bytes: usize, now: Instant) -> bool {
        let is_ready = self.message_ready_at(now) <= now;
        if is_ready {
            self.spend_message(bytes, now);
        }
        is_ready
    }

    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.messages.is_idle(now) && self.bytes.is_idle(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { messages: 10, bytes: 1_000 };

    fn passed(limiter: &mut MessageRateLimiter, bytes: usize, now: Instant) -> usize {
        (0..1_000).filter(|_| limiter.try_spend_message(bytes, now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_the_steady_rate_g6() {
        let start = Instant::now();
        let mut limiter = MessageRateLimiter::new(RATE, RECEIVE_BURST, start);
        assert!(
            (20..=21).contains(&passed(&mut limiter, 1, start)),
            "two seconds' worth, and the message that fills it"
        );
        assert!(!limiter.try_spend_message(1, start));
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
        let mut limiter = MessageRateLimiter::new(RATE, RECEIVE_BURST, start);
        assert!((4..=5).contains(&passed(&mut limiter, 500, start)), "2,000 bytes");
    }

    #[test]
    fn queued_messages_become_ready_at_the_steady_rate() {
        let start = Instant::now();
        let mut limiter = MessageRateLimiter::new(RATE, RECEIVE_BURST, start);
        let ready: Vec<Instant> = (0..61)
            .map(|_| {
                let ready_at = limiter.message_ready_at(start);
                limiter.spend_message(1, start);
                ready_at
            })
            .collect();
        assert!(ready.is_sorted());
        assert_eq!(ready[10], start);
        let last = ready[60] - start;
        assert!(last >= Duration::from_millis(3_900) && last <= Duration::from_millis(4_100), "{last:?}");
    }
}
