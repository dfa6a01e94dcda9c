//! An index on a runtime of its own, where time passes while the time of the test is paused: it waits for a server.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_search::{DocumentChange, Hit, IndexPosition, IndexStats, Search, SearchIndex, SearchPermit, index::Result};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"))
}

/// Blocks on work there, from outside of any runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// Runs work there from within a runtime whose time is paused.
pub(crate) async fn run<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| runtime().block_on(work)).await.expect("the work")
}

/// An index whose calls run there.
pub(crate) struct OnOwnRuntime<I>(Arc<I>);

impl<I> OnOwnRuntime<I> {
    pub(crate) fn of(index: I) -> Self {
        Self(Arc::new(index))
    }
}

#[async_trait]
impl<I: SearchIndex> SearchIndex for OnOwnRuntime<I> {
    async fn search_with_permit(&self, search: &Search, permit: SearchPermit) -> Result<Vec<Hit>> {
        let (index, search) = (Arc::clone(&self.0), search.clone());
        run(async move { index.search_with_permit(&search, permit).await }).await
    }

    async fn reached(&self) -> Result<Option<IndexPosition>> {
        let index = Arc::clone(&self.0);
        run(async move { index.reached().await }).await
    }

    async fn apply(&self, changes: Vec<DocumentChange>, reached: IndexPosition) -> Result<()> {
        let index = Arc::clone(&self.0);
        run(async move { index.apply(changes, reached).await }).await
    }

    async fn begin(&self) -> Result<()> {
        let index = Arc::clone(&self.0);
        run(async move { index.begin().await }).await
    }

    async fn fill(&self, changes: Vec<DocumentChange>, reached: Option<IndexPosition>) -> Result<()> {
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
