//! `index-v1`: the outbox consumer that fills a search index (C-1).

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use kukuri_domain::Kind;
use kukuri_outbox::{Batch, Change, Reached, Sink, SinkError, Target};
use kukuri_store::Store;

use crate::{
    document::DEFAULT_KINDS,
    fingerprint,
    index::{Document, DocumentChange, SearchIndex},
};

/// The consumer's name.
pub const CONSUMER: &str = "index-v1";

/// Applies outbox batches to an index.
pub struct IndexSink {
    pub(crate) index: Arc<dyn SearchIndex>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) kinds: BTreeSet<Kind>,
}

impl IndexSink {
    /// Indexes [`DEFAULT_KINDS`].
    pub fn with_default_kinds(index: Arc<dyn SearchIndex>, store: Arc<dyn Store>) -> Self {
        Self { index, store, kinds: DEFAULT_KINDS.map(Kind).into() }
    }

    fn document_changes(&self, batch: &Batch) -> Result<Vec<DocumentChange>, SinkError> {
        let mut changes = Vec::with_capacity(batch.changes.len());
        for change in &batch.changes {
            match change {
                Change::Delete(id, _) => changes.push(DocumentChange::Remove(*id)),
                Change::Upsert(bound) => {
                    let event = bound.event.event().map_err(|error| SinkError::Poison(error.to_string()))?;
                    if self.kinds.contains(&event.kind) {
                        changes.push(DocumentChange::Put(Box::new(Document::new(&event, bound.topics.clone()))));
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
        let Some(position) = self.index.reached().await.map_err(SinkError::transient)? else {
            return Ok(Reached::Nothing);
        };
        match fingerprint::mismatch(&position, &*self.store, &self.kinds).await.map_err(SinkError::transient)? {
            None => Ok(Reached::Row(position.seq)),
            // The old documents stay searchable meanwhile: the finder reads every hit from the store.
            Some(reason) => {
                tracing::warn!(reason, "the search index does not fit this store; rebuilding it");
                Ok(Reached::Nothing)
            }
        }
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        let changes = self.document_changes(batch)?;
        let mut reached = None;
        if let Some(last) = batch.last {
            let position = fingerprint::position(&*self.store, &self.kinds, last).await;
            reached = Some(position.map_err(SinkError::transient)?);
        }
        match (target, reached) {
            (Target::Current, Some(reached)) => self.index.apply(changes, reached).await,
            (Target::Current, None) => Ok(()),
            (Target::Next, reached) => self.index.fill(changes, reached).await,
        }
        .map_err(SinkError::transient)
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.index.begin().await.map_err(SinkError::transient)
    }

    async fn switch(&self) -> Result<(), SinkError> {
        self.index.switch().await.map_err(SinkError::transient)
    }
}
