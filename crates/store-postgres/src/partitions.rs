//! Monthly partitions: created before their events arrive, dropped whole when nothing in them is kept any more (P-7).

use kukuri_domain::Millis;
use kukuri_postgres::{Session, SqlRow};

use crate::{
    columns::{Class, Column as _, ReadColumn as _, from_columns, query},
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
    fn of(class: Class, moment: Millis) -> Self {
        let (begins_at, ends_at) = (months::begin_of(moment), months::end_of(moment));
        Self { class, begins_at, ends_at, name: months::name_of(moment) }
    }

    pub(crate) fn read(row: &SqlRow) -> Result<Self> {
        Ok(from_columns!(row => Self { class, begins_at, ends_at, name }))
    }

    /// The partition's table under one of [`TABLES`].
    pub(crate) fn table(&self, table: &str) -> String {
        format!("cn_relay.{table}_{}_{}", self.class.as_str(), self.name)
    }

    /// The side table that holds the partition's rows after it is detached.
    pub(crate) fn side_table(&self) -> String {
        format!("leaving_{}_{}", self.class.as_str(), self.name)
    }
}

/// Ensures that the month of a moment and the next month have partitions.
pub(crate) async fn open(moment: Millis, session: &Session) -> Result<()> {
    for class in Class::ALL {
        open_one(class, moment, session).await?;
        open_one(class, months::end_of(moment), session).await?;
    }
    Ok(())
}

/// Ensures that the month of a moment has a partition in one class. Readers do not wait: attaching an empty table takes
/// no lock that they need.
pub(crate) async fn open_one(class: Class, moment: Millis, session: &Session) -> Result<()> {
    let partition = Partition::of(class, moment);
    let known = query(
        "INSERT INTO cn_relay.partitions (class, begins_at, ends_at, name) VALUES ($1, $2, $3, $4) \
         ON CONFLICT DO NOTHING",
    )
    .bind(class.to_sql())
    .bind(partition.begins_at.to_sql())
    .bind(partition.ends_at.to_sql())
    .bind(&partition.name)
    .execute(session)
    .await?;
    if known == 0 {
        return Ok(());
    }
    for table in TABLES {
        let (name, class) = (partition.table(table), class.as_str());
        let create = format!(
            "CREATE TABLE {name} (LIKE cn_relay.{table} INCLUDING DEFAULTS); \
             ALTER TABLE cn_relay.{table}_{class} ATTACH PARTITION {name} FOR VALUES FROM ({}) TO ({})",
            partition.begins_at.0, partition.ends_at.0
        );
        session.run(create).await?;
    }
    Ok(())
}
