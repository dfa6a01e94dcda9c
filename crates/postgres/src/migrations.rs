//! Schema versions and migrations.
//!
//! Migrations are SQL files. Each runs once, in order; all missing ones run in one transaction.

use std::time::Duration;

use crate::{Error, Result, Server, Session, query};

/// The migrations of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// Name of the schema. Used verbatim in SQL statements.
    pub schema: &'static str,
    /// Advisory lock that serializes processes that start at the same time.
    pub lock: i64,
    /// All migrations, each with a title and its SQL. The first has number 1.
    pub steps: &'static [(&'static str, &'static str)],
}

impl Migrations {
    /// The schema version that this program works with.
    const fn version(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Migrates the schema of a database. Returns the versions before and after.
    pub async fn run_at(&self, url: &str, within: Duration) -> Result<(u32, u32)> {
        let (server, session) = Server::connect(url, within).await?;
        let found = self.prepare(&server, &session, true).await?;
        session.close().await;
        Ok((found, self.version()))
    }

    /// Ensures that the schema has this program's version: migrates it if `may_change`, else refuses any other version.
    /// Returns the previous version, 0 if there was no schema.
    pub async fn prepare(&self, server: &Server, session: &Session, may_change: bool) -> Result<u32> {
        let found = match may_change {
            true => self.run(session, &server.name).await,
            false => self.found_version(session, &server.name).await,
        };
        let (found, supported) = (found.map_err(|error| server.explain(error, self.schema))?, self.version());
        if found < supported && !may_change {
            return Err(Error::Older { name: server.name.clone(), found, supported });
        }
        Ok(found)
    }

    async fn run(&self, session: &Session, name: &str) -> Result<u32> {
        let Self { schema, lock, .. } = self;
        // Without anything to do no lock is taken: anybody who may connect could hold it.
        let found = self.found_version(session, name).await?;
        if found == self.version() {
            return Ok(found);
        }
        session.run(&format!("BEGIN; SET LOCAL lock_timeout = '60s'; SELECT pg_advisory_xact_lock({lock})")).await?;
        let create = format!(
            "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS {schema}; \
             CREATE TABLE IF NOT EXISTS {schema}.migrations (number integer PRIMARY KEY, name text NOT NULL, \
             applied_at timestamptz NOT NULL DEFAULT now())",
        );
        session.run(&create).await?;
        let found = self.run_missing(session, name).await?;
        session.run("COMMIT").await?;
        Ok(found)
    }

    /// Runs the missing migrations. Returns the version before them.
    async fn run_missing(&self, session: &Session, name: &str) -> Result<u32> {
        let Self { schema, steps, .. } = self;
        let found = self.found_version(session, name).await?;
        for (number, (title, sql)) in (1i32..).zip(steps.iter()).skip(found as usize) {
            session.run(sql).await?;
            let noted = format!("INSERT INTO {schema}.migrations (number, name) VALUES ($1, $2)");
            query(noted).bind(number).bind(*title).execute(session).await?;
            tracing::info!(schema, number, title, "schema migrated");
        }
        Ok(found)
    }

    /// The schema's version, 0 if there is no schema. Refuses a schema newer than this program.
    async fn found_version(&self, session: &Session, name: &str) -> Result<u32> {
        let table = format!("{}.migrations", self.schema);
        let exists: bool = query("SELECT to_regclass($1) IS NOT NULL").bind(&table).fetch_value(session).await?;
        if !exists {
            return Ok(0);
        }
        let newest = query(format!("SELECT coalesce(max(number), 0) FROM {table}"));
        let newest: i32 = newest.fetch_value(session).await?;
        let (found, supported) = (newest.unsigned_abs(), self.version());
        if found > supported { Err(Error::Newer { name: name.to_owned(), found, supported }) } else { Ok(found) }
    }
}
