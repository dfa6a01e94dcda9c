//! Opening a store: the writer's lock, the check that the files belong to a store, and their format.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    time::Duration,
};

use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions, WithoutTls, types::Bytes};
use kukuri_store::{StoreError, StoreRules};

use crate::{
    error::{Failure, Result},
    format::{self, FORMAT, MIGRATIONS},
    tables::{LmdbEnv, Table, Tables},
    wal::{self, Log, LogRecord, Recovered},
    writer::Writer,
};

pub(crate) const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "writer.lock";
/// Processes that have the files open hold it shared; a process that replaces the files holds it exclusively.
pub(crate) const USERS_FILE: &str = "users.lock";
const MAX_READERS: u32 = 1_024;
/// Polls before files count as replaced by hand: together longer than a commit takes.
const MAX_FILE_POLLS: u32 = 30;
/// Polls while waiting for a commit, which may wait for a busy disk.
const MAX_COMMIT_POLLS: u32 = 150;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Options of a store.
#[derive(Clone, Debug)]
pub struct LmdbOptions {
    /// Maximum size of the data file in bytes: address space only. Rounded to whole pages.
    pub map_size: usize,
    /// Bytes of disk space reserved for deletion and vanish requests.
    pub reserve: usize,
    /// How long a transaction stays open for more batches, which are durable before its commit (see `wal`). Zero: each
    /// batch has its own transaction, and nothing goes to the write-ahead log.
    pub group_commit_window: Duration,
    /// Whether a commit waits for the disk.
    pub durability: Durability,
    /// Rules for ingest.
    pub rules: StoreRules,
}

/// Whether acknowledged writes are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Every acknowledged write is synced.
    #[default]
    Synced,
    /// A crash of the machine may lose acknowledged writes, and the whole store with them. For tests.
    Unsynced,
}

impl Default for LmdbOptions {
    fn default() -> Self {
        Self {
            map_size: 1 << 40,
            reserve: 32 << 20,
            group_commit_window: Duration::from_millis(250),
            durability: Durability::Synced,
            rules: StoreRules::default(),
        }
    }
}

/// Shared lock on [`USERS_FILE`], held while the environment is open. `None` in a read-only directory: no process can
/// replace the files there.
pub(crate) type InUse = Option<File>;

/// Opens a store for writing; creates it if there is none.
pub(crate) fn writable(path: &Path, options: LmdbOptions) -> Result<(Writer, InUse)> {
    writable_with(path, options, |recovered| recovered.undamaged(path))
}

/// Replays the intact records of a damaged log. Returns how many events they hold.
pub(crate) fn salvage(path: &Path, options: LmdbOptions) -> Result<usize> {
    let mut events = 0;
    let intact = |recovered: Recovered| {
        if !recovered.behind_damage.is_empty() {
            wal::keep_damaged(path)?;
        }
        let records = recovered.intact();
        events = records.iter().map(|record| record.events.len()).sum();
        Ok(records)
    };
    let (writer, _in_use) = writable_with(path, options, intact)?;
    writer.close();
    Ok(events)
}

/// `select` chooses the records of the write-ahead log that are replayed.
fn writable_with(
    path: &Path,
    options: LmdbOptions,
    select: impl FnOnce(Recovered) -> Result<Vec<LogRecord>>,
) -> Result<(Writer, InUse)> {
    kukuri_files::create_directory(path, 0o700)?;
    let lock = lock(path)?;
    let in_use = use_files(path)?;
    if holds_something(path)? {
        inspect(path, &options)?;
    }
    let flags = match options.durability {
        Durability::Synced => EnvFlags::empty(),
        Durability::Unsynced => EnvFlags::NO_SYNC,
    };
    let env = environment(path, &options, flags)?;
    refuse_exchanged_files(path, &env)?;
    env.clear_stale_readers()?;
    // Read before any commit: another transaction would take the number of the one that the records belong to.
    let pending = select(wal::read(path, env.info().last_txn_id as u64 + 1)?)?;
    if !pending.is_empty() && check_format(path, &env)? != Some(FORMAT) {
        return Err(foreign(path, "it was left in a crash; open it once with the version that wrote it").into());
    }
    let tables = Tables::create(env, format::initialize)?;
    format::migrate(&tables, MIGRATIONS)?;
    refuse_half_a_copy(path, &tables)?;
    let wal = Log::new(path, options.durability);
    Ok((Writer::new(tables, options, lock, wal, pending)?, in_use))
}

/// Commits the records that a crash left pending. No process may have the store open.
pub(crate) fn recover(path: &Path, options: &LmdbOptions) -> Result<()> {
    if wal::exists(path) {
        let (writer, _in_use) = writable(path, options.clone())?;
        writer.close();
    }
    Ok(())
}

/// Waits until the writer commits its pending records, or commits those of a crashed writer.
fn await_commit(path: &Path, options: &LmdbOptions, env: LmdbEnv) -> Result<LmdbEnv> {
    // The reader table's view, which may lag behind the data file for a moment.
    let next = || env.read_txn().map(|txn| txn.id() as u64 + 1);
    let first = next()?;
    for _ in 0..MAX_COMMIT_POLLS {
        // Every record acknowledged before this call is committed by then.
        if next()? > first || wal::read(path, first)?.is_empty() {
            return Ok(env);
        }
        let Ok(lock) = lock(path) else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        drop(lock);
        env.prepare_for_closing().wait();
        recover(path, options)?;
        return environment(path, options, EnvFlags::READ_ONLY);
    }
    // Without these records a backup would be incomplete.
    let reason = "the node that writes here has not committed its last events for fifteen seconds; its log may say why";
    Err(StoreError::NotOpened { path: path.to_owned(), reason: reason.to_owned() }.into())
}

