//! `index-v1`: the consumer that keeps an index (C-1).

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use kukuri_domain::Kind;
use kukuri_outbox::{Batch, Change as Became, Reached, Sink, SinkError, Target};

use crate::{
    document::DEFAULT_KINDS,
    index::{Change, Document, IndexError, SearchIndex},
};

/// The consumer's name.
pub const CONSUMER: &str = "index-v1";

/// Puts what became of events into an index.
pub struct IndexSink {
    index: Arc<dyn SearchIndex>,
    kinds: BTreeSet<Kind>,
}

impl IndexSink {
    /// For events of these kinds.
    pub fn new(index: Arc<dyn SearchIndex>, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { index, kinds: kinds.into_iter().collect() }
    }

    /// For the kinds that are indexed unless an operator says otherwise.
    pub fn with_default_kinds(index: Arc<dyn SearchIndex>) -> Self {
        Self::new(index, DEFAULT_KINDS.map(Kind))
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
        Ok(self.index.reached().await.map_err(passing)?.map_or(Reached::Nothing, Reached::Row))
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        let changes = self.changes(batch)?;
        match (target, batch.last) {
            (Target::Current, Some(last)) => self.index.apply(changes, last).await,
            (Target::Current, None) => Ok(()),
            (Target::Next, last) => self.index.fill(changes, last).await,
        }
        .map_err(passing)
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.index.begin().await.map_err(passing)
    }

    async fn switch(&self) -> Result<(), SinkError> {
        self.index.switch().await.map_err(passing)
    }
}

fn passing(error: IndexError) -> SinkError {
    SinkError::passing(error)
}
