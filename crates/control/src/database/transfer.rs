//! The whole content of a database: copied into an empty one of either kind, and checked.

use super::{Backend, Database, Row, Transaction, Value, schema, sql};
use crate::{Error, Result};

/// Rows that are read, and inserted, at once. SQLite takes 32,766 values in a statement.
const ROWS_AT_ONCE: usize = 500;
/// The same for tables with a `bytea`, which may be large.
const LARGE_ROWS_AT_ONCE: usize = 8;

/// A table, as its migration declares it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// With its schema.
    pub(super) name: &'static str,
    /// As statements write them.
    pub(super) columns: Vec<&'static str>,
    /// The columns of the primary key.
    pub(super) key: Vec<&'static str>,
    /// Whether it has a `bytea`.
    pub(super) has_bytes: bool,
}

/// Tables that a migration fills, which are not empty in a new database: the lock of transactions, and the plan that everybody has.
const FILLED: [&str; 3] = ["cn_admin.revision", "cn_user.plan_limits", "cn_user.plans"];

impl Database {
    /// Copies all rows into a database that has none yet, in one transaction. Returns how many. Nobody may change the source
    /// meanwhile.
    pub async fn copy_to(&self, target: &Self) -> Result<u64> {
        let tables = schema::tables();
        let mut transaction = target.begin().await?;
        for table in tables.iter().filter(|table| !FILLED.contains(&table.name)) {
            let any = sql(format!("SELECT 1 FROM {} LIMIT 1", table.name));
            if transaction.fetch_first(any).await?.is_some() {
                return Err(Error::NotEmpty);
            }
        }
        for name in [FILLED[1], FILLED[2], FILLED[0]] {
            transaction.execute(sql(format!("DELETE FROM {name}"))).await?;
        }
        let mut copied = 0;
        for table in &tables {
            copied += self.copy_table(table, &mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(copied)
    }

    async fn copy_table(&self, table: &Table, target: &mut Transaction) -> Result<u64> {
        let (mut copied, mut after) = (0, None);
        loop {
            let rows = self.read_page(table, after.take()).await?;
            let Some(last) = rows.last() else { return Ok(copied) };
            after = Some(table.key_of(last)?);
            copied += rows.len() as u64;
            target.execute(table.insert(rows)).await?;
        }
    }

    async fn read_page(&self, table: &Table, after: Option<Vec<Value>>) -> Result<Vec<Row>> {
        let key = table.key.join(", ");
        let condition = match &after {
            None => String::new(),
            Some(_) => format!("WHERE ({key}) > ({})", parameters(1, table.key.len())),
        };
        let (columns, name) = (table.columns.join(", "), table.name);
        let limit = if table.has_bytes { LARGE_ROWS_AT_ONCE } else { ROWS_AT_ONCE };
        let select = sql(format!("SELECT {columns} FROM {name} {condition} ORDER BY {key} LIMIT {limit}"));
        self.read(after.into_iter().flatten().fold(select, |select, value| select.bind(value))).await
    }

    /// Whether this is a copy of that one, and neither has changed since.
    pub async fn is_copy_of(&self, source: &Self) -> Result<bool> {
        let marks = || {
            vec![
                sql("SELECT value, shared FROM cn_admin.revision"),
                sql("SELECT name, version, value FROM cn_admin.secrets ORDER BY name, version"),
            ]
        };
        let (ours, theirs) = (self.read_together(marks()).await?, source.read_together(marks()).await?);
        Ok(ours == theirs && self.counts().await? == source.counts().await?)
    }

    /// How many rows each table has.
    pub async fn counts(&self) -> Result<Vec<(&'static str, u64)>> {
        let tables = schema::tables();
        let count = |table: &Table| sql(format!("SELECT count(*) FROM {}", table.name));
        let answers = self.read_together(tables.iter().map(count).collect()).await?;
        let read = |(table, rows): (&Table, Vec<Row>)| {
            let count = rows.first().map_or(Ok(0), |row| row.get::<u64>(0))?;
            Ok((table.name, count))
        };
        tables.iter().zip(answers).map(read).collect()
    }

    /// Whether the file is whole, and rows that should belong together do. Returns what is wrong, a line each.
    pub async fn check(&self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        if let Backend::Sqlite(_) = self.0 {
            for row in self.read(sql("PRAGMA integrity_check")).await? {
                let line: String = row.get(0)?;
                problems.extend((line != "ok").then_some(line));
            }
            for row in self.read(sql("PRAGMA foreign_key_check")).await? {
                problems.push(format!("{}: a row names one that is not there", row.get::<String>(0)?));
            }
        }
        for (what, rows) in OWNERLESS {
            let row = self.read_first(sql(format!("SELECT count(*) FROM {rows}"))).await?;
            let count = row.map_or(Ok(0), |row| row.get::<u64>(0))?;
            if count > 0 {
                problems.push(format!("{what} of people without an account: {count}"));
            }
        }
        Ok(problems)
    }
}

const OWNERLESS: [(&str, &str); 2] = [
    (
        "active subscriptions",
        "cn_user.topic_subscriptions s WHERE s.status = 'active' AND NOT EXISTS \
         (SELECT 1 FROM cn_user.subscriber_accounts a WHERE a.subscriber_pubkey = s.subscriber_pubkey)",
    ),
    (
        "pending requests",
        "cn_user.topic_subscription_requests r WHERE r.status = 'pending' AND NOT EXISTS \
         (SELECT 1 FROM cn_user.subscriber_accounts a WHERE a.subscriber_pubkey = r.requester_pubkey)",
    ),
];

impl Table {
    fn key_of(&self, row: &Row) -> Result<Vec<Value>> {
        let position = |column: &&str| self.columns.iter().position(|known| known == column);
        let value = |column| row.0.get(position(column)?).cloned();
        let missing = || Error::Damaged(format!("{} has a row without its key", self.name));
        self.key.iter().map(|column| value(column).ok_or_else(missing)).collect()
    }

    fn insert(&self, rows: Vec<Row>) -> super::Statement {
        let width = self.columns.len();
        let places: Vec<String> =
            (0..rows.len()).map(|row| format!("({})", parameters(1 + row * width, width))).collect();
        let insert = format!("INSERT INTO {} ({}) VALUES {}", self.name, self.columns.join(", "), places.join(", "));
        rows.into_iter().flat_map(|row| row.0).fold(sql(insert), |insert, value| insert.bind(value))
    }
}

/// `$first, $first+1, …`
fn parameters(first: usize, count: usize) -> String {
    (first..first + count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}
