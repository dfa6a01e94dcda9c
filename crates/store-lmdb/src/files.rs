//! Compacting and installing the data file, while no other process has the store open.

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use heed::{CompactionOption, EnvFlags};
use kukuri_store::StoreError;

use crate::{
    error::Result,
    open::{DATA_FILE, LmdbOptions, USERS_FILE, environment, lock, lock_file, recover, refuse_if_locked},
    wal,
};

const LMDB_LOCK_FILE: &str = "lock.mdb";
const PART_FILE: &str = "data.mdb.part";
/// Marks a data file that was put in place from a copy: its sequences begin another history when it is opened for writing (Y-5).
const RESTORED_FILE: &str = "restored";
/// The files hold private messages and deleted events.
const OWNER_ONLY: u32 = 0o600;

/// Exclusive access to a store's directory: no process reads or writes there while this is held.
struct Alone<'p> {
    path: &'p Path,
    _locks: (File, File),
}

impl<'p> Alone<'p> {
    fn new(path: &'p Path) -> Result<Self> {
        kukuri_files::create_directory(path, 0o700)?;
        let writer = lock(path)?;
        let users = lock_file(path, USERS_FILE)?;
        refuse_if_locked(users.try_lock(), StoreError::InUse(path.to_owned()))?;
        Ok(Self { path, _locks: (writer, users) })
    }

    /// Path of a temporary file beside the data file, to be filled and renamed.
    fn part(&self) -> Result<PathBuf> {
        let part = self.path.join(PART_FILE);
        wal::remove_if_there(&part)?;
        Ok(part)
    }

    /// Removes LMDB's lock file first: it names the newest transaction of the old data file, whose pages the new file
    /// does not have.
    fn put_in_place(&self, part: &Path) -> Result<()> {
        wal::remove_if_there(&self.path.join(LMDB_LOCK_FILE))?;
        wal::remove_files(self.path)?;
        kukuri_files::sync(part)?;
        fs::rename(part, self.path.join(DATA_FILE))?;
        Ok(kukuri_files::sync(self.path)?)
    }
}

/// Rewrites the data file without its free pages. Returns its bytes before and after.
pub(crate) fn compact(path: &Path, options: &LmdbOptions) -> Result<(u64, u64)> {
    recover(path, options)?;
    let alone = Alone::new(path)?;
    let part = alone.part()?;
    let before = fs::metadata(path.join(DATA_FILE))?;
    let env = environment(path, options, EnvFlags::READ_ONLY | EnvFlags::NO_LOCK)?;
    env.copy_to_path(&part, CompactionOption::Enabled)?;
    env.prepare_for_closing().wait();
    fs::set_permissions(&part, fs::Permissions::from_mode(before.mode() & 0o777))?;
    // If another user runs the compaction, the file keeps its owner.
    let after = fs::metadata(&part)?;
    if (after.uid(), after.gid()) != (before.uid(), before.gid()) {
        chown(&part, Some(before.uid()), Some(before.gid()))?;
    }
    alone.put_in_place(&part)?;
    Ok((before.len(), after.len()))
}

/// Creates a store from a copy of a data file, in a directory that has none.
pub(crate) fn install(path: &Path, from: &Path) -> Result<()> {
    let alone = Alone::new(path)?;
    if path.join(DATA_FILE).exists() {
        return Err(StoreError::NotEmpty.into());
    }
    let part = alone.part()?;
    fs::copy(from, &part)?;
    fs::set_permissions(&part, fs::Permissions::from_mode(OWNER_ONLY))?;
    kukuri_files::write(&path.join(RESTORED_FILE), b"")?;
    alone.put_in_place(&part)
}

/// Tells `begin` whether the store was restored, and removes the mark after it. A crash in between begins another history twice.
pub(crate) fn end_restoring(path: &Path, begin: impl FnOnce(bool) -> Result<()>) -> Result<()> {
    let mark = path.join(RESTORED_FILE);
    let is_restored = mark.exists();
    begin(is_restored)?;
    if is_restored {
        wal::remove_if_there(&mark)?;
        kukuri_files::sync(path)?;
    }
    Ok(())
}
