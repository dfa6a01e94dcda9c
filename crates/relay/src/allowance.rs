//! A least rate for readers (W-5, Y-2): time that writes are blocked is taken from an allowance, which written bytes refill.
//!
//! An answer of n bytes is taken within the allowance and n / [`MIN_BYTES_PER_SECOND`] seconds of blocked writes, and a client
//! that takes nothing is cut off when the allowance is used up.

use std::time::Duration;

/// Taking this much earns a second of blocked time.
pub const MIN_BYTES_PER_SECOND: usize = 16 * 1024;

/// The time that a client may still keep writes blocked.
pub struct SendAllowance {
    max: Duration,
    left: Duration,
}

impl SendAllowance {
    /// The whole allowance.
    pub fn new(max: Duration) -> Self {
        Self { max, left: max }
    }

    /// How long the next write may be blocked.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// A write was blocked.
    pub fn take(&mut self, blocked: Duration) {
        self.left = self.left.saturating_sub(blocked);
    }

    /// The client, or the system's buffer for it, took bytes.
    pub fn refill(&mut self, bytes: usize) {
        if self.left < self.max {
            let earned = Duration::from_secs_f64(bytes as f64 / MIN_BYTES_PER_SECOND as f64);
            self.left = self.left.saturating_add(earned).min(self.max);
        }
    }
}
