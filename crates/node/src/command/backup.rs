//! `backup`, `restore`, `compact`: commands on the file of the embedded store.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use kukuri_domain::Millis;
use kukuri_store::{StoreError, port::*};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{check::check, table::bytes};
use crate::{
    config::{Settings, place::ControlPlace},
    key, output,
    wiring::{self, stores},
};

const STORE: &str = "store";
const DATA_FILE: &str = "data.mdb";
const MANIFEST: &str = "backup.json";
const CONTROL: &str = "control.db";
const DUMP: &str =
    "use pg_dump and pg_restore (schemas cn_relay, cn_admin and cn_user), or move everything with kukuri-node copy";

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

/// Writes consistent copies of the store and of the control database, and the keys. The node may run.
pub(crate) async fn backup(settings: &Settings, options: Backup) -> anyhow::Result<()> {
    let dir = &options.dir;
    let place = stores::embedded(settings, DUMP)?;
    if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{}: this directory is not empty; choose a new one", dir.display());
    }
    let store = stores::lmdb_for_reading(&place, stores::lmdb_options(settings))?;
    let at = || dir.display().to_string();
    kukuri_files::create_directory(dir, 0o700).with_context(at)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).with_context(at)?;
    kukuri_files::create_directory(&dir.join(STORE), 0o700).with_context(at)?;
    // Before the store: an account that is deleted meanwhile is in the backup, so that its deletion is repeated after a restore (N-2).
    let control = backup_control(settings, dir).await?;
    let copy = dir.join(STORE).join(DATA_FILE);
    store.copy_to(&copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    kukuri_files::sync(&copy)?;
    kukuri_files::sync(&dir.join(STORE))?;
    let mut files = vec![BackupFile::of(dir, &copy)?];
    for (ours, key_file) in key::files(&settings.data).into_iter().zip(key::files(dir)) {
        if ours.exists() {
            copy_key(&ours, &key_file)?;
            files.push(BackupFile::of(dir, &key_file)?);
        }
    }
    if let Some(control) = control {
        files.push(BackupFile::of(dir, &control)?);
    }
    let size = files[0].bytes;
    let copied = stores::lmdb_for_reading(&dir.join(STORE), LmdbOptions::default())?.stats().await?;
    let manifest = Manifest {
        made_by: concat!("kukuri-node ", env!("CARGO_PKG_VERSION")).to_owned(),
        made_at: wiring::now(),
        events: copied.effective,
        head: copied.head.0,
        files,
    };
    // Written last: a directory without a manifest is an incomplete backup.
    kukuri_files::write(&dir.join(MANIFEST), format!("{}\n", json!(manifest)).as_bytes()).with_context(at)?;
    output::print(&format!("{}: {} events, {}\n", dir.display(), copied.effective, bytes(size)))
}

/// Copies the control database, if it is a file and there is one. It may be older than the store: what has to take effect there
/// follows when the node starts (S-7).
async fn backup_control(settings: &Settings, dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    match settings.control_place() {
        ControlPlace::Postgres(url) => {
            eprintln!(
                "kukuri-node: accounts and settings are not in this backup: dump the schemas cn_admin and cn_user of {url}"
            );
            Ok(None)
        }
        ControlPlace::Sqlite(file) if !file.exists() => Ok(None),
        ControlPlace::Sqlite(_) => {
            let copy = dir.join(CONTROL);
            wiring::control::database_for_command(settings).await?.backup_sqlite(&copy).await?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
            kukuri_files::sync(&copy)?;
            Ok(Some(copy))
        }
    }
}

/// A file of SQLite, and those that it keeps beside it.
fn with_logs(file: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut path = file.as_os_str().to_owned();
        path.push(end);
        path.into()
    })
}

/// Puts the control database of a backup where this node has its own, which must not be there yet.
fn restore_control(settings: &Settings, from: &Path) -> anyhow::Result<()> {
    let backup = from.join(CONTROL);
    if !backup.exists() {
        return Ok(());
    }
    let ControlPlace::Sqlite(file) = settings.control_place() else {
        bail!(
            "the backup has a control database, and `control` is {}; restore it elsewhere, then use kukuri-node copy",
            settings.control_place()
        );
    };
    let at = || file.display().to_string();
    let bytes = fs::read(&backup).with_context(|| backup.display().to_string())?;
    kukuri_files::write(&file, &bytes).with_context(at)
}

/// `backup.json`.
#[derive(Serialize, Deserialize)]
struct Manifest {
    made_by: String,
    made_at: Millis,
    events: u64,
    head: u64,
    /// Empty in backups of version 0.1.
    #[serde(default)]
    files: Vec<BackupFile>,
}

/// A file of a backup, to notice a copy that is incomplete or damaged.
#[derive(Serialize, Deserialize)]
struct BackupFile {
    /// Relative to the directory of the backup.
    path: PathBuf,
    bytes: u64,
    /// In hex.
    blake3: String,
}

impl BackupFile {
    fn of(dir: &Path, path: &Path) -> anyhow::Result<Self> {
        let mut hash = blake3::Hasher::new();
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let bytes = file.metadata()?.len();
        hash.update_reader(file).with_context(|| path.display().to_string())?;
        let path = path.strip_prefix(dir).unwrap_or(path).to_owned();
        Ok(Self { path, bytes, blake3: hash.finalize().to_string() })
    }
}

impl Manifest {
    fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(MANIFEST);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| format!("{}: not the manifest of a backup", path.display()))
    }

    /// Compares the files with the manifest.
    fn verify(&self, dir: &Path) -> anyhow::Result<()> {
        if self.files.is_empty() {
            eprintln!(
                "kukuri-node: {}: a backup of {} has no digests: whether its files are complete can't be checked",
                dir.display(),
                self.made_by
            );
        }
        for noted in &self.files {
            let path = dir.join(&noted.path);
            let length = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
            if length != noted.bytes {
                let expected = noted.bytes;
                bail!("{}: {length} bytes, the backup had {expected}; copy the backup again", path.display());
            }
            if BackupFile::of(dir, &path)?.blake3 != noted.blake3 {
                bail!("{}: its content has changed since the backup; copy the backup again", path.display());
            }
        }
        Ok(())
    }
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
    if let ControlPlace::Sqlite(file) = settings.control_place() {
        // SQLite would apply an old log to the restored file.
        if let Some(file) = with_logs(&file).into_iter().find(|file| file.exists()) {
            bail!("{}: there is a control database here already; move it away first", file.display());
        }
    }
    // A damaged or unreadable backup must fail before anything is written, and a truncated one before it is mapped.
    Manifest::read(from)?.verify(from)?;
    stores::lmdb_for_reading(&from.join(STORE), LmdbOptions::default())?;
    kukuri_files::create_directory(&settings.data, 0o700).with_context(|| settings.data.display().to_string())?;
    // The keys first: a node that starts on the store without its keys would create new ones.
    for (key_file, ours) in key::files(from).into_iter().zip(key::files(&settings.data)) {
        if key_file.exists() && !ours.exists() {
            copy_key(&key_file, &ours)?;
        }
    }
    restore_control(settings, from)?;
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
    let key = fs::read(from).with_context(|| from.display().to_string())?;
    kukuri_files::write(to, &key).with_context(|| to.display().to_string())
}
