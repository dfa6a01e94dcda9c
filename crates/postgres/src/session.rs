//! A session: one connection to a server. Statements are prepared once for each session; several may be sent before the answer to
//! the first has come ([`Session::pipeline`]).
//!
//! If a caller drops its future, the statement keeps running on the server. So a session that is dropped closes its connection
//! at once, and the server ends the statement at its next client check (`client_connection_check_interval`).

use std::{
    borrow::Cow,
    collections::HashMap,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::{Stream, StreamExt, TryStreamExt, future::try_join_all};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle, time::timeout};
use tokio_postgres::{
    AsyncMessage, Client, RowStream, Statement,
    row::RowIndex,
    types::{FromSql, ToSql},
};

use crate::{SessionError, tls::Tls};

type Result<T, E = SessionError> = std::result::Result<T, E>;

/// Prepared statements of a session are dropped when there are more than this many: filters have many forms.
const MAX_STATEMENTS: usize = 256;
/// How long a session that is closed may take to say so to the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open session. Dropping it closes the connection at once.
pub struct Session {
    client: Client,
    /// By their text.
    statements: Mutex<HashMap<String, Statement>>,
    driver: Driver,
    /// Why the connection ended.
    end: Arc<Mutex<Option<SessionError>>>,
    pub(crate) opened_at: Instant,
}

/// Wakes its holder when the server notifies the session.
pub struct Notifications(mpsc::Receiver<()>);

impl Notifications {
    /// Waits for a notification. Several that came meanwhile are one. `None`: the session has ended.
    pub async fn next(&mut self) -> Option<()> {
        self.0.recv().await
    }
}

/// The task that reads and writes the connection. Without it the connection is closed.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    pub(crate) async fn open(
        config: &tokio_postgres::Config,
        tls: Tls,
        runtime: &Handle,
    ) -> Result<(Self, Notifications)> {
        let (client, mut connection) = config.connect(tls).await?;
        let end = Arc::<Mutex<Option<SessionError>>>::default();
        let (notify, notifications) = mpsc::channel(1);
        let reason = Arc::clone(&end);
        let driver = runtime.spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    // A full queue wakes the holder just as well.
                    Ok(AsyncMessage::Notification(_)) => drop(notify.try_send(())),
                    Ok(_) => {}
                    Err(error) => {
                        *reason.lock() = Some(error.into());
                        return;
                    }
                }
            }
        });
        let (driver, opened_at) = (Driver(driver), Instant::now());
        let session = Self { client, statements: Mutex::default(), driver, end, opened_at };
        Ok((session, Notifications(notifications)))
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Why the session has ended.
    pub fn ended(&self) -> SessionError {
        let reason = self.end.lock().clone();
        reason.unwrap_or_else(|| SessionError::Disconnected("the connection was closed".to_owned()))
    }

    /// Closes the session, and says so to the server.
    pub async fn close(self) {
        let Self { client, mut driver, .. } = self;
        drop(client);
        // A server that does not answer is left.
        let _ = timeout(CLOSE_TIMEOUT, &mut driver.0).await;
    }

    /// Runs statements without values, separated by semicolons. Their rows are ignored.
    pub async fn run(&self, sql: impl AsRef<str>) -> Result<()> {
        self.client.batch_execute(sql.as_ref()).await.map_err(|error| self.explain(error))
    }

    /// Sends statements one after the other without waiting for answers in between, and returns the rows of each. After a failed
    /// statement those behind it are executed as well, unless they are in the same transaction: then they fail, too. Returns the
    /// first error.
    pub async fn pipeline(&self, statements: Vec<SqlQuery<'_>>) -> Result<Vec<Vec<SqlRow>>> {
        let prepared = try_join_all(statements.iter().map(|query| self.prepare(query))).await?;
        let mut answers = Vec::with_capacity(statements.len());
        for (query, statement) in statements.into_iter().zip(prepared) {
            // A future sends its statement when it is first polled.
            let mut answer = Box::pin(self.answer(query, statement));
            let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
            answers.push((answer, first));
        }
        let mut all = Vec::with_capacity(answers.len());
        for (answer, first) in answers {
            all.push(match first {
                Poll::Ready(rows) => rows?,
                Poll::Pending => answer.await?,
            });
        }
        Ok(all)
    }

    async fn answer(&self, query: SqlQuery<'_>, statement: Option<Statement>) -> Result<Vec<SqlRow>> {
        let Some(statement) = statement else { return self.run(&query.sql).await.map(|()| Vec::new()) };
        let rows = self.client.query_raw(&statement, query.values).await.map_err(|error| self.explain(error))?;
        rows.map_ok(SqlRow).map_err(|error| self.explain(error)).try_collect().await
    }

    /// `None`: the statement has no values and may be several.
    async fn prepare(&self, query: &SqlQuery<'_>) -> Result<Option<Statement>> {
        if query.is_plain {
            return Ok(None);
        }
        if let Some(statement) = self.statements.lock().get(&*query.sql) {
            return Ok(Some(statement.clone()));
        }
        let statement = self.client.prepare(&query.sql).await.map_err(|error| self.explain(error))?;
        let mut statements = self.statements.lock();
        if statements.len() >= MAX_STATEMENTS {
            statements.clear();
        }
        statements.insert(query.sql.clone().into_owned(), statement.clone());
        Ok(Some(statement))
    }

    /// The server's own reason, if it ended the session.
    fn explain(&self, error: tokio_postgres::Error) -> SessionError {
        if error.is_closed()
            && let Some(reason) = &*self.end.lock()
        {
            return reason.clone();
        }
        error.into()
    }
}

