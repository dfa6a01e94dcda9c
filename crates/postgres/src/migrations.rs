//! Schema versions and migrations.
//!
//! Migrations are SQL files. Each runs once, in order; all missing ones run in one transaction.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{Error, Result, Server};

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
        let (server, mut connection) = Server::connect(url, within).await?;
        let found = self.prepare(&server, &mut connection, true).await?;
        connection.close().await?;
        Ok((found, self.version()))
    }

    /// Ensures that the schema has this program's version: migrates it if `may_change`, else refuses any other version.
    /// Returns the previous version, 0 if there was no schema.
    pub async fn prepare(&self, server: &Server, connection: &mut PgConnection, may_change: bool) -> Result<u32> {
        let found = match may_change {
            true => self.run(connection, &server.name).await,
            false => self.found_version(connection, &server.name).await,
        };
        let (found, supported) = (found.map_err(|error| server.explain(error, self.schema))?, self.version());
        if found < supported && !may_change {
            return Err(Error::Older { name: server.name.clone(), found, supported });
        }
        Ok(found)
    }

    async fn run(&self, connection: &mut PgConnection, name: &str) -> Result<u32> {
        let Self { schema, lock, steps } = self;
        // Without anything to do no lock is taken: anybody who may connect could hold it.
        let found = self.found_version(connection, name).await?;
        if found == self.version() {
            return Ok(found);
        }
        let begin = format!("BEGIN; SET LOCAL lock_timeout = '60s'; SELECT pg_advisory_xact_lock({lock})");
        let mut txn = connection.begin_with(AssertSqlSafe(begin)).await?;
        sqlx::raw_sql(AssertSqlSafe(format!(
            "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS {schema}; \
             CREATE TABLE IF NOT EXISTS {schema}.migrations (number integer PRIMARY KEY, name text NOT NULL, \
             applied_at timestamptz NOT NULL DEFAULT now())",
        )))
        .execute(&mut *txn)
        .await?;
        let found = self.found_version(&mut txn, name).await?;
        for (number, (title, sql)) in (1..).zip(steps.iter()).skip(found as usize) {
            sqlx::raw_sql(*sql).execute(&mut *txn).await?;
            let noted = format!("INSERT INTO {schema}.migrations (number, name) VALUES ($1, $2)");
            sqlx::query(AssertSqlSafe(noted)).bind(number).bind(*title).execute(&mut *txn).await?;
            tracing::info!(schema, number, title, "schema migrated");
        }
        txn.commit().await?;
        Ok(found)
    }

    /// The schema's version, 0 if there is no schema. Refuses a schema newer than this program.
    async fn found_version(&self, connection: &mut PgConnection, name: &str) -> Result<u32> {
        let table = format!("{}.migrations", self.schema);
        let exists = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(&table);
        if !exists.fetch_one(&mut *connection).await? {
            return Ok(0);
        }
        let newest = format!("SELECT coalesce(max(number), 0) FROM {table}");
        let newest: i32 = sqlx::query_scalar(AssertSqlSafe(newest)).fetch_one(connection).await?;
        let (found, supported) = (newest.unsigned_abs(), self.version());
        if found > supported { Err(Error::Newer { name: name.to_owned(), found, supported }) } else { Ok(found) }
    }
}
