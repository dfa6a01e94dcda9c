//! Connection pools for searches and for the writer, and migrations.

use std::time::Duration;

use kukuri_postgres::{Migrations, Pool, Result, Server};

/// The advisory lock serializes processes that start together.
pub(crate) const MIGRATIONS: Migrations = Migrations {
    schema: "cn_search",
    lock: 7_742_364_215,
    steps: &[("schema", include_str!("../migrations/0001_schema.sql"))],
};

/// Options of an index on Postgres.
#[derive(Clone, Debug)]
pub struct PostgresIndexOptions {
    /// Maximum number of connections for searches. The writer has one more.
    pub readers: u32,
    /// Maximum wait for a connection.
    pub acquire_timeout: Duration,
    /// `statement_timeout` of a search.
    pub query_timeout: Duration,
    /// Whether to create or migrate the tables.
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

/// Session settings for searches. The best plan depends on how common the words are, so plans are not cached.
const READING: [(&str, &str); 6] = [
    // `permit::CANCEL_TIME`
    ("client_connection_check_interval", "500ms"),
    ("default_transaction_read_only", "on"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("plan_cache_mode", "force_custom_plan"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
];

/// Session settings for the writer. A frozen writer loses its row lock after 5 s.
const WRITING: [(&str, &str); 5] = [
    ("idle_in_transaction_session_timeout", "5s"),
    ("statement_timeout", "60s"),
    ("lock_timeout", "10s"),
    ("client_min_messages", "warning"),
    ("jit", "off"),
];

/// Connects, and migrates the tables if the options say so. Returns the pools for searches and for the writer.
pub(crate) async fn connect(url: &str, options: &PostgresIndexOptions) -> Result<(Pool, Pool)> {
    let acquire = options.acquire_timeout;
    let (server, first) = Server::connect(url, acquire).await?;
    MIGRATIONS.prepare(&server, &first, options.migrate).await?;
    first.close().await;
    let readers = server.readers(options.readers, acquire, options.query_timeout, &READING);
    Ok((readers, server.pool(1, acquire, &WRITING, None)))
}
