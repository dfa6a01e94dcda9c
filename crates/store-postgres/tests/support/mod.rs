//! A Postgres server for tests, and databases on it.

#![allow(dead_code, reason = "every test file uses a part of this")]

pub(crate) mod cluster;

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use cluster::Cluster;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// The URL of a running server: that in `KUKURI_TEST_POSTGRES`, or a private one, which is left running for the next
/// test program.
pub(crate) fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| {
        std::env::var("KUKURI_TEST_POSTGRES").unwrap_or_else(|_| {
            let cluster = Cluster::at(private("postgres-test"));
            cluster.start().expect("a private Postgres; or name one in KUKURI_TEST_POSTGRES");
            cluster.url()
        })
    })
}

/// A directory for a private server.
pub(crate) fn private(name: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    workspace.join(target).join(name)
}

/// The URL of another database on the same server.
pub(crate) fn url_of(server: &str, database: &str) -> String {
    let (base, options) = server.split_once('?').map_or((server, ""), |(base, options)| (base, options));
    let base = base.rsplit_once('/').map_or(base, |(base, _)| base);
    format!("{base}/{database}?{options}")
}

/// Runs statements in the server's default database.
pub(crate) async fn on_server(sql: &str) {
    run(server(), sql).await.expect("an administrator");
}

/// Runs statements in a database.
pub(crate) async fn run(url: &str, sql: &str) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    connection.close().await
}

/// An empty database for one test. Dropped databases are emptied and reused, as the tests need thousands.
pub(crate) struct Database {
    name: String,
}

static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());
static MADE: AtomicU32 = AtomicU32::new(0);
/// Empties a database. Monthly partitions are kept for the next use, up to 30.
const EMPTY: &str = "SET client_min_messages = warning; DROP SCHEMA IF EXISTS cn_search CASCADE; DO $$ BEGIN \
     IF to_regclass('cn_relay.node') IS NULL THEN RETURN; END IF; \
     IF (SELECT count(*) FROM cn_relay.partitions) > 30 OR EXISTS (SELECT 1 FROM cn_relay.leaving) \
     OR (SELECT loading FROM cn_relay.node) THEN DROP SCHEMA cn_relay CASCADE; RETURN; END IF; \
     DELETE FROM cn_relay.events; DELETE FROM cn_relay.event_topics; DELETE FROM cn_relay.event_tags; \
     DELETE FROM cn_relay.partition_counters; DELETE FROM cn_relay.event_dedupe; DELETE FROM cn_relay.floors; \
     DELETE FROM cn_relay.replaceable_current; DELETE FROM cn_relay.addressable_current; \
     DELETE FROM cn_relay.deletion_tombstones; DELETE FROM cn_relay.vanish_marks; DELETE FROM cn_relay.traces; DELETE FROM cn_relay.remains; \
     DELETE FROM cn_relay.events_outbox; DELETE FROM cn_relay.consumer_offsets; DELETE FROM cn_relay.consumer_leases; \
     DELETE FROM cn_relay.node_subscriptions; DELETE FROM cn_relay.topics; DELETE FROM cn_relay.node; \
     INSERT INTO cn_relay.node DEFAULT VALUES; END $$";

impl Database {
    pub(crate) async fn new() -> Self {
        let free = FREE.lock().expect("a list").pop();
        if let Some(name) = free {
            let database = Self { name };
            run(&database.url(), EMPTY).await.expect("an empty database");
            return database;
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            drop_left_over().await;
        }
        let name = format!("kukuri_test_{}_{number}", std::process::id());
        // Left over from an earlier process with the same id.
        on_server(&format!("DROP DATABASE IF EXISTS {name}")).await;
        on_server(&format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        Self { name }
    }

    pub(crate) fn url(&self) -> String {
        url_of(server(), &self.name)
    }

    /// For suites with thousands of short-lived stores: commits do not wait for the disk.
    pub(crate) fn hasty_url(&self) -> String {
        format!("{}&options[synchronous_commit]=off", self.url())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        FREE.lock().expect("a list").push(std::mem::take(&mut self.name));
    }
}

/// Drops the databases of test programs that have ended.
async fn drop_left_over() {
    let mut connection = PgConnection::connect(server()).await.expect("an administrator");
    let names = sqlx::query_scalar("SELECT datname::text FROM pg_database WHERE datname LIKE 'kukuri_test_%'");
    let names: Vec<String> = names.fetch_all(&mut connection).await.expect("names");
    for name in names {
        let process = name.split('_').nth(2).unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            // Another test program may drop it at the same time.
            let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await;
        }
    }
}

/// Runs an async test on a single-threaded runtime.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test)
}

/// The numbers that a statement selects in a database.
pub(crate) async fn numbers(url: &str, sql: &str) -> Vec<i64> {
    let mut connection = PgConnection::connect(url).await.expect("a database");
    let numbers = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await;
    connection.close().await.expect("an end");
    numbers.expect("numbers")
}
