//! Failures below the port.

use kukuri_postgres::SessionError;
use kukuri_search::IndexError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server or the connection failed.
    #[error(transparent)]
    Backend(#[from] SessionError),
    /// Already an error of the port.
    #[error(transparent)]
    Port(#[from] IndexError),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// `lock_timeout` has passed.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Backend(error) if error.has_code(&["55P03"]))
    }
}

impl From<Failure> for IndexError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Backend(error) => Self::Backend(Box::new(error)),
            Failure::Port(error) => error,
        }
    }
}
