//! A pool of sessions to one server, with the same settings.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_postgres::Config;

use crate::{
    SessionError, SqlQuery,
    session::{Session, SqlRow, plain},
    tls::Tls,
};

type Result<T, E = SessionError> = std::result::Result<T, E>;

/// Sessions are replaced at this age: the server's memory for a session grows with what it has read.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// Sessions that were not used for this long are closed.
const MAX_IDLE: Duration = Duration::from_secs(10 * 60);

/// Looks at a new session before it is used.
pub type SessionCheck = fn(&Session) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>>;

/// Opens sessions with the same settings.
#[derive(Clone)]
pub(crate) struct Opener {
    /// Reads and writes the connections, whichever thread acquires their sessions.
    pub(crate) runtime: Handle,
    pub(crate) config: Config,
    pub(crate) tls: Tls,
}

/// Sessions to one server.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    opener: Opener,
    name: String,
    max: u32,
    acquire: Duration,
    check: Option<SessionCheck>,
    /// Free sessions, each with the time since when; the one used last is the last.
    free: Mutex<Vec<(Session, Instant)>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(opener: Opener, name: String, max: u32, acquire: Duration, check: Option<SessionCheck>) -> Self {
        let (max, permits) = (max.max(1), Arc::new(Semaphore::new(max.max(1) as usize)));
        Self(Arc::new(Shared { opener, name, max, acquire, check, free: Mutex::default(), permits }))
    }

    /// Most sessions that are open at a time.
    pub fn max_sessions(&self) -> u32 {
        self.0.max
    }

    /// Display name of the database, without the password.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Takes a free session, opens one, or waits for one.
    pub async fn acquire(&self) -> Result<PooledSession> {
        let acquired = timeout(self.0.acquire, async {
            let permit = Arc::clone(&self.0.permits).acquire_owned().await;
            let permit = permit.map_err(|_| SessionError::Disconnected("the store was closed".to_owned()))?;
            let session = match self.take_free() {
                Some(session) => session,
                None => self.open().await?,
            };
            Ok(PooledSession { session, pool: Arc::clone(&self.0), permit })
        });
        acquired.await.unwrap_or(Err(SessionError::Busy(self.0.acquire)))
    }

    /// A free session whose connection is open, as far as is known here.
    fn take_free(&self) -> Option<Session> {
        let mut free = self.0.free.lock();
        free.retain(|(session, since)| {
            !session.is_closed() && session.opened_at.elapsed() < MAX_AGE && since.elapsed() < MAX_IDLE
        });
        free.pop().map(|(session, _)| session)
    }

    async fn open(&self) -> Result<Session> {
        let (session, _) = self.0.opener.open().await?;
        if let Some(check) = self.0.check {
            check(&session).await?;
        }
        Ok(session)
    }

    /// All rows of one statement.
    pub async fn fetch_all(&self, query: SqlQuery<'_>) -> Result<Vec<SqlRow>> {
        let session = self.acquire().await?;
        let rows = query.fetch_all(&session).await?;
        session.release();
        Ok(rows)
    }

    /// Executes one statement and returns how many rows it changed.
    pub async fn execute(&self, query: SqlQuery<'_>) -> Result<u64> {
        let session = self.acquire().await?;
        let changed = query.execute(&session).await?;
        session.release();
        Ok(changed)
    }

    /// The rows of statements that see one snapshot, in one round trip.
    pub async fn snapshot(&self, statements: Vec<SqlQuery<'_>>) -> Result<Vec<Vec<SqlRow>>> {
        let session = self.acquire().await?;
        let count = statements.len();
        let begin = plain("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let all = [begin].into_iter().chain(statements).chain([plain("COMMIT")]).collect();
        let answers = session.pipeline(all).await?;
        session.release();
        Ok(answers.into_iter().skip(1).take(count).collect())
    }

    /// Takes a session and runs statements that begin a transaction.
    pub async fn begin(&self, begin: &str) -> Result<PooledSession> {
        let session = self.acquire().await?;
        session.run(begin).await?;
        Ok(session)
    }

    /// Closes all free sessions. No further one can be acquired.
    pub async fn close(&self) {
        self.0.permits.close();
        let free = std::mem::take(&mut *self.0.free.lock());
        for (session, _) in free {
            session.close().await;
        }
    }
}

/// A session of a pool. It returns there by [`release`](Self::release) or at the end of its transaction; if it is dropped earlier,
/// because a statement failed or its caller was cancelled, it is closed: a statement may still be running, and a transaction
/// is rolled back.
pub struct PooledSession {
    session: Session,
    pool: Arc<Shared>,
    permit: OwnedSemaphorePermit,
}

impl PooledSession {
    /// Returns the session to its pool. Call it when no statement is running, and no transaction is open.
    pub fn release(self) {
        let Self { session, pool, permit } = self;
        if !pool.permits.is_closed() {
            pool.free.lock().push((session, Instant::now()));
        }
        // Only now may another caller look for a free session.
        drop(permit);
    }

    /// Takes the session out of the pool, which may open another one in its place.
    pub fn detach(self) -> Session {
        self.session
    }

    /// Commits the transaction and returns the session.
    pub async fn commit(self) -> Result<()> {
        self.run("COMMIT").await?;
        self.release();
        Ok(())
    }

    /// Rolls the transaction back and returns the session.
    pub async fn rollback(self) -> Result<()> {
        self.run("ROLLBACK").await?;
        self.release();
        Ok(())
    }
}

impl std::ops::Deref for PooledSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}
