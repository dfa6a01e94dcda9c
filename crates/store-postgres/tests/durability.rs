//! Acknowledged means durable: after a kill of the node, and by what the server promises.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::sync::Arc;

use kukuri_store::{Store, conformance::crash::everything_acknowledged_survives_a_kill};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use support::{Database, block_on};

async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::connect(url, PostgresOptions::default()).await.unwrap())
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    // P-3, O-3. A child has its place by its environment.
    let is_child = std::env::var_os("KUKURI_CRASH_PLACE").is_some();
    let database = (!is_child).then(|| block_on(Database::new()));
    let url = database.as_ref().map(Database::url).unwrap_or_default();
    everything_acknowledged_survives_a_kill("what_was_acknowledged_survives_a_kill", &url, open);
}

#[test]
fn a_server_that_may_lose_what_it_acknowledged_is_refused() {
    block_on(async {
        let database = Database::new().await;
        let refused = PostgresStore::connect(&database.hasty_url(), PostgresOptions::default()).await.err().unwrap();
        assert!(refused.to_string().contains("synchronous_commit = off"), "{refused}");
    });
}
