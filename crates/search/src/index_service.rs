//! `index-v1` as a service of the node.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use kukuri_domain::Kind;
use kukuri_outbox::{ConsumerSettings, Figure, Service, ServiceError, ServiceInfo, Sink, Verification};
use kukuri_store::Store;

use crate::{
    index::SearchIndex,
    index_consumer::{CONSUMER, IndexSink},
    verify,
};

/// Name and purpose of the service.
pub const INFO: ServiceInfo = ServiceInfo { name: CONSUMER, description: "search index (NIP-50, /v1/search)" };

/// The service that fills a search index.
pub struct IndexService {
    sink: Arc<IndexSink>,
    settings: ConsumerSettings,
}

impl IndexService {
    /// Indexes events of these kinds.
    pub fn new(
        index: Arc<dyn SearchIndex>,
        store: Arc<dyn Store>,
        kinds: BTreeSet<Kind>,
        settings: ConsumerSettings,
    ) -> Self {
        Self { sink: Arc::new(IndexSink { index, store, kinds }), settings }
    }
}

#[async_trait]
impl Service for IndexService {
    fn info(&self) -> ServiceInfo {
        INFO
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink) as _
    }

    fn consumer_settings(&self) -> ConsumerSettings {
        self.settings.clone()
    }

    async fn figures(&self) -> Result<Vec<Figure>, ServiceError> {
        let stats = self.sink.index.stats().await.map_err(ServiceError::storage)?;
        Ok(vec![
            Figure { name: "documents", value: stats.documents },
            Figure { name: "size_bytes", value: stats.bytes },
        ])
    }

    async fn verify(&self) -> Result<Verification, ServiceError> {
        verify::compare(&self.sink, (self.settings.clock)()).await
    }
}
