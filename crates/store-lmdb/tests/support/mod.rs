//! Helpers of this crate's tests.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::{collections::BTreeMap, fs, path::Path};

use kukuri_store_lmdb::{Durability, LmdbOptions};

pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test)
}

/// A small store without syncs, for tests that depend on neither size nor durability.
pub(crate) fn quick() -> LmdbOptions {
    LmdbOptions { durability: Durability::Unsynced, reserve: 1 << 20, map_size: 1 << 30, ..LmdbOptions::default() }
}

/// The files of a directory except lock files.
pub(crate) fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
    files.filter(|(name, _)| !name.contains("lock")).collect()
}
