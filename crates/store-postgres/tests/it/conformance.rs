//! The conformance suite of all stores, on Postgres.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use kukuri_store::{Archive, StoreRules, conformance::Harness, port::*};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{patient, support::Database};

struct PostgresHarness;

#[async_trait]
impl Harness for PostgresHarness {
    type Place = Database;

    async fn place(&self) -> Self::Place {
        Database::new().await
    }

    async fn open(&self, place: &Self::Place, rules: StoreRules) -> Arc<dyn Store> {
        open(place, rules).await
    }

    async fn open_archive(&self, place: &Self::Place, rules: StoreRules) -> Option<Arc<dyn Archive>> {
        Some(open(place, rules).await)
    }

    fn regressions(&self) -> PathBuf {
        concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions").into()
    }

    fn cases(&self) -> u32 {
        // Few, because each step takes 1 to 20 round trips. `cargo xtask test --long` tries more.
        60
    }
}

async fn open(place: &Database, rules: StoreRules) -> Arc<PostgresStore> {
    let options = PostgresOptions { rules, readers: 2, may_lose: true, ..patient() };
    Arc::new(PostgresStore::connect(&place.hasty_url(), options).await.unwrap())
}

kukuri_store::conformance_suite!(PostgresHarness);
