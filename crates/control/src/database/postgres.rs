//! Postgres, in the database of the events or one of its own: a pool that reads, one for single changes, one for transactions.

use std::{error::Error as StdError, time::Duration};

use bytes::BytesMut;
use kukuri_postgres::{FromSql, IsNull, Pool, PooledSession, Server, SqlQuery, SqlRow, ToSql, Type, query};

use super::{LOCK_TIMEOUT, Row, Statement, Value, schema};
use crate::{Error, Result};

/// Sessions that read.
const READERS: u32 = 4;
/// Sessions that change single rows. Transactions have two: one works, one waits for it.
const WRITERS: u32 = 2;
/// Wait for a free session.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// No statement here reads much.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
const SETTINGS: [(&str, &str); 5] = [
    ("statement_timeout", "30s"),
    ("lock_timeout", "10s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("client_min_messages", "warning"),
    ("jit", "off"),
];

/// How a Postgres database is used.
#[derive(Clone, Copy, Debug)]
pub struct PostgresSettings {
    /// Whether missing or older tables are brought up to date. If not, they are an error.
    pub migrate: bool,
}

#[derive(Clone)]
pub(super) struct Postgres {
    readers: Pool,
    writers: Pool,
    transactions: Pool,
}

impl Postgres {
    pub(super) async fn connect(url: &str, settings: PostgresSettings) -> Result<Self> {
        let (server, first) = Server::connect(url, ACQUIRE_TIMEOUT).await?;
        schema::POSTGRES.prepare(&server, &first, settings.migrate).await?;
        first.close().await;
        Ok(Self {
            readers: server.readers(READERS, ACQUIRE_TIMEOUT, STATEMENT_TIMEOUT, &[("jit", "off")]),
            writers: server.pool(WRITERS, ACQUIRE_TIMEOUT, &SETTINGS, None),
            transactions: server.pool(WRITERS, LOCK_TIMEOUT, &SETTINGS, None),
        })
    }

    pub(super) async fn read(&self, statement: Statement) -> Result<Vec<Row>> {
        rows(self.readers.fetch_all(prepared(statement)).await?)
    }

    pub(super) async fn read_together(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        let answers = self.readers.snapshot(statements.into_iter().map(prepared).collect()).await?;
        answers.into_iter().map(rows).collect()
    }

    pub(super) async fn change(&self, statement: Statement) -> Result<Vec<Row>> {
        rows(self.writers.fetch_all(prepared(statement)).await?)
    }

    pub(super) async fn begin(&self) -> Result<PostgresTransaction> {
        Ok(PostgresTransaction(self.transactions.begin("BEGIN").await?))
    }

    pub(super) async fn close(&self) {
        for pool in [&self.readers, &self.writers, &self.transactions] {
            pool.close().await;
        }
    }
}

/// A transaction. If it is dropped its session is closed, and the server rolls it back.
pub(super) struct PostgresTransaction(PooledSession);

impl PostgresTransaction {
    pub(super) async fn fetch(&mut self, statement: Statement) -> Result<Vec<Row>> {
        rows(prepared(statement).fetch_all(&self.0).await?)
    }

    pub(super) async fn commit(self) -> Result<()> {
        Ok(self.0.commit().await?)
    }
}

fn prepared(statement: Statement) -> SqlQuery<'static> {
    statement.values.into_iter().fold(query(statement.sql), |query, value| query.bind(value))
}

fn rows(rows: Vec<SqlRow>) -> Result<Vec<Row>> {
    let read = |row: SqlRow| {
        let values = (0..row.column_count()).map(|column| Ok::<_, Error>(row.get(column)?));
        Ok(Row(values.collect::<Result<_>>()?))
    };
    rows.into_iter().map(read).collect()
}

type Conversion<T> = Result<T, Box<dyn StdError + Sync + Send>>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Conversion<IsNull> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            Self::Integer(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, kind: &Type, out: &mut BytesMut) -> Conversion<IsNull> {
        let fits = match self {
            Self::Null => true,
            Self::Integer(_) => [Type::INT8, Type::INT4].contains(kind),
            Self::Text(_) => [Type::TEXT, Type::VARCHAR].contains(kind),
            Self::Bytes(_) => *kind == Type::BYTEA,
        };
        if fits {
            self.to_sql(kind, out)
        } else {
            Err(format!("a {self:?} was bound to a parameter of type {kind}").into())
        }
    }
}

impl<'v> FromSql<'v> for Value {
    fn from_sql(kind: &Type, raw: &'v [u8]) -> Conversion<Self> {
        Ok(match *kind {
            Type::INT8 => Self::Integer(i64::from_sql(kind, raw)?),
            Type::INT4 => Self::Integer(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => Self::Integer(bool::from_sql(kind, raw)?.into()),
            Type::BYTEA => Self::Bytes(Vec::from_sql(kind, raw)?),
            _ => Self::Text(String::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Conversion<Self> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::BOOL, Type::BYTEA, Type::TEXT, Type::VARCHAR].contains(kind)
    }
}
