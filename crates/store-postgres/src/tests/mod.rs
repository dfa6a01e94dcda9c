//! Tests that use the internals of this crate.

mod cancelled_queries;
mod faults;
mod plans;
mod session_pools;
mod state_lookup;
mod statement_rows;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use crate::PostgresOptions;

/// Options whose timeouts no test reaches, though on a busy machine a thread or the server may stand still for seconds.
fn patient() -> PostgresOptions {
    let timeout = Duration::from_secs(60);
    PostgresOptions {
        acquire_timeout: timeout,
        query_timeout: timeout,
        writer_idle_timeout: timeout,
        ..PostgresOptions::default()
    }
}
