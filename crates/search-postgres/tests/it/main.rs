//! The index on Postgres. One program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod own_runtime;
#[path = "../../../store-postgres/tests/support/mod.rs"]
mod support;

mod concurrent_writers;
mod suite;

use std::time::Duration;

use kukuri_search_postgres::PostgresIndexOptions;

/// Options whose timeouts no test reaches, though on a busy machine a thread or the server may stand still for seconds.
fn patient() -> PostgresIndexOptions {
    let timeout = Duration::from_secs(60);
    PostgresIndexOptions { acquire_timeout: timeout, query_timeout: timeout, ..PostgresIndexOptions::default() }
}
