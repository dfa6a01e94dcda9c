//! Opens stores. Only this module distinguishes the embedded store from Postgres.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, anyhow, bail};
use kukuri_store::{Archive, Store, StoreError};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::config::{Settings, StorePlace, Switch, place::PostgresUrl};

/// Opens the store for a node, and creates it if there is none.
pub(crate) async fn for_serving(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    Ok(open(&settings.store_place(), settings, settings.postgres.migrate).await?)
}

/// Opens the store for a command that writes.
pub(crate) async fn for_changing(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    Ok(open_existing(&settings.store_place(), settings).await?)
}

/// Opens the store for a command that only reads; a node may run on it.
pub(crate) async fn for_reading(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    match settings.store_place() {
        StorePlace::Lmdb(path) => Ok(Arc::new(lmdb_for_reading(&path, lmdb_options(settings))?)),
        StorePlace::Postgres(url) => {
            let options = postgres_options(settings, Switch::Off);
            let opened = PostgresStore::connect_for_reading(url.with_password(), options).await;
            Ok(Arc::new(opened.map_err(|error| about_postgres(&url, error))?))
        }
    }
}

/// Opens the source of a copy. No node may run on an embedded store. Nodes on Postgres wait while the copy reads; their
/// later writes are not in the copy.
pub(crate) async fn to_copy_from(place: &StorePlace, settings: &Settings) -> anyhow::Result<Arc<dyn Archive>> {
    match open_existing(place, settings).await {
        Err(error) if is_locked(&error) => bail!("a node runs on {place}; stop it first"),
        opened => opened,
    }
}

/// Opens the target of a copy, and creates it if there is none.
pub(crate) async fn to_copy_into(place: &StorePlace, settings: &Settings) -> anyhow::Result<Arc<dyn Archive>> {
    if let StorePlace::Lmdb(path) = place {
        // The store will hold private messages and hidden events: owner only.
        kukuri_files::create_directory(path, 0o700).with_context(|| path.display().to_string())?;
    }
    match open(place, settings, Switch::On).await {
        Err(error) if is_locked(&error) => bail!("{place} is in use; only an empty store can be copied into"),
        opened => opened,
    }
}

/// Opens a store. Creates none: a mistyped path must fail.
async fn open_existing(place: &StorePlace, settings: &Settings) -> anyhow::Result<Arc<dyn Archive>> {
    if let StorePlace::Lmdb(path) = place {
        refuse_missing(path)?;
    }
    open(place, settings, Switch::Off).await
}

/// Opens a store. On Postgres it fails on missing or older tables unless `migrate` is on.
async fn open(place: &StorePlace, settings: &Settings, migrate: Switch) -> anyhow::Result<Arc<dyn Archive>> {
    Ok(match place {
        StorePlace::Lmdb(path) => {
            let opened = LmdbStore::open(path, lmdb_options(settings));
            Arc::new(opened.map_err(|error| about_lmdb(path, error))?)
        }
        StorePlace::Postgres(url) => {
            let opened = PostgresStore::connect(url.with_password(), postgres_options(settings, migrate)).await;
            Arc::new(opened.map_err(|error| about_postgres(url, error))?)
        }
    })
}

/// Tells the operator how to remove an incomplete copy.
pub(crate) fn half_a_copy(place: &StorePlace) -> String {
    let remove = match place {
        StorePlace::Lmdb(_) => "remove this directory",
        StorePlace::Postgres(_) => "DROP SCHEMA cn_relay CASCADE in this database",
    };
    format!("{place}: a copy into this store broke off, so it can't be used; {remove}, then copy again")
}

/// Whether the store could not be opened because another process has locked it.
pub(crate) fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StoreError::Locked { .. }))
}

/// The embedded store's directory, for commands on its files. `instead`: the alternative on Postgres, for the error.
pub(crate) fn embedded(settings: &Settings, instead: &str) -> anyhow::Result<PathBuf> {
    match settings.store_place() {
        StorePlace::Lmdb(path) => Ok(path),
        StorePlace::Postgres(url) => {
            bail!("{url}: this command works on the files of an embedded store; on Postgres {instead}")
        }
    }
}

/// Creates or migrates the tables of a database. Returns the old and the new version.
pub(crate) async fn migrate(url: &PostgresUrl) -> anyhow::Result<(u32, u32)> {
    PostgresStore::migrate(url.with_password()).await.map_err(|error| about_postgres(url, error))
}

/// Fails if there is no store at the path, so that a mistyped path creates none.
pub(crate) fn refuse_missing(path: &Path) -> anyhow::Result<()> {
    if !path.join("data.mdb").exists() {
        bail!("{}: there is no store here; start the node once, or set its directory with --data", path.display());
    }
    Ok(())
}

pub(crate) fn lmdb_for_reading(path: &Path, options: LmdbOptions) -> anyhow::Result<LmdbStore> {
    refuse_missing(path)?;
    LmdbStore::open_for_reading(path, options)
        .map_err(|error| about_lmdb(path, error))
        .with_context(|| format!("can't read the store in {}", path.display()))
}

pub(crate) fn lmdb_options(settings: &Settings) -> LmdbOptions {
    LmdbOptions { rules: settings.store_rules(), ..LmdbOptions::default() }
}

fn postgres_options(settings: &Settings, migrate: Switch) -> PostgresOptions {
    PostgresOptions {
        rules: settings.store_rules(),
        readers: settings.postgres.readers,
        query_timeout: settings.postgres.query_timeout,
        migrate: migrate == Switch::On,
        ..PostgresOptions::default()
    }
}

/// Adds the remedy to an error at opening.
fn about_lmdb(path: &Path, error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Unfinished { .. } => anyhow!(half_a_copy(&StorePlace::Lmdb(path.to_owned()))),
        error => error.into(),
    }
}

fn about_postgres(url: &PostgresUrl, error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Older { found: 0, .. } => {
            anyhow!("{url}: there is no store here yet; start the node once, or run kukuri-node migrate")
        }
        StoreError::Older { found, supported, .. } => anyhow!(
            "{url}: its tables are of version {found}, this program needs {supported}; run kukuri-node migrate first"
        ),
        StoreError::Unfinished { .. } => anyhow!(half_a_copy(&StorePlace::Postgres(url.clone()))),
        StoreError::NotOpened { reason, .. } => anyhow!("{url}: {reason}"),
        error => anyhow::Error::new(error).context(url.to_string()),
    }
}
