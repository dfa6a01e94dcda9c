//! What must hold for any bytes on disk, and for any query (a feature, for fuzz targets and the replay of their corpus).
#![allow(clippy::expect_used, reason = "a property panics where it does not hold")]

pub mod queries;
pub mod record;
pub mod wal;

use tempfile::TempDir;

use crate::{Durability, LmdbOptions};

/// A small store without syncs.
fn small() -> LmdbOptions {
    LmdbOptions { durability: Durability::Unsynced, reserve: 1 << 16, map_size: 1 << 26, ..LmdbOptions::default() }
}

/// In memory where the system has such a directory: thousands of stores are made.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[cfg(test)]
mod tests {
    use kukuri_testing::corpus::{replay, seed};

    #[test]
    fn kept_inputs_keep_the_rules() {
        for (name, bytes) in super::record::examples() {
            seed("lmdb_record", name, &bytes);
        }
        replay("lmdb_record", super::record::check);
        for (name, bytes) in super::wal::examples() {
            seed("wal", name, &bytes);
        }
        replay("wal", super::wal::check);
        replay("queries", super::queries::check);
    }
}
