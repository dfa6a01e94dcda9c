//! The store on Postgres. One test program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod archive;
mod budgets;
mod conformance;
mod connecting;
mod durability;
mod epoch;
mod months;
mod opening;
mod restart;
mod round_trips;
mod statements;
mod writers;

use std::time::Duration;

use kukuri_store_postgres::PostgresOptions;

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
