//! Opening a store: who may write, whether the files are ours, and which format they have.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    time::Duration,
};

use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions, WithoutTls, types::Bytes};
use kukuri_store::{StoreError, StoreRules};

use crate::{
    ahead::{self, Ahead},
    error::{Failure, Result, engine},
    format::{self, FORMAT, MIGRATIONS},
    tables::{LmdbEnv, Table, Tables},
    writer::Writer,
};

pub(crate) const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "writer.lock";
/// Held, shared, by whoever has the files open; alone, by whoever puts others in their place.
pub(crate) const USERS_FILE: &str = "users.lock";
const READERS: u32 = 1_024;
/// How often, and how long apart, files are looked at that may have been exchanged: longer than a commit takes.
const LOOKS: u32 = 30;
/// How often for a commit, which may wait for a busy disk.
const LOOKS_FOR_COMMIT: u32 = 150;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How to open a store.
#[derive(Clone, Debug)]
pub struct LmdbOptions {
    /// The largest the data file may grow: address space only. Rounded to whole pages.
    pub map_size: usize,
    /// Room kept back for deletion and vanish requests when there is no other.
    pub reserve: usize,
    /// For how long a transaction stays open, so that more events share it. They are durable before. Zero: each batch has
    /// its own.
    pub gather: Duration,
    /// Whether a commit waits for the disk. Only tests that don't look at durability turn it off.
    pub sync: Sync,
    /// How events are treated.
    pub rules: StoreRules,
}

/// Whether what is acknowledged is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// It is.
    #[default]
    Durable,
    /// It may be lost with the machine, and the whole store with it.
    Off,
}

impl Default for LmdbOptions {
    fn default() -> Self {
        Self {
            map_size: 1 << 40,
            reserve: 32 << 20,
            gather: Duration::from_millis(250),
            sync: Sync::Durable,
            rules: StoreRules::default(),
        }
    }
}

/// An open environment with its tables.
pub(crate) struct Opened {
    pub(crate) env: LmdbEnv,
    pub(crate) tables: Tables,
    /// Held for as long as the environment is open.
    pub(crate) in_use: Option<File>,
}

/// Opens a store for writing, making it if there is none.
pub(crate) fn writable(path: &Path, options: LmdbOptions) -> Result<(Opened, Writer)> {
    fs::create_dir_all(path).map_err(io)?;
    let lock = lock(path)?;
    let in_use = use_files(path)?;
    if holds_something(path)? {
        inspect(path, &options)?;
    }
    let flags = match options.sync {
        Sync::Durable => EnvFlags::empty(),
        Sync::Off => EnvFlags::NO_SYNC,
    };
    let env = environment(path, &options, flags)?;
    refuse_exchanged_files(path, &env)?;
    env.clear_stale_readers().map_err(engine)?;
    // Before anything is committed: another transaction would be in the place of the one they belong to.
    let pending = ahead::read(path, next_transaction(&env)).map_err(io)?;
    if !pending.is_empty() && check_format(path, &env)? != Some(FORMAT) {
        return Err(foreign(path, "it was left in a crash; open it once with the version that wrote it").into());
    }
    let tables = Tables::create(&env, format::initialize)?;
    format::migrate(&env, &tables, MIGRATIONS)?;
    refuse_half_a_copy(path, &env, &tables)?;
    let ahead = Ahead::new(path, options.sync);
    let writer = Writer::new(env.clone(), tables, options, lock, ahead, pending)?;
    Ok((Opened { env, tables, in_use }, writer))
}

/// The number that the next transaction that writes will have.
fn next_transaction(env: &LmdbEnv) -> u64 {
    env.info().last_txn_id as u64 + 1
}

/// What a crash has left uncommitted is committed. Nobody may have the store open.
pub(crate) fn recover(path: &Path, options: &LmdbOptions) -> Result<()> {
    if path.join(ahead::FILE).exists() {
        let (_, writer) = writable(path, options.clone())?;
        writer.close();
    }
    Ok(())
}

/// Waits for a writer to commit what it has acknowledged, or does it for one that has crashed.
fn settle(path: &Path, options: &LmdbOptions, env: LmdbEnv) -> Result<LmdbEnv> {
    // What a reader sees, which may be a moment behind what the file says.
    let next = || env.read_txn().map(|txn| txn.id() as u64 + 1).map_err(engine);
    let first = next()?;
    for _ in 0..LOOKS_FOR_COMMIT {
        // Whatever was acknowledged before this began is committed then.
        if next()? > first || ahead::read(path, first).map_err(io)?.is_empty() {
            return Ok(env);
        }
        let Ok(lock) = lock(path) else {
            std::thread::sleep(BETWEEN_LOOKS);
            continue;
        };
        drop(lock);
        env.prepare_for_closing().wait();
        recover(path, options)?;
        return environment(path, options, EnvFlags::READ_ONLY);
    }
    // Without them a backup would not be whole.
    let reason = "the node that writes here has not committed its last events for fifteen seconds; its log may say why";
    Err(StoreError::NotOpened { path: path.to_owned(), reason: reason.to_owned() }.into())
}

