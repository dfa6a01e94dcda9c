//! Acknowledged means durable: events survive a kill of the node, and the server's settings must guarantee commits.

use std::sync::Arc;

use kukuri_store::{StoreError, conformance::crash::everything_acknowledged_survives_a_kill, port::*};
use kukuri_store_postgres::PostgresStore;
use kukuri_testing::test_name;

use crate::{
    patient,
    support::{Database, block_on},
};

async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::connect(url, patient()).await.unwrap())
}

#[test]
fn acknowledged_events_survive_a_kill() {
    // P-3, O-3. A child process takes its store from the environment.
    let is_child = std::env::var_os("KUKURI_CRASH_PLACE").is_some();
    let database = (!is_child).then(|| block_on(Database::new()));
    let url = database.as_ref().map(Database::url).unwrap_or_default();
    everything_acknowledged_survives_a_kill(test_name!(acknowledged_events_survive_a_kill), &url, open);
}

#[test]
fn server_that_may_lose_acknowledged_commits_is_refused() {
    block_on(async {
        let database = Database::new().await;
        let refused = PostgresStore::connect(&database.hasty_url(), patient()).await.err().unwrap();
        assert!(matches!(refused, StoreError::NotDurable { setting: "synchronous_commit", .. }), "{refused}");
        assert!(refused.to_string().contains("synchronous_commit = off"), "{refused}");
    });
}
