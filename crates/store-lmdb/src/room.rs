//! Room to write in, and a part of it kept back for requests.
//!
//! The data file is allocated ahead of what LMDB uses, so that a full disk shows before a transaction is begun and
//! not in its middle. The last part, the reserve, is only for deletion and vanish requests: they are taken when
//! nothing else is.

use std::fs::File;

use heed::RoTxn;
use rustix::fs::FallocateFlags;

use crate::{
    error::{Result, engine},
    tables::{LmdbEnv, Tables, used_bytes},
};

/// The file grows in steps of this size.
const STEP: u64 = 8 << 20;
/// A guess at what an event makes LMDB write besides its JSON: the pages of its index rows, many of them shared.
const INDEX_BYTES_PER_EVENT: u64 = 6 * 4096;

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

    /// Whether events of this many bytes of JSON fit without touching the reserve.
    pub(crate) fn fits(
        &mut self,
        env: &LmdbEnv,
        tables: &Tables,
        txn: &RoTxn<'_>,
        events: usize,
        bytes: usize,
    ) -> Result<bool> {
        let needed = 2 * bytes as u64 + INDEX_BYTES_PER_EVENT * events as u64 + self.reserve;
        let top = used_bytes(env);
        if top + needed <= self.map_size && self.allocate(top + needed) {
            return Ok(true);
        }
        // The file can't grow; pages that were freed inside it can still be used again.
        let bound = self.map_size.min(self.allocated.max(top));
        let used = tables.bytes(txn)?;
        Ok(used + needed <= bound)
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