/// Opens a store for reading, beside a writer or without one.
pub(crate) fn readable(path: &Path, options: &LmdbOptions) -> Result<Opened> {
    if !holds_something(path)? {
        return Err(foreign(path, "there is no store here").into());
    }
    let in_use = use_files(path)?;
    let env = environment(path, options, EnvFlags::READ_ONLY)?;
    refuse_exchanged_files(path, &env)?;
    let env = settle(path, options, env)?;
    let found = check_format(path, &env)?;
    if found != Some(FORMAT) {
        return Err(foreign(path, "an older format; open it for writing once to bring it up to date").into());
    }
    let tables = Tables::open(&env)?.ok_or_else(|| foreign(path, "tables are missing"))?;
    refuse_half_a_copy(path, &env, &tables)?;
    Ok(Opened { env, tables, in_use })
}

fn refuse_half_a_copy(path: &Path, env: &LmdbEnv, tables: &Tables) -> Result<()> {
    let txn = env.read_txn().map_err(engine)?;
    if format::is_loading(tables, &txn)? {
        return Err(StoreError::Unfinished { path: path.to_owned() }.into());
    }
    Ok(())
}

/// Says that the files are in use. `None` where nothing can be written: nobody can exchange them there either.
fn use_files(path: &Path) -> Result<Option<File>> {
    let opened = File::options().create(true).truncate(false).write(true).open(path.join(USERS_FILE));
    let Ok(file) = opened else { return Ok(None) };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }.into()),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

/// Files that were exchanged by hand while somebody had them open look like an older state, or like nothing at all. So do,
/// for a moment, those of a writer that is just committing: the file says so before the table of readers does.
fn refuse_exchanged_files(path: &Path, env: &LmdbEnv) -> Result<()> {
    for _ in 0..LOOKS {
        // One is what the file says, the other what the table of readers says.
        let before = env.info().last_txn_id;
        let txn = env.read_txn().map_err(engine)?;
        if (before..=env.info().last_txn_id).contains(&txn.id()) {
            return Ok(());
        }
        drop(txn);
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(foreign(path, "its data file was exchanged while another program had it open; close that first").into())
}

pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path.join(LOCK_FILE)).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }.into()),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

fn holds_something(path: &Path) -> Result<bool> {
    match fs::metadata(path.join(DATA_FILE)) {
        Ok(metadata) => Ok(metadata.len() > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io(error)),
    }
}

/// Looks at the files without changing a byte of them. Whoever calls this holds the writer's lock.
fn inspect(path: &Path, options: &LmdbOptions) -> Result<()> {
    let env = environment(path, options, EnvFlags::READ_ONLY | EnvFlags::NO_LOCK)?;
    let checked = check_format(path, &env);
    env.prepare_for_closing().wait();
    checked.map(drop)
}

/// The format of the files; none if they were made and never filled.
fn check_format(path: &Path, env: &LmdbEnv) -> Result<Option<u32>> {
    let txn = env.read_txn().map_err(engine)?;
    let is_empty = env.unnamed_database_stat().entries == 0;
    let found = env.open_databases_and_commit(txn, |opener, txn| {
        let meta = opener.open_database::<Bytes, Bytes>(txn, Some(Table::Meta.name())).map_err(engine)?;
        let format = meta.map(|meta| format::read(txn, meta)).transpose()?;
        Ok::<_, Failure>(CommitOrAbort::<(), _>::Abort(format.flatten()))
    })?;
    match found {
        CommitOrAbort::Abort(Some(found)) if found > FORMAT => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported: FORMAT }.into())
        }
        CommitOrAbort::Abort(found @ Some(_)) => Ok(found),
        // Made, and not yet filled when the program ended.
        _ if is_empty => Ok(None),
        _ => Err(foreign(path, "an LMDB file of another program").into()),
    }
}

pub(crate) fn environment(path: &Path, options: &LmdbOptions, flags: EnvFlags) -> Result<LmdbEnv> {
    let mut builder: EnvOpenOptions<WithoutTls> = EnvOpenOptions::new().read_txn_without_tls();
    builder.map_size(options.map_size.next_multiple_of(4096)).max_readers(READERS).max_dbs(Table::ALL.len() as u32);
    // SAFETY: the files are ours alone (`writer.lock` for writers, LMDB's own lock file for readers), they are on a
    // local disk, and nothing else maps or changes them. NO_LOCK is used only while the writer's lock is held.
    #[allow(unsafe_code)]
    let opened = unsafe { builder.flags(flags).open(path) };
    opened.map_err(|error| match error {
        heed::Error::Mdb(heed::MdbError::Invalid | heed::MdbError::VersionMismatch | heed::MdbError::Corrupted) => {
            foreign(path, "not an LMDB file").into()
        }
        other => engine(other),
    })
}

fn foreign(path: &Path, found: &str) -> StoreError {
    StoreError::Foreign { path: path.to_owned(), found: found.to_owned() }
}

pub(crate) fn io(error: std::io::Error) -> Failure {
    engine(heed::Error::Io(error))
}
