//! Weights of a hit beside the score of its words.

use kukuri_domain::Timestamp;

/// Factor for a word in a title.
pub const TITLE_WEIGHT: f32 = 2.0;
/// Added to the factor of a document of age zero.
const RECENCY_WEIGHT: f32 = 1.0;
/// Age at which half of [`RECENCY_WEIGHT`] is left.
const HALF_LIFE_SECONDS: f32 = 30.0 * 86_400.0;

/// Factor for the score, by age.
pub fn recency(created_at: Timestamp, now: Timestamp) -> f32 {
    let age = now.0.saturating_sub(created_at.0) as f32;
    1.0 + RECENCY_WEIGHT * (-age / HALF_LIFE_SECONDS).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_documents_score_higher_and_future_ones_like_now() {
        let (now, day) = (Timestamp(2_000_000_000), 86_400);
        let at = |days: u64| recency(Timestamp(now.0 - days * day), now);
        assert_eq!(at(0), 2.0);
        assert_eq!(at(30), 1.5);
        assert!(at(1) > at(2) && at(10_000) >= 1.0);
        assert_eq!(recency(Timestamp(now.0 + 5), now), 2.0);
    }
}
