//! The search index of a node: in its data directory or in its database.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use kukuri_outbox::{ConsumerSettings, Service};
use kukuri_search::{IndexService, SearchIndex};
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use kukuri_search_tantivy::TantivyIndex;
use kukuri_store::Holder;

use super::services::ServiceParts;
use crate::config::{IndexPlace, Settings, StorePlace, Switch, place::PostgresUrl};

/// Opens the index for a command that only reads. `None`: search is off.
pub(crate) async fn open_existing(settings: &Settings) -> anyhow::Result<Option<Arc<dyn SearchIndex>>> {
    let directory = directory(settings);
    if settings.index_place() == IndexPlace::Embedded && !directory.exists() {
        bail!("{}: there is no index here yet; a node creates it when it starts", directory.display());
    }
    open(settings, Switch::Off).await
}

/// `index-v1`.
pub(super) fn service(parts: &ServiceParts<'_>) -> anyhow::Result<Arc<dyn Service>> {
    let index = parts.index.clone().context("search.index is off")?;
    let mut consumer = ConsumerSettings::default();
    if parts.settings.index_place() == IndexPlace::Embedded {
        // Only one process can open the directory, so a restart after a crash need not wait for the lease to expire.
        consumer.holder = Some(Holder(1));
    }
    let kinds = parts.settings.indexed_kinds();
    Ok(Arc::new(IndexService::new(index, Arc::clone(&parts.store), kinds, consumer)))
}

/// Creates or migrates the tables of an index in a database. Returns the old and the new version.
pub(crate) async fn migrate(url: &PostgresUrl) -> anyhow::Result<(u32, u32)> {
    PostgresIndex::migrate(url.with_password()).await.with_context(|| cannot_open(url))
}

/// Opens the index; an embedded one is created if there is none. On Postgres it fails on missing or older tables unless
/// `migrate` is on. `None`: search is off.
pub(crate) async fn open(settings: &Settings, migrate: Switch) -> anyhow::Result<Option<Arc<dyn SearchIndex>>> {
    match (settings.index_place(), settings.store_place()) {
        (IndexPlace::Embedded, _) => {
            let directory = directory(settings);
            let index = TantivyIndex::open(&directory).with_context(|| {
                let at = directory.display();
                format!("can't open the search index in {at}; search.index = \"off\" runs the node without it")
            })?;
            Ok(Some(Arc::new(index)))
        }
        (IndexPlace::Postgres, StorePlace::Postgres(url)) => {
            let options = PostgresIndexOptions {
                query_timeout: settings.postgres.query_timeout,
                migrate: migrate == Switch::On,
                ..PostgresIndexOptions::default()
            };
            let index =
                PostgresIndex::connect(url.with_password(), options).await.with_context(|| cannot_open(&url))?;
            Ok(Some(Arc::new(index)))
        }
        (IndexPlace::Postgres, StorePlace::Lmdb(_)) | (IndexPlace::Off, _) => Ok(None),
    }
}

fn directory(settings: &Settings) -> PathBuf {
    settings.data.join("index")
}

fn cannot_open(url: &PostgresUrl) -> String {
    format!(
        "can't open the search index in {url}; kukuri-node migrate creates its tables, search.index = \"off\" runs the node without it"
    )
}
