//! An index whose time goes on while that of the test is paused: it waits for a server, on threads of its own.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_search::{Change, Hit, IndexStats, Place, Search, SearchIndex, index::Result};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"))
}

/// Runs something there, outside of any runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// Runs something there, from within a runtime whose time stands still meanwhile.
pub(crate) async fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| runtime().block_on(work)).await.expect("an end")
}

/// An index that runs there.
pub(crate) struct Elsewhere<I>(Arc<I>);

impl<I> Elsewhere<I> {
    pub(crate) fn of(index: I) -> Self {
        Self(Arc::new(index))
    }
}

#[async_trait]
impl<I: SearchIndex> SearchIndex for Elsewhere<I> {
    async fn search(&self, search: &Search) -> Result<Vec<Hit>> {
        let (index, search) = (Arc::clone(&self.0), search.clone());
        run(async move { index.search(&search).await }).await
    }

    async fn reached(&self) -> Result<Option<Place>> {
        let index = Arc::clone(&self.0);
        run(async move { index.reached().await }).await
    }

    async fn apply(&self, changes: Vec<Change>, reached: Place) -> Result<()> {
        let index = Arc::clone(&self.0);
        run(async move { index.apply(changes, reached).await }).await
    }

    async fn begin(&self) -> Result<()> {
        let index = Arc::clone(&self.0);
        run(async move { index.begin().await }).await
    }

    async fn fill(&self, changes: Vec<Change>, reached: Option<Place>) -> Result<()> {
        let index = Arc::clone(&self.0);
        run(async move { index.fill(changes, reached).await }).await
    }

    async fn switch(&self) -> Result<()> {
        let index = Arc::clone(&self.0);
        run(async move { index.switch().await }).await
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        let index = Arc::clone(&self.0);
        run(async move { index.ids(after, limit).await }).await
    }

    async fn stats(&self) -> Result<IndexStats> {
        let index = Arc::clone(&self.0);
        run(async move { index.stats().await }).await
    }
}
