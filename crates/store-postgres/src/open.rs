//! Sessions: who reads, who writes, and that what is acknowledged is durable.

use std::time::Duration;

use kukuri_postgres::Server;
use kukuri_store::{StoreError, StoreRules};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};

use crate::{
    error::{Failure, Result},
    schema::MIGRATIONS,
};

/// How a store on Postgres is opened.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// How it treats what it takes in.
    pub rules: StoreRules,
    /// The most sessions that read at a time. One more writes, and one listens.
    pub readers: u32,
    /// How long a session is waited for, also the first.
    pub acquire_timeout: Duration,
    /// How long a statement of a query may take.
    pub query_timeout: Duration,
    /// Whether the schema is made or brought up to date first.
    pub migrate: bool,
    /// Whether a server that may lose what it acknowledged is taken: for tests alone.
    pub may_lose: bool,
    /// What a test waits before each commit.
    #[doc(hidden)]
    pub commit_delay: Option<fn() -> Duration>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            rules: StoreRules::default(),
            readers: 8,
            acquire_timeout: Duration::from_secs(5),
            query_timeout: Duration::from_secs(10),
            migrate: true,
            may_lose: false,
            commit_delay: None,
        }
    }
}

/// The sessions of a store.
pub(crate) struct Sessions {
    pub(crate) readers: PgPool,
    pub(crate) writer: PgPool,
    pub(crate) listener: PgPool,
}

/// What writing sessions are told. One that is frozen gives its lock back soon: idle inside a transaction after three
/// seconds, inside a statement after four, so that others wait for less than five (O-5). And a plan that was made while a
/// table was small must do when it is large: by indexes.
const WRITING: [(&str, &str); 8] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("idle_in_transaction_session_timeout", "3s"),
    ("statement_timeout", "4s"),
    ("lock_timeout", "60s"),
    ("client_min_messages", "warning"),
    ("jit", "off"),
];

/// What reading sessions are told. A statement for a filter is planned once, for any values: planning costs more than
/// answering. So that no guess at values can lead it astray, it may go by indexes alone, in their order; `FREELY` takes
/// that back.
const READING: [(&str, &str); 11] = [
    ("client_connection_check_interval", "500ms"),
    ("default_transaction_read_only", "on"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_sort", "off"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
];

/// One moment for several statements.
pub(crate) const AT_ONE_MOMENT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// One moment for statements that read very much: any plan, any time.
pub(crate) const FREELY: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
     SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; \
     SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL enable_sort = on; \
     SET LOCAL max_parallel_workers_per_gather = 2";

pub(crate) async fn connect(url: &str, options: &PostgresOptions) -> Result<Sessions> {
    let server = Server::parse(url)?;
    let mut first = server.connect(options.acquire_timeout).await?;
    if !options.may_lose {
        require_durability(&mut first, &server.name).await?;
    }
    MIGRATIONS.prepare(&server, &mut first, options.migrate).await?;
    first.close().await?;

    let (acquire, connect) = (options.acquire_timeout, &server.options);
    let pool = |most: u32| PgPoolOptions::new().acquire_timeout(acquire).max_connections(most);
    Ok(Sessions {
        readers: server.readers(options.readers, acquire, options.query_timeout, &READING),
        listener: pool(1).connect_lazy_with(connect.clone()),
        // One writes. What upkeep only looks up goes by the other.
        writer: writing(pool(2), options.may_lose).connect_lazy_with(connect.clone().options(WRITING)),
    })
}

/// Brings the schema up to date, and nothing else. Returns from which version to which.
pub(crate) async fn migrate(url: &str) -> Result<(u32, u32)> {
    Ok(MIGRATIONS.run_at(url, PostgresOptions::default().acquire_timeout).await?)
}

/// A commit that is answered must be on the disk.
async fn require_durability(connection: &mut PgConnection, name: &str) -> Result<()> {
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let value: String =
            sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(&mut *connection).await?;
        if value == "off" {
            let found = format!("{setting} = {value}, so that it may lose what it acknowledged");
            return Err(Failure::Port(StoreError::Foreign { path: name.into(), found }));
        }
    }
    Ok(())
}

/// Settings may differ by session: each that acknowledges is asked.
fn writing(pool: PgPoolOptions, may_lose: bool) -> PgPoolOptions {
    pool.after_connect(move |connection, _| {
        Box::pin(async move {
            let durable = if may_lose { Ok(()) } else { require_durability(connection, "a session").await };
            durable.map_err(|failure| sqlx::Error::Configuration(failure.into()))
        })
    })
}
