//! What makes a hit good, beside its words.

use kukuri_domain::Timestamp;

/// A word in a title counts so much more than one in a text.
pub const TITLE_WEIGHT: f32 = 2.0;
/// What is new counts up to twice.
const RECENCY_WEIGHT: f32 = 1.0;
/// After this time half of that is gone.
const HALF_LIFE_SECONDS: f32 = 30.0 * 86_400.0;

/// What the score of words is multiplied by.
pub fn recency(created_at: Timestamp, now: Timestamp) -> f32 {
    let age = now.0.saturating_sub(created_at.0) as f32;
    1.0 + RECENCY_WEIGHT * (-age / HALF_LIFE_SECONDS).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_counts_more_and_the_future_no_more_than_now() {
        let (now, day) = (Timestamp(2_000_000_000), 86_400);
        let at = |days: u64| recency(Timestamp(now.0 - days * day), now);
        assert_eq!(at(0), 2.0);
        assert_eq!(at(30), 1.5);
        assert!(at(1) > at(2) && at(10_000) >= 1.0);
        assert_eq!(recency(Timestamp(now.0 + 5), now), 2.0);
    }
}
