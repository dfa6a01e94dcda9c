//! Failures below the port.

use kukuri_search::IndexError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server or the connection failed, or the tables are not for this program.
    #[error(transparent)]
    Server(#[from] kukuri_postgres::Error),
    /// The copy is not as this instance last saw it.
    #[error("another process has written to the index since")]
    Overtaken,
    /// There is no copy to fill or to switch to.
    #[error("no rebuild was begun, or another process has begun one since")]
    NotBegun,
    /// A stored value is not one that this program writes.
    #[error("{0}")]
    Damaged(&'static str),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// `lock_timeout` has passed.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        let Self::Server(kukuri_postgres::Error::Backend(sqlx::Error::Database(error))) = self else { return false };
        error.code().as_deref() == Some("55P03")
    }

    /// Converts to the port's error; `name`: the database.
    pub(crate) fn into_index_error(self, name: &str) -> IndexError {
        match self {
            Self::Overtaken => IndexError::Overtaken(name.to_owned()),
            Self::NotBegun => IndexError::NotBegun(name.to_owned()),
            Self::Damaged(what) => IndexError::Damaged(what.to_owned()),
            Self::Server(error) => IndexError::Backend(Box::new(error)),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Server(error.into())
    }
}
