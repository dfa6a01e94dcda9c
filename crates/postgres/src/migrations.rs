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
    pub const fn version(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Migrates the schema of a database. Returns the versions before and after.
    pub async fn run_at(&self, url: &str, within: Duration) -> Result<(u32, u32)> {
        let server = Server::parse(url)?;
        let mut connection = server.connect(within).await?;
        let found = self.run(&mut connection, &server.name).await;
        let found = found.map_err(|error| server.explain(error, self.schema))?;
        connection.close().await?;
        Ok((found, self.version()))
    }

    /// Ensures that the schema has this program's version: migrates it if `may_change`, else refuses any other version.
    pub async fn prepare(&self, server: &Server, connection: &mut PgConnection, may_change: bool) -> Result<()> {
        let prepared = match may_change {
            true => self.run(connection, &server.name).await.map(drop),
            false => self.check(connection, &server.name).await,
        };
        prepared.map_err(|error| server.explain(error, self.schema))
    }

    /// Migrates the schema; refuses a schema newer than this program and leaves it untouched. Returns the previous
    /// version, 0 if there was no schema.
    async fn run(&self, connection: &mut PgConnection, name: &str) -> Result<u32> {
        let Self { schema, lock, steps } = self;
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({lock})");
        let mut txn = connection.begin_with(AssertSqlSafe(begin)).await?;
        sqlx::raw_sql(AssertSqlSafe(format!(
            "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS {schema}; \
             CREATE TABLE IF NOT EXISTS {schema}.migrations (number integer PRIMARY KEY, name text NOT NULL, \
             applied_at timestamptz NOT NULL DEFAULT now())",
        )))
        .execute(&mut *txn)
        .await?;
        let found = self.newest(&mut txn).await?;
        self.refuse_newer(found, name)?;
        for (number, (title, sql)) in (1..).zip(steps.iter()).skip(found as usize) {
            sqlx::raw_sql(*sql).execute(&mut *txn).await?;
            let noted = format!("INSERT INTO {schema}.migrations (number, name) VALUES ($1, $2)");
            sqlx::query(AssertSqlSafe(noted)).bind(number).bind(*title).execute(&mut *txn).await?;
            tracing::info!(schema, number, title, "schema migrated");
        }
        txn.commit().await?;
        Ok(found)
    }

    /// Refuses a schema that is older, newer or missing.
    async fn check(&self, connection: &mut PgConnection, name: &str) -> Result<()> {
        let exists = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL");
        let exists: bool = exists.bind(format!("{}.migrations", self.schema)).fetch_one(&mut *connection).await?;
        let found = if exists { self.newest(connection).await? } else { 0 };
        self.refuse_newer(found, name)?;
        if found < self.version() {
            return Err(Error::Older { name: name.to_owned(), found, supported: self.version() });
        }
        Ok(())
    }

    async fn newest(&self, connection: &mut PgConnection) -> Result<u32> {
        let newest = format!("SELECT coalesce(max(number), 0) FROM {}.migrations", self.schema);
        let newest: i32 = sqlx::query_scalar(AssertSqlSafe(newest)).fetch_one(connection).await?;
        Ok(newest.unsigned_abs())
    }

    fn refuse_newer(&self, found: u32, name: &str) -> Result<()> {
        if found > self.version() {
            return Err(Error::Newer { name: name.to_owned(), found, supported: self.version() });
        }
        Ok(())
    }
}
