//! Settings that are changed while the node runs: the admission mode for now.

use kukuri_domain::Timestamp;

use crate::{
    Result,
    database::{Database, Transaction, sql},
};

/// Reads a setting.
pub async fn read(database: &Database, name: &'static str) -> Result<Option<String>> {
    let row = database.read_first(sql("SELECT value FROM cn_admin.settings WHERE name = $1").bind(name)).await?;
    row.map(|row| row.get(0)).transpose()
}

pub(crate) async fn read_in(transaction: &mut Transaction, name: &'static str) -> Result<Option<String>> {
    let row = transaction.fetch_first(sql("SELECT value FROM cn_admin.settings WHERE name = $1").bind(name)).await?;
    row.map(|row| row.get(0)).transpose()
}

/// Sets a setting, or removes it. Returns its value before.
pub async fn set(
    transaction: &mut Transaction,
    name: &'static str,
    value: Option<&str>,
    now: Timestamp,
) -> Result<Option<String>> {
    let before = read_in(transaction, name).await?;
    let change = match value {
        None => sql("DELETE FROM cn_admin.settings WHERE name = $1").bind(name),
        Some(value) => sql("INSERT INTO cn_admin.settings (name, value, updated_at) VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at")
        .bind(name)
        .bind(value)
        .bind(now),
    };
    transaction.execute(change).await?;
    touch_shared(transaction).await?;
    Ok(before)
}

/// Notes that an account was removed, whose row can't tell it any more ([`crate::people`]).
pub(crate) async fn touch_removed(transaction: &mut Transaction) -> Result<()> {
    let update = sql("UPDATE cn_admin.revision SET removed = $1");
    let revision = transaction.revision();
    transaction.execute(update.bind(revision)).await
}

/// Notes that something which is held in memory for all people has changed ([`crate::people`]).
pub(crate) async fn touch_shared(transaction: &mut Transaction) -> Result<()> {
    let update = sql("UPDATE cn_admin.revision SET shared = $1");
    let revision = transaction.revision();
    transaction.execute(update.bind(revision)).await
}
