//! Disk space for writes, with a reserve for requests.
//!
//! The data file is allocated ahead of LMDB's use, so that a full disk shows before a transaction begins and not in the
//! middle. The last part, the reserve, is only for deletion and vanish requests: they are accepted when nothing else
//! is.

use std::fs::File;

use kukuri_domain::Admitted;
use rustix::fs::FallocateFlags;

use crate::{
    error::Result,
    tables::{LmdbEnv, View},
};

/// The file grows in steps of this many bytes.
const GROWTH_STEP: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;
/// Index rows of an event, besides those of its tags.
const ROWS_PER_EVENT: usize = 8;

/// Estimate of the size of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteEstimate {
    pub(crate) events: usize,
    /// Of JSON.
    pub(crate) bytes: usize,
    tags: usize,
}

impl WriteEstimate {
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

    /// Estimate of the pages that LMDB writes besides those of the JSON. Rows share pages; rows of tags hardly do.
    fn index_pages(self) -> usize {
        (6 * self.events).max(2 * self.events + self.tags)
    }
}

/// Free space for the data file.
pub(crate) struct FreeSpace {
    file: File,
    allocated: u64,
    reserve: u64,
    map_size: u64,
    can_allocate: bool,
}

impl FreeSpace {
    pub(crate) fn new(env: &LmdbEnv, reserve: u64) -> Result<Self> {
        let file = env.try_clone_inner_file()?;
        let allocated = file.metadata()?.len();
        let map_size = env.info().map_size as u64;
        Ok(Self { file, allocated, reserve, map_size, can_allocate: true })
    }

    /// Whether a transaction fits without touching the reserve.
    pub(crate) fn fits(&mut self, view: View<'_>, load: WriteEstimate) -> Result<bool> {
        let needed = 2 * load.bytes as u64 + PAGE_BYTES * load.index_pages() as u64 + self.reserve;
        let top = view.tables.file_bytes();
        if top + needed <= self.map_size && self.allocate(top + needed) {
            return Ok(true);
        }
        // The file can't grow; free pages inside it can still be reused.
        let bound = self.map_size.min(self.allocated.max(top));
        Ok(view.bytes()? + needed <= bound)
    }

    /// Share of the reserve that a transaction with this many changed rows uses, because the estimate leaves out
    /// deleted rows. 1 is all of it.
    pub(crate) fn reserve_taken(&self, load: WriteEstimate, rows: usize) -> f64 {
        let deleted = rows.saturating_sub(ROWS_PER_EVENT * load.events + load.tags);
        (PAGE_BYTES * deleted as u64) as f64 / self.reserve as f64
    }

    /// Allocates the blocks of the file up to `end`. Returns whether they are available.
    fn allocate(&mut self, end: u64) -> bool {
        if !self.can_allocate || end <= self.allocated {
            return true;
        }
        let end = end.next_multiple_of(GROWTH_STEP).min(self.map_size);
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.allocated, end - self.allocated) {
            Ok(()) => {
                self.allocated = end;
                true
            }
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                tracing::warn!(
                    "the file system can't preallocate: no disk space is reserved for deletion and vanish events"
                );
                self.can_allocate = false;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "can't grow the data file; new events are refused until disk space is free");
                false
            }
        }
    }
}
