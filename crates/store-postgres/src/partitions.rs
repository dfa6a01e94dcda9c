//! Monthly partitions: created before their events arrive, dropped whole when nothing in them is kept any more (P-7).

use kukuri_domain::Millis;
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use crate::{
    batch::own,
    codes::{Class, millis, signed},
    error::Result,
    months,
};

/// The tables that are partitioned by month, with the same bounds.
pub(crate) const TABLES: [&str; 3] = ["events", "event_topics", "event_tags"];

/// One month of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) class: Class,
    pub(crate) begins_at: Millis,
    pub(crate) ends_at: Millis,
    pub(crate) name: String,
}

impl Partition {
    /// The partition's table under one of [`TABLES`].
    pub(crate) fn table(&self, table: &str) -> String {
        format!("cn_relay.{table}_{}_{}", self.class.as_str(), self.name)
    }

    /// The side table that holds the partition's rows after it is detached.
    pub(crate) fn aside(&self) -> String {
        format!("leaving_{}_{}", self.class.as_str(), self.name)
    }
}

/// Ensures that the month of a moment and the next month have partitions.
pub(crate) async fn open(moment: Millis, connection: &mut PgConnection) -> Result<()> {
    for class in Class::ALL {
        open_one(class, moment, connection).await?;
        open_one(class, months::end_of(moment), connection).await?;
    }
    Ok(())
}

/// Ensures that the month of a moment has a partition in one class. Readers do not wait: attaching an empty table takes
/// no lock that they need.
pub(crate) async fn open_one(class: Class, moment: Millis, connection: &mut PgConnection) -> Result<()> {
    let (begin, end, name) = (months::begin_of(moment), months::end_of(moment), months::name_of(moment));
    let known = sqlx::query(
        "INSERT INTO cn_relay.partitions (class, begins_at, ends_at, name) VALUES ($1, $2, $3, $4) \
         ON CONFLICT DO NOTHING",
    )
    .bind(class.as_str())
    .bind(signed(begin.0))
    .bind(signed(end.0))
    .bind(&name)
    .execute(&mut *connection)
    .await?;
    if known.rows_affected() == 0 {
        return Ok(());
    }
    let class = class.as_str();
    for table in TABLES {
        let make = format!(
            "CREATE TABLE cn_relay.{table}_{class}_{name} (LIKE cn_relay.{table} INCLUDING DEFAULTS); \
             ALTER TABLE cn_relay.{table}_{class} ATTACH PARTITION cn_relay.{table}_{class}_{name} \
             FOR VALUES FROM ({}) TO ({})",
            begin.0, end.0
        );
        sqlx::raw_sql(own(make)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// All partitions of the store.
pub(crate) async fn all(connection: &mut PgConnection) -> Result<Vec<Partition>> {
    let rows = sqlx::query("SELECT * FROM cn_relay.partitions ORDER BY begins_at, class").fetch_all(connection).await?;
    rows.iter().map(read).collect()
}

pub(crate) fn read(row: &PgRow) -> Result<Partition> {
    Ok(Partition {
        class: Class::read(row.try_get("class")?)?,
        begins_at: millis(row.try_get("begins_at")?),
        ends_at: millis(row.try_get("ends_at")?),
        name: row.try_get("name")?,
    })
}
