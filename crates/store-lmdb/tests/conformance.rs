//! The conformance suite of all stores, on LMDB.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use kukuri_store::{Archive, StoreRules, conformance::Harness, port::*};
use kukuri_store_lmdb::{Durability, LmdbOptions, LmdbStore};

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
    // The suite creates thousands of short-lived stores: they need neither durability nor a large reserve.
    let options = LmdbOptions {
        durability: Durability::Unsynced,
        reserve: 1 << 20,
        map_size: 1 << 30,
        rules,
        ..LmdbOptions::default()
    };
    Arc::new(LmdbStore::open(place.path(), options).unwrap())
}

kukuri_store::conformance_suite!(LmdbHarness);
