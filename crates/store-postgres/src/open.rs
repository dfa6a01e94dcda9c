//! Sessions for reading and writing, and the check that commits are durable.

use std::time::Duration;

use kukuri_postgres::{Listener, Migrations, Pool, Server, Session, SessionCheck, SessionError};
use kukuri_store::{StoreError, StoreRules};

use crate::{
    attempt::{QUICK_TIMEOUT, QueryPools},
    columns::query,
    error::{Failure, Result},
};

/// All migrations. Processes that start at the same time wait for each other at this lock; writers use another.
pub(crate) const MIGRATIONS: Migrations = Migrations {
    schema: "cn_relay",
    lock: 7_742_364_214,
    steps: &[
        ("schema", include_str!("../migrations/0001_schema.sql")),
        ("loading", include_str!("../migrations/0002_loading.sql")),
        ("leaving", include_str!("../migrations/0003_leaving.sql")),
        ("leases", include_str!("../migrations/0004_leases.sql")),
        ("traces", include_str!("../migrations/0005_traces.sql")),
        ("clock", include_str!("../migrations/0006_clock.sql")),
        ("topics", include_str!("../migrations/0007_topics.sql")),
        ("remains", include_str!("../migrations/0008_remains.sql")),
        ("epoch", include_str!("../migrations/0009_epoch.sql")),
        ("deleted", include_str!("../migrations/0010_deleted.sql")),
        ("people", include_str!("../migrations/0011_people.sql")),
    ],
};

/// Options of a store on Postgres.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Rules for ingest.
    pub rules: StoreRules,
    /// Maximum number of sessions that answer queries. Costly queries, and reads that are no queries, have half as many more
    /// (at least two); reads of events and outbox rows have four, publishing four, writing two, and listening one.
    pub readers: u32,
    /// Timeout for acquiring a session, also the first.
    pub acquire_timeout: Duration,
    /// Time that one query may take, over all its statements.
    pub query_timeout: Duration,
    /// Whether opening creates or migrates the schema.
    pub migrate: bool,
    /// Whether a server that may lose acknowledged commits is accepted. For tests only.
    pub may_lose: bool,
    /// Delay before each commit, for tests.
    #[doc(hidden)]
    pub commit_delay: Option<fn() -> Duration>,
    /// After this time without a statement the server ends a writing session that holds the lock (O-5).
    #[doc(hidden)]
    pub writer_idle_timeout: Duration,
    /// Delay of long computations, for tests.
    #[doc(hidden)]
    pub compute_delay: Duration,
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
            writer_idle_timeout: Duration::from_secs(3),
            compute_delay: Duration::ZERO,
        }
    }
}

pub(crate) struct Sessions {
    pub(crate) pools: QueryPools,
    pub(crate) lookups: Pool,
    pub(crate) publishing: Pool,
    pub(crate) writer: Pool,
    pub(crate) listener: Listener,
}

/// Sessions for reads of events by id and of outbox rows: for searches, followers of the outbox, services and other nodes.
const LOOKUP_SESSIONS: u32 = 4;

/// Sessions for reads that publishing, live delivery and health wait for.
const PUBLISHING_SESSIONS: u32 = 4;

/// One writes, the other serves the lookups of upkeep.
const WRITING_SESSIONS: u32 = 2;

/// Settings of writing sessions. A frozen session releases the lock soon: idle in a transaction after three seconds, in
/// a statement after four, so that other writers wait for less than five (O-5). Plans go by indexes, because a plan
/// made while a table is small must also do when it is large.
const WRITING: [(&str, &str); 7] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("statement_timeout", "4s"),
    ("lock_timeout", "60s"),
    ("client_min_messages", "warning"),
    ("jit", "off"),
];

/// Settings of reading sessions. A filter's statement is planned once, for any values, because planning costs more than
/// answering. So that no estimate of values misleads the planner, it may only use indexes, in their order;
/// `SNAPSHOT_WITH_ANY_PLAN` lifts that.
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

/// One snapshot for several statements.
pub(crate) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// One snapshot for statements that read large parts of the store: any plan, no statement timeout.
pub(crate) const SNAPSHOT_WITH_ANY_PLAN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
     SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; \
     SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL enable_sort = on; \
     SET LOCAL max_parallel_workers_per_gather = 2";

pub(crate) async fn connect(url: &str, options: &PostgresOptions) -> Result<Sessions> {
    let acquire = options.acquire_timeout;
    let (server, first) = Server::connect(url, acquire).await?;
    if !options.may_lose {
        require_durability(&first, &server.name).await?;
    }
    MIGRATIONS.prepare(&server, &first, options.migrate).await?;
    first.close().await;

    let readers = |most, timeout| server.readers(most, acquire, timeout, &READING);
    let pools = QueryPools {
        quick: readers(options.readers, QUICK_TIMEOUT),
        readers: readers((options.readers / 2).max(2), options.query_timeout),
        query_timeout: options.query_timeout,
    };
    let idle = options.writer_idle_timeout.as_millis().to_string();
    let writing: Vec<_> = WRITING.into_iter().chain([("idle_in_transaction_session_timeout", idle.as_str())]).collect();
    // Settings may differ by session, so every writing session is checked.
    let check: Option<SessionCheck> = (!options.may_lose).then_some(|session| Box::pin(check_durability(session)));
    Ok(Sessions {
        pools,
        lookups: readers(LOOKUP_SESSIONS, options.query_timeout),
        publishing: readers(PUBLISHING_SESSIONS, options.query_timeout),
        listener: server.listener(),
        writer: server.pool(WRITING_SESSIONS, acquire, &writing, check),
    })
}

async fn check_durability(session: &Session) -> Result<(), SessionError> {
    let checked = require_durability(session, "a session").await;
    checked.map_err(|failure| SessionError::Unexpected(failure.to_string()))
}

/// An acknowledged commit must be on disk.
async fn require_durability(session: &Session, name: &str) -> Result<()> {
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let value: String = query("SELECT current_setting($1)").bind(setting).fetch_value(session).await?;
        if value == "off" {
            return Err(Failure::Port(StoreError::NotDurable { server: name.to_owned(), setting, value }));
        }
    }
    Ok(())
}