/// Opens a store for reading, with or without a running writer.
pub(crate) fn readable(path: &Path, options: &LmdbOptions) -> Result<(Tables, InUse)> {
    if !holds_something(path)? {
        return Err(foreign(path, "there is no store here").into());
    }
    let in_use = use_files(path)?;
    let env = environment(path, options, EnvFlags::READ_ONLY)?;
    refuse_exchanged_files(path, &env)?;
    let env = await_commit(path, options, env)?;
    if check_format(path, &env)? != Some(FORMAT) {
        return Err(foreign(path, "an older format; open it for writing once to bring it up to date").into());
    }
    let tables = Tables::open(env, || foreign(path, "tables are missing"))?;
    refuse_half_a_copy(path, &tables)?;
    Ok((tables, in_use))
}

fn refuse_half_a_copy(path: &Path, tables: &Tables) -> Result<()> {
    if tables.read(format::is_loading)? {
        return Err(StoreError::Unfinished(path.to_owned()).into());
    }
    Ok(())
}

fn use_files(path: &Path) -> Result<InUse> {
    let Ok(file) = lock_file(path, USERS_FILE) else { return Ok(None) };
    refuse_if_locked(file.try_lock_shared(), StoreError::Locked(path.to_owned()))?;
    Ok(Some(file))
}

/// Takes the writer's lock.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = lock_file(path, LOCK_FILE)?;
    refuse_if_locked(file.try_lock(), StoreError::Locked(path.to_owned()))?;
    Ok(file)
}

pub(crate) fn lock_file(path: &Path, name: &str) -> std::io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path.join(name))
}

pub(crate) fn refuse_if_locked(locked: Result<(), TryLockError>, refusal: StoreError) -> Result<()> {
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => refusal.into(),
        TryLockError::Error(error) => error.into(),
    })
}

/// Refuses files that were replaced by hand while a process had them open: they look older, or empty. So does, for a
/// moment, a store whose writer is just committing: the data file shows a commit before the reader table does.
fn refuse_exchanged_files(path: &Path, env: &LmdbEnv) -> Result<()> {
    for _ in 0..MAX_FILE_POLLS {
        // `last_txn_id` comes from the data file, `txn.id()` from the reader table.
        let before = env.info().last_txn_id;
        let txn = env.read_txn()?;
        if (before..=env.info().last_txn_id).contains(&txn.id()) {
            return Ok(());
        }
        drop(txn);
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(foreign(path, "its data file was exchanged while another program had it open; close that first").into())
}

fn holds_something(path: &Path) -> Result<bool> {
    match fs::metadata(path.join(DATA_FILE)) {
        Ok(metadata) => Ok(metadata.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Checks the files without changing a byte. The caller holds the writer's lock.
fn inspect(path: &Path, options: &LmdbOptions) -> Result<()> {
    let env = environment(path, options, EnvFlags::READ_ONLY | EnvFlags::NO_LOCK)?;
    let checked = check_format(path, &env);
    env.prepare_for_closing().wait();
    checked.map(drop)
}

/// Format of the files; `None` if they were created and never filled.
fn check_format(path: &Path, env: &LmdbEnv) -> Result<Option<u32>> {
    let txn = env.read_txn()?;
    let is_empty = env.unnamed_database_stat().entries == 0;
    let found = env.open_databases_and_commit(txn, |opener, txn| {
        let meta = opener.open_database::<Bytes, Bytes>(txn, Some(Table::Meta.name()))?;
        let format = meta.map(|meta| format::read(txn, meta)).transpose()?;
        Ok::<_, Failure>(CommitOrAbort::<(), _>::Abort(format.flatten()))
    })?;
    match found {
        CommitOrAbort::Abort(Some(found)) if found > FORMAT => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported: FORMAT }.into())
        }
        CommitOrAbort::Abort(found @ Some(_)) => Ok(found),
        // The program ended after it created the files and before it filled them.
        _ if is_empty => Ok(None),
        _ => Err(foreign(path, "an LMDB file of another program").into()),
    }
}

pub(crate) fn environment(path: &Path, options: &LmdbOptions, flags: EnvFlags) -> Result<LmdbEnv> {
    let mut builder: EnvOpenOptions<WithoutTls> = EnvOpenOptions::new().read_txn_without_tls();
    builder.map_size(options.map_size.next_multiple_of(4096)).max_readers(MAX_READERS).max_dbs(Table::ALL.len() as u32);
    // SAFETY: only this store uses the files (`writer.lock` for writers, LMDB's own lock file for readers), they are on
    // a local disk, and nothing else maps or changes them. NO_LOCK is used only while the writer's lock is held.
    #[allow(unsafe_code)]
    let opened = unsafe { builder.flags(flags).open(path) };
    opened.map_err(|error| match error {
        heed::Error::Mdb(heed::MdbError::Invalid | heed::MdbError::VersionMismatch | heed::MdbError::Corrupted) => {
            foreign(path, "not an LMDB file").into()
        }
        other => other.into(),
    })
}

fn foreign(path: &Path, found: &str) -> StoreError {
    StoreError::Foreign { path: path.to_owned(), found: found.to_owned() }
}
