//! The permit of a search, held until the server has ended its statement, even if the caller has dropped the search.

use std::time::Duration;

use kukuri_search::SearchPermit;
use tokio::{runtime::Handle, time::sleep};

/// How long a statement may run after its session was closed: `client_connection_check_interval`.
pub(crate) const CANCEL_TIME: Duration = Duration::from_millis(500);

/// The permit of a search whose statement may be running.
pub(crate) struct StatementPermit(Option<SearchPermit>);

impl StatementPermit {
    pub(crate) fn new(permit: SearchPermit) -> Self {
        Self(Some(permit))
    }

    /// Gives the permit back: the statement has ended.
    pub(crate) fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for StatementPermit {
    fn drop(&mut self) {
        if let (Some(permit), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                sleep(CANCEL_TIME).await;
                drop(permit);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kukuri_store::ReadPermit;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn permit_is_kept_until_the_server_has_cancelled_a_dropped_search() {
        // Y-1
        let held = Arc::new(());
        let permit = || StatementPermit::new(Some(Box::new(Arc::clone(&held)) as ReadPermit).into());
        permit().release();
        assert_eq!(Arc::strong_count(&held), 1, "the statement has ended");
        drop(permit());
        sleep(CANCEL_TIME / 2).await;
        assert_eq!(Arc::strong_count(&held), 2, "the statement may be running");
        sleep(CANCEL_TIME).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
