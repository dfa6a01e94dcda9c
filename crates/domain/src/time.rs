//! Two types of time that must not be mixed: `created_at` of events, and this node's clock.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::Number;

/// Unix seconds as written in an event or a filter. Claimed by the author, not measured by this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The highest value in an event (E-8): every JSON parser represents it exactly.
    pub const MAX_IN_EVENT: Self = Self((1 << 53) - 1);
}

/// Unix milliseconds by this node's clock: `ingested_at` and all times that retention uses (P-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The start of this Unix second.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// In whole seconds, to compare with `created_at`.
    pub const fn seconds(self) -> Timestamp {
        Timestamp(self.0 / 1_000)
    }

    /// `duration` earlier, at least 0.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(as_millis(duration)))
    }

    /// `duration` later.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(as_millis(duration)))
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = Number { max: u64::MAX, expected: "a time in whole seconds, not negative" };
        deserializer.deserialize_u64(seconds).map(Self)
    }
}
