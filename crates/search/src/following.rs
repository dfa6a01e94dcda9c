//! `index-v1`: the consumer that keeps an index (C-1).

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use kukuri_domain::Kind;
use kukuri_outbox::{Batch, Change as Became, Reached, Sink, SinkError, Target};
use kukuri_store::Store;

use crate::{
    document::DEFAULT_KINDS,
    index::{Change, Document, SearchIndex},
    mark,
};

/// The consumer's name.
pub const CONSUMER: &str = "index-v1";

/// Puts what became of events into an index.
pub struct IndexSink {
    index: Arc<dyn SearchIndex>,
    store: Arc<dyn Store>,
    kinds: BTreeSet<Kind>,
}

impl IndexSink {
    /// For events of these kinds in this store.
    pub fn new(index: Arc<dyn SearchIndex>, store: Arc<dyn Store>, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { index, store, kinds: kinds.into_iter().collect() }
    }

    /// For the kinds that are indexed unless an operator says otherwise.
    pub fn with_default_kinds(index: Arc<dyn SearchIndex>, store: Arc<dyn Store>) -> Self {
        Self::new(index, store, DEFAULT_KINDS.map(Kind))
    }

    fn changes(&self, batch: &Batch) -> Result<Vec<Change>, SinkError> {
        let mut changes = Vec::with_capacity(batch.changes.len());
        for change in &batch.changes {
            match change {
                Became::Delete(id, _) => changes.push(Change::Remove(*id)),
                Became::Upsert(bound) => {
                    let event = bound.event.event().map_err(|error| SinkError::Poison(error.to_string()))?;
                    if self.kinds.contains(&event.kind) {
                        changes.push(Change::Put(Box::new(Document::new(&event, bound.topics.clone()))));
                    }
                }
            }
        }
        Ok(changes)
    }
}

#[async_trait]
impl Sink for IndexSink {
    async fn reached(&self) -> Result<Reached, SinkError> {
        let Some(place) = self.index.reached().await.map_err(SinkError::passing)? else { return Ok(Reached::Nothing) };
        match mark::why_not(&place, &*self.store, &self.kinds).await.map_err(SinkError::passing)? {
            None => Ok(Reached::Row(place.seq)),
            // What is in it does no harm meanwhile: every hit is looked up.
            Some(why) => {
                tracing::warn!(why, "the search index is built anew");
                Ok(Reached::Nothing)
            }
        }
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        let changes = self.changes(batch)?;
        let reached = match batch.last {
            Some(last) => Some(mark::place(&*self.store, &self.kinds, last).await.map_err(SinkError::passing)?),
            None => None,
        };
        match (target, reached) {
            (Target::Current, Some(reached)) => self.index.apply(changes, reached).await,
            (Target::Current, None) => Ok(()),
            (Target::Next, reached) => self.index.fill(changes, reached).await,
        }
        .map_err(SinkError::passing)
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.index.begin().await.map_err(SinkError::passing)
    }

    async fn switch(&self) -> Result<(), SinkError> {
        self.index.switch().await.map_err(SinkError::passing)
    }
}
