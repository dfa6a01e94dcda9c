//! The schema's version, and the way from an older one.
//!
//! Migrations are SQL files, each run once, in order, in one transaction for all that are missing.

use std::path::PathBuf;

use kukuri_store::StoreError;
use sqlx::{Connection, PgConnection};

use crate::error::Result;

/// All migrations there are: the first is number 1.
const MIGRATIONS: &[(&str, &str)] = &[
    ("schema", include_str!("../migrations/0001_schema.sql")),
    ("loading", include_str!("../migrations/0002_loading.sql")),
    ("leaving", include_str!("../migrations/0003_leaving.sql")),
    ("leases", include_str!("../migrations/0004_leases.sql")),
];

/// Processes that start together wait for each other here, and not for writers.
const BEGIN: &str = "BEGIN; SELECT pg_advisory_xact_lock(7742364214)";

/// The schema this program works with.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Brings the schema up to date. One that is newer than this program is left untouched. Returns the version it had: 0 if
/// there was none.
pub(crate) async fn migrate(connection: &mut PgConnection, name: &str) -> Result<u32> {
    let mut txn = connection.begin_with(BEGIN).await?;
    sqlx::raw_sql(
        "SET LOCAL client_min_messages = warning; CREATE SCHEMA IF NOT EXISTS cn_relay; \
         CREATE TABLE IF NOT EXISTS cn_relay.migrations (number integer PRIMARY KEY, name text NOT NULL, \
         applied_at timestamptz NOT NULL DEFAULT now())",
    )
    .execute(&mut *txn)
    .await?;
    let found = newest(&mut txn).await?;
    refuse_newer(found, name)?;
    for (number, (title, sql)) in (1..).zip(MIGRATIONS.iter()).skip(found as usize) {
        sqlx::raw_sql(*sql).execute(&mut *txn).await?;
        sqlx::query("INSERT INTO cn_relay.migrations (number, name) VALUES ($1, $2)")
            .bind(number)
            .bind(*title)
            .execute(&mut *txn)
            .await?;
        tracing::info!(number, title, "schema migrated");
    }
    txn.commit().await?;
    Ok(found)
}

/// Refuses a schema that is not this program's: older, newer, or not there.
pub(crate) async fn check(connection: &mut PgConnection, name: &str) -> Result<()> {
    let exists: bool =
        sqlx::query_scalar("SELECT to_regclass('cn_relay.migrations') IS NOT NULL").fetch_one(&mut *connection).await?;
    let found = if exists { newest(connection).await? } else { 0 };
    refuse_newer(found, name)?;
    if found < VERSION {
        return Err(StoreError::Older { path: PathBuf::from(name), found, supported: VERSION }.into());
    }
    Ok(())
}

async fn newest(connection: &mut PgConnection) -> Result<u32> {
    let newest = sqlx::query_scalar("SELECT coalesce(max(number), 0) FROM cn_relay.migrations");
    let newest: i32 = newest.fetch_one(connection).await?;
    Ok(newest.unsigned_abs())
}

fn refuse_newer(found: u32, name: &str) -> Result<()> {
    if found > VERSION {
        return Err(StoreError::Newer { path: PathBuf::from(name), found, supported: VERSION }.into());
    }
    Ok(())
}
