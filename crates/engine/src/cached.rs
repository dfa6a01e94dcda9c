//! Figures that everybody may ask for: read from the store once a second at most, by one caller for all (Y-4).

use std::{sync::Arc, time::Duration};

use kukuri_store::StoreError;
use tokio::{sync::Mutex, time::Instant};

/// How long figures are shown before they are read again (Y-4).
pub const STATS_TTL: Duration = Duration::from_secs(1);

/// The store does not answer. The log says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store does not answer")]
pub struct StoreUnavailable;

/// Figures that are read again when they are old.
pub(crate) struct Cached<T>(Mutex<Option<Reading<T>>>);

struct Reading<T> {
    read_at: Instant,
    value: Result<Arc<T>, StoreUnavailable>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Cached<T> {
    /// The last reading, or a new one if that is older than [`STATS_TTL`]. A failed one counts as well.
    pub(crate) async fn get(
        &self,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Arc<T>, StoreUnavailable> {
        let mut cached = self.0.lock().await;
        if let Some(Reading { read_at, value }) = &*cached
            && read_at.elapsed() < STATS_TTL
        {
            return value.clone();
        }
        let value = read.await.map(Arc::new).map_err(|error| {
            tracing::error!(%error, "can't read the store's statistics; the node shows that it is not ready");
            StoreUnavailable
        });
        *cached = Some(Reading { read_at: Instant::now(), value: value.clone() });
        value
    }
}
