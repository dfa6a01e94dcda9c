//! Indexes during a large load: no query reads the store, so indexes are dropped and rebuilt from all rows at once.

use sqlx::{PgConnection, Row as _};

use crate::{batch::own, error::Result};

/// Drops the indexes of the monthly tables, except unique ones. Returns the statements that create them again.
pub(super) async fn drop_all(connection: &mut PgConnection) -> Result<Vec<String>> {
    let indexes = sqlx::query(
        "SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS made FROM pg_index \
         WHERE indrelid IN ('cn_relay.events'::regclass, 'cn_relay.event_topics'::regclass, \
         'cn_relay.event_tags'::regclass) AND NOT indisunique",
    )
    .fetch_all(&mut *connection)
    .await?;
    let names = indexes.iter().map(|index| index.try_get::<String, _>("name")).collect::<sqlx::Result<Vec<_>>>()?;
    sqlx::raw_sql(own(format!("DROP INDEX {}", names.join(", ")))).execute(connection).await?;
    // The server defines the index for the parent table only; the partitions need it, too.
    let made = indexes.iter().map(|index| Ok(index.try_get::<String, _>("made")?.replacen(" ON ONLY ", " ON ", 1)));
    made.collect()
}

/// Creates the indexes again, without a statement timeout.
pub(super) async fn make(indexes: Vec<String>, connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *connection).await?;
    for index in indexes {
        sqlx::raw_sql(own(index)).execute(&mut *connection).await?;
    }
    Ok(())
}
