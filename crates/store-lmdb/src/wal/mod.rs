//! Write-ahead log (WAL) and group commit.
//!
//! A batch is acknowledged after one append to the log and one sync. Its LMDB transaction stays open for more batches
//! and is committed once: after `LmdbOptions::group_commit_window`, when it is large, or when a reader or another write
//! needs the commit.
//!
//! - `log`: the file `wal.log`. `group_commit`: the open transaction and its batches. `uncommitted`: the pending
//!   records as readers see them.
//!
//! # Invariants
//!
//! 1. Acknowledged means durable: a batch is answered after its record is synced, or after its transaction is
//!    committed.
//! 2. A record names the LMDB transaction that its batch is written in. It counts only while that transaction is the
//!    next one to commit. A record of a committed transaction is ignored, so nothing is erased and the next transaction
//!    overwrites the file from its beginning.
//! 3. No other transaction commits while records are pending: it would take their number. `Writer::commit_pending` runs
//!    before every other write, and when a store is opened, before migrations. A failed commit is tried again first.
//! 4. Replay gives the same result. The log holds the events that changed something, in order, with the time at which
//!    they came and the clock of that moment. Replay decides on them again, from the same state and clock, so outbox
//!    rows keep their sequences and timestamps.
//! 5. Readers see acknowledged events (W-9). A reader whose answer depends on a pending record has the transaction
//!    committed first; outbox rows are read from memory.
//! 6. A batch is acknowledged from the log only if its transaction is sure to find disk space. A transaction that frees
//!    more pages than the reserve holds is committed before its batch is answered.
//! 7. A record that was not written to its end fails its digest. It was not acknowledged, and no record follows it. If an
//!    intact record of its transaction follows, an acknowledged record was damaged: opening the store fails, and
//!    `LmdbStore::salvage` replays the intact ones.
//! 8. `ahead.log` is the file's former name. It is read if `wal.log` has no record for the next transaction, and
//!    removed once that is committed.

mod group_commit;
pub(crate) mod log;
mod uncommitted;

pub(crate) use group_commit::IngestJob;
pub(crate) use log::{Log, LogRecord, Recovered, exists, keep_damaged, read, remove_files, remove_if_there};
pub(crate) use uncommitted::Uncommitted;
