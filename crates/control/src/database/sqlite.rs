//! SQLite, in a file of one machine. Two connections, each with a thread of its own: one reads, one changes.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use kukuri_postgres::Migrations;
use rusqlite::{CachedStatement, Connection, OpenFlags, types::ValueRef};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use super::{LOCK_TIMEOUT, Row, Statement, Value, schema};
use crate::{Error, Result};

/// Statements that a connection keeps prepared.
const PREPARED_STATEMENTS: usize = 128;
/// In WAL mode readers do not wait for the writer. FULL: a commit is durable when it returns.
const SETTINGS: &str = "PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA foreign_keys = on; \
    PRAGMA trusted_schema = off; PRAGMA secure_delete = on;";

#[derive(Clone)]
pub(super) struct Sqlite {
    reader: Worker,
    writer: Worker,
    /// One transaction at a time.
    turn: Arc<Semaphore>,
}

impl Sqlite {
    pub(super) async fn open(path: &Path) -> Result<Self> {
        let writer = Worker::start("control-writer", path.to_owned())?;
        writer.run(|connection| migrate(connection, &schema::SQLITE)).await?;
        let reader = Worker::start("control-reader", path.to_owned())?;
        reader.run(|connection| Ok(connection.execute_batch("PRAGMA query_only = on")?)).await?;
        Ok(Self { reader, writer, turn: Arc::new(Semaphore::new(1)) })
    }

    pub(super) async fn read(&self, statement: Statement) -> Result<Vec<Row>> {
        self.reader.run(move |connection| fetch(connection, &statement)).await
    }

    pub(super) async fn read_together(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        let read = move |connection: &mut Connection| {
            // Dropped at the end: it has read only.
            let transaction = connection.transaction()?;
            statements.iter().map(|statement| fetch(&transaction, statement)).collect()
        };
        self.reader.run(read).await
    }

    pub(super) async fn change(&self, statement: Statement) -> Result<Vec<Row>> {
        let _turn = self.take_turn().await?;
        self.writer.run(move |connection| fetch(connection, &statement)).await
    }

    pub(super) async fn begin(&self) -> Result<SqliteTransaction> {
        let turn = self.take_turn().await?;
        // Before it begins: a caller that goes while it begins has it rolled back.
        let transaction = SqliteTransaction { writer: Some(self.writer.clone()), _turn: turn };
        // Another process may change the file, too.
        self.writer.run(|connection| Ok(connection.execute_batch("BEGIN IMMEDIATE")?)).await?;
        Ok(transaction)
    }

    pub(super) async fn backup(&self, file: &Path) -> Result<()> {
        // A connection that only reads may not write the copy either.
        let _turn = self.take_turn().await?;
        let file = file.to_owned();
        let copy = move |connection: &mut Connection| {
            connection.execute("VACUUM INTO ?1", [file.to_string_lossy()])?;
            Ok(())
        };
        self.writer.run(copy).await
    }

    pub(super) async fn close(&self) {
        self.turn.close();
    }

    async fn take_turn(&self) -> Result<OwnedSemaphorePermit> {
        let turn = timeout(LOCK_TIMEOUT, Arc::clone(&self.turn).acquire_owned()).await;
        turn.map_err(|_| Error::Busy)?.map_err(|_| Error::Closed)
    }
}

/// A transaction. It is rolled back when it is dropped.
pub(super) struct SqliteTransaction {
    /// `None`: it has ended.
    writer: Option<Worker>,
    _turn: OwnedSemaphorePermit,
}

impl SqliteTransaction {
    pub(super) async fn fetch(&mut self, statement: Statement) -> Result<Vec<Row>> {
        let writer = self.writer.as_ref().ok_or(Error::Closed)?;
        writer.run(move |connection| fetch(connection, &statement)).await
    }

    pub(super) async fn commit(mut self) -> Result<()> {
        let writer = self.writer.take().ok_or(Error::Closed)?;
        let commit = |connection: &mut Connection| {
            connection.execute_batch("COMMIT").map_err(|error| {
                // A commit that failed may leave the transaction open.
                let _ = connection.execute_batch("ROLLBACK");
                error.into()
            })
        };
        writer.run(commit).await
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.send(Box::new(|connection| {
                // A statement may have ended the transaction by failing.
                let _ = connection.execute_batch("ROLLBACK");
            }));
        }
    }
}

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

/// A connection and its thread, which ends with the last clone.
#[derive(Clone)]
struct Worker(mpsc::Sender<Work>);

impl Worker {
    fn start(name: &str, path: PathBuf) -> Result<Self> {
        let mut connection = open(&path)?;
        let (sender, receiver) = mpsc::channel::<Work>();
        let run = move || receiver.into_iter().for_each(|work| work(&mut connection));
        thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|error| Error::Database(error.to_string()))?;
        Ok(Self(sender))
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Box::new(move |connection| {
            // The caller may have gone.
            let _ = answer.send(work(connection));
        }));
        answered.await.map_err(|_| Error::Closed)?
    }

    fn send(&self, work: Work) {
        // The thread lives as long as this sender.
        let _ = self.0.send(work);
    }
}

fn open(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(LOCK_TIMEOUT)?;
        connection.execute_batch(SETTINGS)?;
        connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
        Ok(connection)
    });
    opened.map_err(|error| Error::NotOpened { place: path.display().to_string(), reason: error.to_string() })
}

/// Runs the missing migrations, in one transaction.
fn migrate(connection: &mut Connection, migrations: &Migrations) -> Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let supported = migrations.steps.len() as u32;
    if found > supported {
        return Err(Error::Newer { found, supported });
    }
    for (title, step) in &migrations.steps[found as usize..] {
        transaction.execute_batch(&schema::for_sqlite(step))?;
        // A new one is no news.
        if found > 0 {
            tracing::info!(title, "control database migrated");
        }
    }
    transaction.pragma_update(None, "user_version", supported)?;
    Ok(transaction.commit()?)
}

fn fetch(connection: &Connection, statement: &Statement) -> Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(&schema::names_for_sqlite(&statement.sql))?;
    bind(&mut prepared, &statement.values)?;
    let columns = prepared.column_count();
    let mut rows = prepared.raw_query();
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| Ok(value_of(row.get_ref(column)?)));
        all.push(Row(values.collect::<Result<_>>()?));
    }
    Ok(all)
}

/// Binds values by name: SQLite numbers `$2` by its first appearance.
fn bind(prepared: &mut CachedStatement<'_>, values: &[Value]) -> Result<()> {
    for (number, value) in (1..).zip(values) {
        let Some(index) = prepared.parameter_index(&format!("${number}"))? else { continue };
        match value {
            Value::Null => prepared.raw_bind_parameter(index, rusqlite::types::Null)?,
            Value::Integer(number) => prepared.raw_bind_parameter(index, number)?,
            Value::Text(text) => prepared.raw_bind_parameter(index, text)?,
            Value::Bytes(bytes) => prepared.raw_bind_parameter(index, bytes)?,
        }
    }
    Ok(())
}

fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        // No table has a column of this type; a sum may.
        ValueRef::Real(number) => Value::Integer(number as i64),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}
