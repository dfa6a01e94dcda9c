//! A pooled session that runs one query.
//!
//! If a caller drops its future, the statement keeps running on the server and keeps the session busy. So a session
//! returns to the pool only after its query has finished. A session that is dropped earlier, by cancellation or by an
//! error, is closed, and the server ends its statement at the next client check (`client_connection_check_interval`).

use std::ops::{Deref, DerefMut};

use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};

/// A pooled session with a query in progress. Dropping it closes the session.
pub struct Asking {
    session: PoolConnection<Postgres>,
    is_answered: bool,
}

impl Asking {
    /// Acquires a session from the pool.
    pub async fn of(pool: &PgPool) -> sqlx::Result<Self> {
        Ok(Self { session: pool.acquire().await?, is_answered: false })
    }

    /// Returns the session to the pool. Call it when no statement is running.
    pub fn done(mut self) {
        self.is_answered = true;
    }
}

impl Deref for Asking {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.session
    }
}

impl DerefMut for Asking {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.session
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_answered {
            self.session.close_on_drop();
        }
    }
}
