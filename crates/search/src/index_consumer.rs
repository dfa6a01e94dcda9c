//! `index-v1`: the outbox consumer that fills a search index (C-1).

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use kukuri_domain::Kind;
use kukuri_outbox::{Batch, Change, Reached, Sink, SinkError, Target};
use kukuri_store::{Seq, Store};

use crate::{
    document::DEFAULT_KINDS,
    fingerprint,
    index::{Document, DocumentChange, IndexPosition, SearchIndex},
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

    /// `is_new`: the index has no event of these rows yet, except perhaps the first: its earlier rows, for other topics, may have
    /// ended the batch before.
    fn document_changes(&self, batch: &Batch, is_new: bool) -> Result<Vec<DocumentChange>, SinkError> {
        let mut changes = Vec::with_capacity(batch.changes.len());
        for (number, change) in batch.changes.iter().enumerate() {
            match change {
                Change::Delete(id, _) => changes.push(DocumentChange::Remove(*id)),
                Change::Upsert(bound) => {
                    let event = bound.event.event().map_err(|error| SinkError::Poison(error.to_string()))?;
                    if !self.kinds.contains(&event.kind) {
                        continue;
                    }
                    let document = Box::new(Document::new(&event, bound.topics.clone()));
                    let is_added = is_new && number > 0;
                    changes.push(if is_added { DocumentChange::Add(document) } else { DocumentChange::Put(document) });
                }
            }
        }
        Ok(changes)
    }

    async fn position(&self, seq: Seq) -> Result<IndexPosition, SinkError> {
        fingerprint::position(&*self.store, &self.kinds, seq).await.map_err(SinkError::transient)
    }

    async fn apply_current(&self, batch: &Batch, last: Seq) -> Result<(), SinkError> {
        // Rows that come again, because of a crash or for an operator, do not set the position back.
        let known = self.index.reached().await.map_err(SinkError::transient)?;
        let is_new = known.as_ref().is_some_and(|known| known.seq <= batch.after);
        let changes = self.document_changes(batch, is_new)?;
        let reached = match known {
            Some(known) if known.seq > last => known,
            _ => self.position(last).await?,
        };
        self.index.apply(changes, reached).await.map_err(SinkError::transient)
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
        match (target, batch.last) {
            (Target::Current, None) => Ok(()),
            (Target::Current, Some(last)) => self.apply_current(batch, last).await,
            (Target::Next, last) => {
                let reached = match last {
                    Some(last) => Some(self.position(last).await?),
                    None => None,
                };
                let changes = self.document_changes(batch, false)?;
                self.index.fill(changes, reached).await.map_err(SinkError::transient)
            }
        }
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.index.begin().await.map_err(SinkError::transient)
    }

    async fn switch(&self) -> Result<(), SinkError> {
        self.index.switch().await.map_err(SinkError::transient)
    }
}
