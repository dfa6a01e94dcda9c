//! The suite of all stores, on LMDB.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use kukuri_store::{Archive, Store, StoreRules, conformance::Harness};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore, Sync};

struct LmdbHarness;

#[async_trait]
impl Harness for LmdbHarness {
    type Place = tempfile::TempDir;

    async fn place(&self) -> Self::Place {
        tempfile::tempdir().unwrap()
    }

    async fn open(&self, place: &Self::Place, rules: StoreRules) -> Arc<dyn Store> {
        open(place, rules)
    }

    async fn open_archive(&self, place: &Self::Place, rules: StoreRules) -> Option<Arc<dyn Archive>> {
        Some(open(place, rules))
    }

    fn regressions(&self) -> PathBuf {
        concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions").into()
    }
}

fn open(place: &tempfile::TempDir, rules: StoreRules) -> Arc<LmdbStore> {
    // Thousands of stores are made and thrown away here: they need not be durable, nor keep much room.
    let options = LmdbOptions { sync: Sync::Off, reserve: 1 << 20, map_size: 1 << 30, rules, ..LmdbOptions::default() };
    Arc::new(LmdbStore::open(place.path(), options).unwrap())
}

kukuri_store::conformance_suite!(LmdbHarness);
