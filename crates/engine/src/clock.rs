//! The time of day, read where the node meets the world. Everything below gets it as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

use kukuri_domain::Millis;

/// Milliseconds since 1970.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
