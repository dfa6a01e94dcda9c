//! A pooled session that runs one query.
//!
//! If a caller drops its future, the statement keeps running on the server and keeps the session busy. So a session
//! returns to the pool only after its query has finished. A session that is dropped earlier, by cancellation or by an
//! error, is closed, and the server ends its statement at the next client check (`client_connection_check_interval`).

use std::ops::{Deref, DerefMut};

use sqlx::{
    PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    query::Query,
};

/// A pooled session with a query in progress. Dropping it closes the session.
pub struct QuerySession {
    session: PoolConnection<Postgres>,
    is_finished: bool,
}

impl QuerySession {
    /// Acquires a session from the pool.
    pub async fn acquire(pool: &PgPool) -> sqlx::Result<Self> {
        Ok(Self { session: pool.acquire().await?, is_finished: false })
    }

    /// All rows of one query.
    pub async fn fetch_all(pool: &PgPool, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Vec<PgRow>> {
        let mut session = Self::acquire(pool).await?;
        let rows = query.fetch_all(&mut *session).await?;
        session.release();
        Ok(rows)
    }

    /// Acquires a session and begins a transaction with this statement. Dropping the session rolls it back.
    pub async fn begin(pool: &PgPool, begin: &'static str) -> sqlx::Result<Self> {
        let mut session = Self::acquire(pool).await?;
        sqlx::raw_sql(begin).execute(&mut *session).await?;
        Ok(session)
    }

    /// Commits the transaction and returns the session to the pool.
    pub async fn commit(mut self) -> sqlx::Result<()> {
        sqlx::raw_sql("COMMIT").execute(&mut *self).await?;
        self.release();
        Ok(())
    }

    /// Rolls the transaction back and returns the session to the pool.
    pub async fn rollback(mut self) -> sqlx::Result<()> {
        sqlx::raw_sql("ROLLBACK").execute(&mut *self).await?;
        self.release();
        Ok(())
    }

    /// Returns the session to the pool. Call it when no statement is running.
    pub fn release(mut self) {
        self.is_finished = true;
    }
}

impl Deref for QuerySession {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.session
    }
}

impl DerefMut for QuerySession {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.session
    }
}

impl Drop for QuerySession {
    fn drop(&mut self) {
        if !self.is_finished {
            self.session.close_on_drop();
        }
    }
}
