//! Failures inside this index.

use kukuri_search::IndexError;

/// A failure below the port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server, or the way to it, failed, or its tables are not for this program.
    #[error(transparent)]
    Server(#[from] kukuri_postgres::Error),
    /// Somebody else has written since this instance last did.
    #[error("overtaken")]
    Overtaken,
    /// There is no copy to fill or to put in place.
    #[error("no index was begun, or another process has begun one since")]
    NotBegun,
    /// What was read is not what this index writes.
    #[error("{0}")]
    Damaged(&'static str),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A table could not be had in time.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        let Self::Server(kukuri_postgres::Error::Engine(sqlx::Error::Database(error))) = self else { return false };
        error.code().as_deref() == Some("55P03")
    }

    /// In the port's words.
    pub(crate) fn of(self, name: &str) -> IndexError {
        match self {
            Self::Overtaken => IndexError::Locked(name.to_owned()),
            Self::Damaged(what) => IndexError::Damaged(what.to_owned()),
            other => IndexError::Engine(Box::new(other)),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Server(error.into())
    }
}
