//! `backup`, `restore`, `compact`: commands on the file of the embedded store.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use kukuri_store::{StoreError, port::*};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use serde_json::json;

use super::{check::check, table::bytes};
use crate::{
    config::Settings,
    key, output,
    wiring::{self, stores},
};

const STORE: &str = "store";
const DATA_FILE: &str = "data.mdb";
const MANIFEST: &str = "backup.json";
const DUMP: &str = "use pg_dump and pg_restore (schema cn_relay), or move everything with kukuri-node copy";

#[derive(Args)]
pub(crate) struct Backup {
    /// A new or empty directory.
    dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct Restore {
    /// A directory that `backup` wrote.
    dir: PathBuf,
}

/// Writes a consistent copy of the store, and the key. The node may run.
pub(crate) async fn backup(settings: &Settings, options: Backup) -> anyhow::Result<()> {
    let dir = &options.dir;
    let place = stores::embedded(settings, DUMP)?;
    if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{}: this directory is not empty; choose a new one", dir.display());
    }
    let store = stores::lmdb_for_reading(&place, stores::lmdb_options(settings))?;
    let at = || dir.display().to_string();
    fs::create_dir_all(dir.join(STORE)).with_context(at)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).with_context(at)?;
    let copy = dir.join(STORE).join(DATA_FILE);
    store.copy_to(&copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    File::open(&copy)?.sync_all()?;
    let key_file = key::nostr_file(&settings.data);
    if key_file.exists() {
        copy_key(&key_file, &key::nostr_file(dir))?;
    }
    let copied = stores::lmdb_for_reading(&dir.join(STORE), LmdbOptions::default())?.stats().await?;
    let manifest = json!({
        "made_by": concat!("kukuri-node ", env!("CARGO_PKG_VERSION")),
        "made_at": wiring::now(),
        "events": copied.effective,
        "head": copied.head.0,
    });
    // Written last: a directory without a manifest is an incomplete backup.
    fs::write(dir.join(MANIFEST), format!("{manifest}\n")).with_context(at)?;
    let size = fs::metadata(&copy)?.len();
    output::print(&format!("{}: {} events, {}\n", dir.display(), copied.effective, bytes(size)))
}

/// Restores a backup into a data directory that has no store yet.
pub(crate) async fn restore(settings: &Settings, options: Restore) -> anyhow::Result<()> {
    let from = &options.dir;
    let place = stores::embedded(settings, DUMP)?;
    if !from.join(MANIFEST).exists() {
        bail!("{}: not a backup, or an incomplete one: {MANIFEST} is missing", from.display());
    }
    if place.join(DATA_FILE).exists() {
        bail!("{}: there is a store here already; move it away first", place.display());
    }
    // An unreadable backup must fail before anything is written.
    stores::lmdb_for_reading(&from.join(STORE), LmdbOptions::default())?;
    fs::create_dir_all(&settings.data).with_context(|| settings.data.display().to_string())?;
    // The key first: a node that starts on the store without its key would create a new one.
    let (key_file, ours) = (key::nostr_file(from), key::nostr_file(&settings.data));
    if key_file.exists() && !ours.exists() {
        copy_key(&key_file, &ours)?;
    }
    LmdbStore::install(&place, from.join(STORE).join(DATA_FILE))?;
    check(&*stores::for_reading(settings).await?).await?;
    output::print(&format!("restored to {}\n", place.display()))
}

pub(crate) fn compact(settings: &Settings) -> anyhow::Result<()> {
    let place = stores::embedded(settings, "the server does it: VACUUM (FULL)")?;
    stores::refuse_missing(&place)?;
    let (before, after) = match LmdbStore::compact(&place, &stores::lmdb_options(settings)) {
        Err(StoreError::Locked { .. }) => {
            bail!("compact can't work beside a running node: stop the node that uses {} first", place.display());
        }
        compacted => compacted?,
    };
    output::print(&format!("{}: {} became {}\n", place.join(DATA_FILE).display(), bytes(before), bytes(after)))
}

fn copy_key(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| to.display().to_string())?;
    File::open(to)?.sync_all()?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o600))?)
}
