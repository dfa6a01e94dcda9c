//! Room to write in, and a part of it kept back for requests.
//!
//! The data file is allocated ahead of what LMDB uses, so that a full disk shows before a transaction is begun and
//! not in its middle. The last part, the reserve, is only for deletion and vanish requests: they are taken when
//! nothing else is.

use std::fs::File;

use heed::RoTxn;
use kukuri_domain::Admitted;
use rustix::fs::FallocateFlags;

use crate::{
    error::{Result, engine},
    tables::{LmdbEnv, Tables, used_bytes},
};

/// The file grows in steps of this size.
const STEP: u64 = 8 << 20;
const PAGE: u64 = 4096;
/// Rows that an event is found by, besides those of its tags.
const ROWS_PER_EVENT: usize = 8;

/// What is asked of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) events: usize,
    /// Of JSON.
    pub(crate) bytes: usize,
    tags: usize,
}

impl Load {
    pub(crate) fn of(events: &[Admitted]) -> Self {
        Self {
            events: events.len(),
            bytes: events.iter().map(|event| event.json().len()).sum(),
            tags: events.iter().map(|event| event.event().tags.len()).sum(),
        }
    }

    pub(crate) fn with(self, more: Self) -> Self {
        Self { events: self.events + more.events, bytes: self.bytes + more.bytes, tags: self.tags + more.tags }
    }

    /// A guess at the pages that LMDB writes for it besides those of the JSON. Rows share pages, those of tags hardly.
    fn index_pages(self) -> usize {
        (6 * self.events).max(2 * self.events + self.tags)
    }

    /// How many of so many rows go beyond what it is to put: those it takes away.
    fn more_rows(self, rows: usize) -> usize {
        rows.saturating_sub(ROWS_PER_EVENT * self.events + self.tags)
    }
}

/// What is left to write in.
pub(crate) struct Room {
    file: File,
    allocated: u64,
    reserve: u64,
    map_size: u64,
    can_allocate: bool,
}

impl Room {
    pub(crate) fn new(env: &LmdbEnv, reserve: u64) -> Result<Self> {
        let file = env.try_clone_inner_file().map_err(engine)?;
        let allocated = file.metadata().map_err(|error| engine(error.into()))?.len();
        let map_size = env.info().map_size as u64;
        Ok(Self { file, allocated, reserve, map_size, can_allocate: true })
    }

    /// Whether this fits without touching the reserve.
    pub(crate) fn fits(&mut self, env: &LmdbEnv, tables: &Tables, txn: &RoTxn<'_>, load: Load) -> Result<bool> {
        let needed = 2 * load.bytes as u64 + PAGE * load.index_pages() as u64 + self.reserve;
        let top = used_bytes(env);
        if top + needed <= self.map_size && self.allocate(top + needed) {
            return Ok(true);
        }
        // The file can't grow; pages that were freed inside it can still be used again.
        let bound = self.map_size.min(self.allocated.max(top));
        let used = tables.bytes(txn)?;
        Ok(used + needed <= bound)
    }

    /// How much of the reserve a transaction takes that has changed so many rows: what it takes away was not reckoned
    /// with. 1 is all of it.
    pub(crate) fn reserve_taken(&self, load: Load, rows: usize) -> f64 {
        (PAGE * load.more_rows(rows) as u64) as f64 / self.reserve as f64
    }

    /// Makes sure that the file has blocks up to `end`.
    fn allocate(&mut self, end: u64) -> bool {
        if !self.can_allocate || end <= self.allocated {
            return true;
        }
        let end = end.next_multiple_of(STEP).min(self.map_size);
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.allocated, end - self.allocated) {
            Ok(()) => {
                self.allocated = end;
                true
            }
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                tracing::warn!("this file system can't allocate ahead: no room is kept back for requests");
                self.can_allocate = false;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the data file can't grow");
                false
            }
        }
    }
}