/// A statement and its values, in order: `$1`, `$2`, …
pub struct SqlQuery<'q> {
    sql: Cow<'static, str>,
    values: Vec<Box<dyn ToSql + Sync + Send + 'q>>,
    is_plain: bool,
}

/// A statement. It is prepared once for each session.
pub fn query<'q>(sql: impl Into<Cow<'static, str>>) -> SqlQuery<'q> {
    SqlQuery { sql: sql.into(), values: Vec::new(), is_plain: false }
}

/// Statements without values and rows, separated by semicolons, for [`Session::pipeline`].
pub fn plain<'q>(sql: impl Into<Cow<'static, str>>) -> SqlQuery<'q> {
    SqlQuery { is_plain: true, ..query(sql) }
}

impl<'q> SqlQuery<'q> {
    /// Adds the next value.
    pub fn bind(mut self, value: impl ToSql + Sync + Send + 'q) -> Self {
        self.values.push(Box::new(value));
        self
    }

    /// Streams the rows.
    pub async fn fetch(self, session: &Session) -> Result<Rows<'_>> {
        let statement = session.prepare(&self).await?;
        let statement =
            statement.ok_or_else(|| SessionError::Unexpected("a plain statement has no rows".to_owned()))?;
        let rows = session.client.query_raw(&statement, self.values).await;
        Ok(Rows { session, rows: Box::pin(rows.map_err(|error| session.explain(error))?) })
    }

    /// All rows.
    pub async fn fetch_all(self, session: &Session) -> Result<Vec<SqlRow>> {
        self.fetch(session).await?.try_collect().await
    }

    /// The first row, if there is one.
    pub async fn fetch_optional(self, session: &Session) -> Result<Option<SqlRow>> {
        Ok(self.fetch_all(session).await?.into_iter().next())
    }

    /// The first row.
    pub async fn fetch_one(self, session: &Session) -> Result<SqlRow> {
        let row = self.fetch_optional(session).await?;
        row.ok_or_else(|| SessionError::Unexpected("a statement returned no row".to_owned()))
    }

    /// The first column of the first row.
    pub async fn fetch_value<T: for<'v> FromSql<'v>>(self, session: &Session) -> Result<T> {
        self.fetch_one(session).await?.get(0)
    }

    /// Executes the statement and returns how many rows it changed.
    pub async fn execute(self, session: &Session) -> Result<u64> {
        let mut rows = self.fetch(session).await?;
        while rows.try_next().await?.is_some() {}
        Ok(rows.changed())
    }
}

/// A row of an answer.
#[derive(Debug)]
pub struct SqlRow(tokio_postgres::Row);

impl SqlRow {
    /// How many columns it has.
    pub fn column_count(&self) -> usize {
        self.0.len()
    }

    /// The value of a column, by name or number.
    pub fn get<'r, T: FromSql<'r>>(&'r self, column: impl RowIndex + std::fmt::Display) -> Result<T> {
        Ok(self.0.try_get(column)?)
    }
}

/// The rows of an answer, as they come.
pub struct Rows<'s> {
    session: &'s Session,
    rows: Pin<Box<RowStream>>,
}

impl Rows<'_> {
    /// How many rows the statement changed. Known once all rows were read.
    fn changed(&self) -> u64 {
        self.rows.rows_affected().unwrap_or_default()
    }
}

impl Stream for Rows<'_> {
    type Item = Result<SqlRow>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let row = self.rows.poll_next_unpin(context);
        row.map(|row| row.map(|row| row.map(SqlRow).map_err(|error| self.session.explain(error))))
    }
}
