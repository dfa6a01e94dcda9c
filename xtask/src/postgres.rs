//! A Postgres for the tests: private, under target/, started before them and stopped after.

use std::env;

use anyhow::anyhow;

use crate::{command::target_dir, tools};

// The tests start the same one by themselves when they are run without this program.
#[path = "../../crates/store-postgres/tests/support/cluster.rs"]
#[allow(dead_code, reason = "tests need more of it")]
mod cluster;

/// The variable by which tests find a server.
pub(crate) const URL: &str = "KUKURI_TEST_POSTGRES";

/// A server that runs for as long as this is kept.
pub(crate) struct Server {
    pub(crate) url: String,
    /// None if the variable names another server.
    cluster: Option<cluster::Cluster>,
}

impl Server {
    /// The one that the variable names, or a private one, made if need be.
    pub(crate) fn start() -> anyhow::Result<Self> {
        Self::start_in("postgres-test")
    }

    /// The same, for measurements: with nothing in it.
    pub(crate) fn start_empty() -> anyhow::Result<Self> {
        let server = Self::start_in("postgres-bench")?;
        if let Some(cluster) = &server.cluster {
            cluster.stop("fast").map_err(|error| anyhow!("{error}"))?;
            cluster.remove();
            cluster.start().map_err(|error| anyhow!("a Postgres to measure: {error}"))?;
        }
        Ok(server)
    }

    fn start_in(directory: &str) -> anyhow::Result<Self> {
        if let Ok(url) = env::var(URL) {
            return Ok(Self { url, cluster: None });
        }
        if !cluster::is_installed() {
            tools::ensure("pg_ctl", "postgresql")?;
        }
        let cluster = cluster::Cluster::at(target_dir()?.join(directory));
        cluster.start().map_err(|error| anyhow!("a Postgres for the tests: {error}"))?;
        Ok(Self { url: cluster.url(), cluster: Some(cluster) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.cluster.as_ref().map(|cluster| cluster.stop("fast")) {
            eprintln!("Postgres could not be stopped: {error}");
        }
    }
}
