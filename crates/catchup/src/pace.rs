//! No faster than so many in a second, over the whole of a session.

use std::time::Duration;

use tokio::time::Instant;

/// A rate that is kept.
pub(crate) struct Pace {
    per_second: u32,
    /// When what was spent so far is paid for.
    free_at: Instant,
}

impl Pace {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), free_at: Instant::now() }
    }

    /// Spends so many, and waits until what was spent before is paid for.
    pub(crate) async fn spend(&mut self, count: usize) {
        let now = Instant::now();
        let wait = self.free_at.max(now);
        self.free_at = wait + Duration::from_secs_f64(count as f64 / f64::from(self.per_second));
        if wait > now {
            tokio::time::sleep_until(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_spent_is_paid_for_before_the_next() {
        let begun = Instant::now();
        let mut pace = Pace::new(10);
        for _ in 0..5 {
            pace.spend(10).await;
        }
        assert_eq!(begun.elapsed().as_secs(), 4, "the first is free");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let rested = Instant::now();
        pace.spend(10).await;
        assert_eq!(rested.elapsed(), Duration::ZERO, "rest is not saved up, nor paid for");
        pace.spend(1).await;
        assert_eq!(rested.elapsed().as_secs(), 1);
    }
}
