//! A session for one question.
//!
//! When whoever asked has left, its future is dropped, but the statement would run on and the session with it. So a
//! session is given back only once it has answered. One that is dropped before, for this or by an error, is closed, and
//! the server ends its statement as soon as it looks for its client (`client_connection_check_interval`).

use std::ops::{Deref, DerefMut};

use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};

/// A session of a pool, at work.
pub struct Asking {
    session: PoolConnection<Postgres>,
    is_answered: bool,
}

impl Asking {
    /// Takes one.
    pub async fn of(pool: &PgPool) -> sqlx::Result<Self> {
        Ok(Self { session: pool.acquire().await?, is_answered: false })
    }

    /// Gives the session back: nothing runs in it.
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
