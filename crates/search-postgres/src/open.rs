//! Sessions: who searches and who writes.

use std::time::Duration;

use kukuri_postgres::{Migrations, Server};
use sqlx::{Connection, PgPool, postgres::PgPoolOptions};

use crate::error::Result;

/// Processes that start together wait for each other at this lock.
const MIGRATIONS: Migrations = Migrations {
    schema: "cn_search",
    lock: 7_742_364_215,
    steps: &[("schema", include_str!("../migrations/0001_schema.sql"))],
};

/// How an index on Postgres is opened.
#[derive(Clone, Debug)]
pub struct PostgresIndexOptions {
    /// The most sessions that search at a time. One more writes.
    pub readers: u32,
    /// How long a session is waited for, also the first.
    pub acquire_timeout: Duration,
    /// How long a search may take.
    pub query_timeout: Duration,
    /// Whether tables are made or brought up to date first.
    pub migrate: bool,
}

impl Default for PostgresIndexOptions {
    fn default() -> Self {
        Self {
            readers: 4,
            acquire_timeout: Duration::from_secs(5),
            query_timeout: Duration::from_secs(10),
            migrate: true,
        }
    }
}

/// The sessions of an index.
pub(crate) struct Sessions {
    pub(crate) readers: PgPool,
    pub(crate) writer: PgPool,
    /// What the database is called in messages.
    pub(crate) name: String,
}

/// What sessions are told that search. How common the words are decides on the plan, so each search is planned.
const READING: [(&str, &str); 6] = [
    ("client_connection_check_interval", "500ms"),
    ("default_transaction_read_only", "on"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("plan_cache_mode", "force_custom_plan"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
];

/// What sessions are told that write. One that is frozen gives its row back soon.
const WRITING: [(&str, &str); 5] = [
    ("idle_in_transaction_session_timeout", "5s"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "10s"),
    ("client_min_messages", "warning"),
    ("jit", "off"),
];

pub(crate) async fn connect(url: &str, options: &PostgresIndexOptions) -> Result<Sessions> {
    let server = Server::parse(url)?;
    let mut first = server.connect(options.acquire_timeout).await?;
    MIGRATIONS.prepare(&server, &mut first, options.migrate).await?;
    first.close().await?;

    let acquire = options.acquire_timeout;
    let writer = PgPoolOptions::new().acquire_timeout(acquire).max_connections(1);
    Ok(Sessions {
        readers: server.readers(options.readers, acquire, options.query_timeout, &READING),
        writer: writer.connect_lazy_with(server.options.options(WRITING)),
        name: server.name,
    })
}

/// Makes the tables, or brings them up to date.
pub(crate) async fn migrate(url: &str) -> Result<(u32, u32)> {
    Ok(MIGRATIONS.run_at(url, PostgresIndexOptions::default().acquire_timeout).await?)
}
