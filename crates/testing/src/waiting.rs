//! Waiting until a condition holds, on the real clock.

use std::time::{Duration, Instant};

/// Long enough for every test, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `holds`. Panics with `what` after [`TIMEOUT`].
pub async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    eventually_within(TIMEOUT, holds, || what.to_owned()).await;
}

/// Like [`eventually`], with another timeout. `what` is called only after the timeout.
pub async fn eventually_within(timeout: Duration, mut holds: impl AsyncFnMut() -> bool, what: impl FnOnce() -> String) {
    let deadline = Instant::now() + timeout;
    while !holds().await {
        if Instant::now() > deadline {
            panic!("not within {} s: {}", timeout.as_secs(), what());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
