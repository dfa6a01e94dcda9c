//! Indexes while much is loaded: nobody reads the store, so they are taken away, and made again from all rows at once.

use sqlx::{PgConnection, Row as _};

use crate::{batch::own, error::Result};

/// Takes away the indexes of the tables by month, but for those that keep rows unique. Returns how to make them again.
pub(super) async fn take_away(connection: &mut PgConnection) -> Result<Vec<String>> {
    let indexes = sqlx::query(
        "SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS made FROM pg_index \
         WHERE indrelid IN ('cn_relay.events'::regclass, 'cn_relay.event_topics'::regclass, \
         'cn_relay.event_tags'::regclass) AND NOT indisunique",
    )
    .fetch_all(&mut *connection)
    .await?;
    let names = indexes.iter().map(|index| index.try_get::<String, _>("name")).collect::<sqlx::Result<Vec<_>>>()?;
    sqlx::raw_sql(own(format!("DROP INDEX {}", names.join(", ")))).execute(connection).await?;
    // The server tells it for the table alone; what is wanted are the months.
    let made = indexes.iter().map(|index| Ok(index.try_get::<String, _>("made")?.replacen(" ON ONLY ", " ON ", 1)));
    made.collect()
}

/// Makes them again, whatever time it takes.
pub(super) async fn make(indexes: Vec<String>, connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *connection).await?;
    for index in indexes {
        sqlx::raw_sql(own(index)).execute(&mut *connection).await?;
    }
    Ok(())
}
