//! A search whose caller has gone holds its permit until its thread has ended the work (Y-1).
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, mpsc},
    task::Poll,
    time::Instant,
};

use async_trait::async_trait;
use kukuri_domain::Kind;
use kukuri_search::{Finder, Search, SearchQuery};
use kukuri_search_tantivy::TantivyIndex;
use kukuri_store::{Budget, ReadGate, ReadPermit, ReadStage, StoreRules, conformance::build::NOW, model::ModelStore};
use tokio::{runtime::Builder, task::spawn_blocking};

/// Admits everything. A permit is a clone.
struct Gate(Arc<()>);

#[async_trait]
impl ReadGate for Gate {
    async fn enter(&self, _: ReadStage, _: usize, _: Option<Instant>) -> Option<ReadPermit> {
        Some(Box::new(Arc::clone(&self.0)))
    }
}

#[test]
fn dropped_search_holds_its_permit_until_its_thread_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let index = Arc::new(TantivyIndex::open(directory.path()).unwrap());
        let finder = Finder::new(index, Arc::new(ModelStore::new(StoreRules::default())), [Kind(1)]);
        let permits = Arc::new(());
        let budget = Budget { gate: Some(Arc::new(Gate(Arc::clone(&permits)))), ..Budget::default() };
        let unheld = Arc::strong_count(&permits);

        // The only thread is busy, so that the search begins when the test lets it.
        let (let_go, wait) = mpsc::channel::<()>();
        let busy = spawn_blocking(move || wait.recv());
        {
            let search = Search::new(SearchQuery::parse("tea").unwrap(), NOW.seconds(), 10);
            let mut searching = finder.begin(NOW, &budget).await.unwrap();
            let mut find = pin!(searching.find(&search, usize::MAX, |_, _| true));
            poll_fn(|context| {
                assert!(find.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        assert_eq!(Arc::strong_count(&permits), unheld + 1, "the search is under way");
        let_go.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // Runs after the search.
        spawn_blocking(|| {}).await.unwrap();
        assert_eq!(Arc::strong_count(&permits), unheld, "the permit is given back");
    });
}
