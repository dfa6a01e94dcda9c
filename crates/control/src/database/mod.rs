//! The database of the control plane: SQLite in a file, or Postgres. Both take the same statements and the same tables.
//!
//! - A statement is SQL that both speak, with values `$1`, `$2`, …; tables have the names of Postgres (`cn_user.plans`), which are
//!   prefixes on SQLite (`cn_user_plans`).
//! - A change of one row is one conditional statement ([`Database::change`]). Whatever takes several statements is a
//!   [`Transaction`]; there is one at a time, over all processes on the database, so that its reads stay true until it commits.
//! - Every transaction has a revision, higher than that of any committed before it. Rows that are held in memory carry it, and
//!   readers ask for what is newer ([`crate::people`]).

mod postgres;
mod schema;
mod sqlite;
mod transfer;
mod value;

use std::{borrow::Cow, path::Path, time::Duration};

pub use postgres::PostgresSettings;
pub use value::{FromValue, Row, Value};

use self::{postgres::Postgres, sqlite::Sqlite};
use crate::{Error, Result};

/// A transaction that waits this long for the one before it fails.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A statement and its values.
#[derive(Clone, Debug)]
pub struct Statement {
    sql: Cow<'static, str>,
    values: Vec<Value>,
}

/// A statement without values yet.
pub fn sql(text: impl Into<Cow<'static, str>>) -> Statement {
    Statement { sql: text.into(), values: Vec::new() }
}

impl Statement {
    /// Adds the next value: `$1`, `$2`, …
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Postgres has no texts with NUL. No database gets one, so that both answer the same.
    fn check(&self) -> Result<()> {
        let has_nul = |value: &Value| matches!(value, Value::Text(text) if text.contains('\0'));
        if self.values.iter().any(has_nul) { Err(Error::Nul) } else { Ok(()) }
    }
}

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Database(Backend);

#[derive(Clone)]
enum Backend {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// Opens the SQLite database in a file, which is created if there is none, and brings its tables up to date.
    pub async fn open_sqlite(path: &Path) -> Result<Self> {
        Ok(Self(Backend::Sqlite(Sqlite::open(path).await?)))
    }

    /// Connects to a Postgres database, and brings its tables up to date if the settings allow it.
    pub async fn connect_postgres(url: &str, settings: PostgresSettings) -> Result<Self> {
        Ok(Self(Backend::Postgres(Postgres::connect(url, settings).await?)))
    }

    /// Creates or migrates the tables in a Postgres database. Returns the versions before and after.
    pub async fn migrate_postgres(url: &str) -> Result<(u32, u32)> {
        Ok(schema::POSTGRES.run_at(url, LOCK_TIMEOUT).await?)
    }

    /// The rows of a statement that changes nothing.
    pub async fn read(&self, statement: Statement) -> Result<Vec<Row>> {
        statement.check()?;
        match &self.0 {
            Backend::Sqlite(sqlite) => sqlite.read(statement).await,
            Backend::Postgres(postgres) => postgres.read(statement).await,
        }
    }

    /// The rows of statements that change nothing and see the same state.
    pub async fn read_together(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        statements.iter().try_for_each(Statement::check)?;
        match &self.0 {
            Backend::Sqlite(sqlite) => sqlite.read_together(statements).await,
            Backend::Postgres(postgres) => postgres.read_together(statements).await,
        }
    }

    /// The first row of a statement that changes nothing.
    pub async fn read_first(&self, statement: Statement) -> Result<Option<Row>> {
        Ok(self.read(statement).await?.into_iter().next())
    }

    /// Executes one statement that changes rows, and commits. Returns the rows that it returns.
    pub async fn change(&self, statement: Statement) -> Result<Vec<Row>> {
        statement.check()?;
        match &self.0 {
            Backend::Sqlite(sqlite) => sqlite.change(statement).await,
            Backend::Postgres(postgres) => postgres.change(statement).await,
        }
    }

    /// Begins a transaction, when the one before it has ended. It is rolled back unless it is committed.
    pub async fn begin(&self) -> Result<Transaction> {
        let session = match &self.0 {
            Backend::Sqlite(sqlite) => Session::Sqlite(sqlite.begin().await?),
            Backend::Postgres(postgres) => Session::Postgres(Box::new(postgres.begin().await?)),
        };
        let mut transaction = Transaction { session, revision: 0 };
        // This row is the lock on Postgres.
        let next = sql("UPDATE cn_admin.revision SET value = value + 1 RETURNING value");
        let row = transaction.fetch(next).await?.into_iter().next();
        let row = row.ok_or_else(|| Error::Damaged("cn_admin.revision has no row".to_owned()))?;
        transaction.revision = row.get(0)?;
        Ok(transaction)
    }

    /// Writes a consistent copy into a file that does not exist yet. For SQLite only.
    pub async fn backup_sqlite(&self, file: &Path) -> Result<()> {
        match &self.0 {
            Backend::Sqlite(sqlite) => sqlite.backup(file).await,
            Backend::Postgres(_) => Err(Error::Unsupported("a database on Postgres is backed up by pg_dump")),
        }
    }

    /// Ends all sessions.
    pub async fn close(&self) {
        match &self.0 {
            Backend::Sqlite(sqlite) => sqlite.close().await,
            Backend::Postgres(postgres) => postgres.close().await,
        }
    }
}

/// The one transaction that changes the database now.
pub struct Transaction {
    session: Session,
    revision: i64,
}

enum Session {
    Sqlite(sqlite::SqliteTransaction),
    Postgres(Box<postgres::PostgresTransaction>),
}

impl Transaction {
    /// The transaction's revision.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The rows that a statement returns.
    pub async fn fetch(&mut self, statement: Statement) -> Result<Vec<Row>> {
        statement.check()?;
        match &mut self.session {
            Session::Sqlite(session) => session.fetch(statement).await,
            Session::Postgres(session) => session.fetch(statement).await,
        }
    }

    /// The first row that a statement returns.
    pub async fn fetch_first(&mut self, statement: Statement) -> Result<Option<Row>> {
        Ok(self.fetch(statement).await?.into_iter().next())
    }

    /// Executes a statement whose rows do not matter.
    pub async fn execute(&mut self, statement: Statement) -> Result<()> {
        self.fetch(statement).await.map(drop)
    }

    /// Commits. Durable when this returns.
    pub async fn commit(self) -> Result<()> {
        match self.session {
            Session::Sqlite(session) => session.commit().await,
            Session::Postgres(session) => session.commit().await,
        }
    }
}
