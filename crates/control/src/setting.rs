//! Settings that are changed while the node runs: the admission mode, and keys of the configuration (K-7).

use std::collections::BTreeMap;

use kukuri_domain::Timestamp;

use crate::{
    Result,
    database::{Database, Transaction, sql},
};

/// Names of keys of the configuration begin so.
const CONFIGURATION: &str = "config.";

/// Keys of the configuration that were set while the node runs, each with its value as TOML. The node knows what they mean.
pub type Configuration = BTreeMap<String, String>;

/// Reads the keys of the configuration.
pub async fn configuration(database: &Database) -> Result<Configuration> {
    let select = sql("SELECT name, value FROM cn_admin.settings WHERE name LIKE $1");
    let mut values = Configuration::new();
    for row in database.read(select.bind(format!("{CONFIGURATION}%"))).await? {
        let name: String = row.get(0)?;
        values.insert(name.trim_start_matches(CONFIGURATION).to_owned(), row.get(1)?);
    }
    Ok(values)
}

/// Sets a key of the configuration, or removes it. Returns its value before.
pub(crate) async fn set_key(
    transaction: &mut Transaction,
    key: &str,
    value: Option<&str>,
    now: Timestamp,
) -> Result<Option<String>> {
    set(transaction, &format!("{CONFIGURATION}{key}"), value, now).await
}

/// Reads a setting.
pub async fn read(database: &Database, name: &'static str) -> Result<Option<String>> {
    let row = database.read_first(sql("SELECT value FROM cn_admin.settings WHERE name = $1").bind(name)).await?;
    row.map(|row| row.get(0)).transpose()
}

pub(crate) async fn read_in(transaction: &mut Transaction, name: &str) -> Result<Option<String>> {
    let row = transaction.fetch_first(sql("SELECT value FROM cn_admin.settings WHERE name = $1").bind(name)).await?;
    row.map(|row| row.get(0)).transpose()
}

/// Sets a setting, or removes it. Returns its value before.
pub async fn set(
    transaction: &mut Transaction,
    name: &str,
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
