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
use kukuri_postgres::{Session, SessionError, query};

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

/// The server's socket directory, its port and its user, if the directory is on this machine.
async fn sockets() -> Option<&'static str> {
    static SOCKETS: OnceLock<Option<String>> = OnceLock::new();
    if SOCKETS.get().is_none() {
        let session = Session::connect(server()).await.expect("an administrator");
        let text = "SELECT format('postgres://%s@localhost:%s/postgres?host=%s', current_user, current_setting('port'), \
             split_part(current_setting('unix_socket_directories'), ',', 1))";
        let url: String = query(text).fetch_value(&session).await.expect("settings");
        let is_here = url.split_once("host=").is_some_and(|(_, directory)| Path::new(directory).is_dir());
        let _ = SOCKETS.set(is_here.then_some(url));
    }
    SOCKETS.get().and_then(Option::as_deref)
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
pub(crate) async fn run(url: &str, sql: &str) -> Result<(), SessionError> {
    let connection = Session::connect(url).await?;
    connection.run(sql).await?;
    connection.close().await;
    Ok(())
}

/// An empty database for one test. Dropped databases are emptied and reused, as the tests need thousands. Every other one is
/// reached by a Unix socket, the others by TCP.
pub(crate) struct Database {
    name: String,
    /// The URL of the server.
    server: &'static str,
}

static FREE: Mutex<Vec<(String, &'static str)>> = Mutex::new(Vec::new());
static MADE: AtomicU32 = AtomicU32::new(0);
/// Empties a database. Monthly partitions are kept for the next use, up to 30.
const EMPTY: &str = "SET client_min_messages = warning; DROP SCHEMA IF EXISTS cn_search, cn_user, cn_admin CASCADE; DO $$ BEGIN \
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
        if let Some((name, server)) = free {
            let database = Self { name, server };
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
        let by_socket = if number.is_multiple_of(2) { None } else { sockets().await };
        Self { name, server: by_socket.unwrap_or(server()) }
    }

    pub(crate) fn url(&self) -> String {
        url_of(self.server, &self.name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// For suites with thousands of short-lived stores: commits do not wait for the disk.
    pub(crate) fn hasty_url(&self) -> String {
        format!("{}&options=-c%20synchronous_commit%3Doff", self.url())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        FREE.lock().expect("a list").push((std::mem::take(&mut self.name), self.server));
    }
}

/// Drops the databases of test programs that have ended.
async fn drop_left_over() {
    let connection = Session::connect(server()).await.expect("an administrator");
    let names = query("SELECT datname::text FROM pg_database WHERE datname LIKE 'kukuri_test_%'");
    for row in names.fetch_all(&connection).await.expect("names") {
        let name: String = row.get(0).expect("a name");
        let process = name.split('_').nth(2).unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            // Another test program may drop it at the same time.
            let _ = connection.run(drop).await;
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
    let connection = Session::connect(url).await.expect("a database");
    let rows = query(sql.to_owned()).fetch_all(&connection).await.expect("numbers");
    connection.close().await;
    rows.iter().map(|row| row.get(0).expect("a number")).collect()
}
