//! Internal errors of this store, classified by how to handle them.

use kukuri_postgres::SessionError;
use kukuri_store::StoreError;

/// An error below the store port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server or the connection to it failed.
    #[error("{0}")]
    Backend(#[from] SessionError),
    /// Already an error of the port.
    #[error("{0}")]
    Port(#[from] StoreError),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure for data that this store never writes.
pub(crate) fn damaged(what: impl Into<String>) -> Failure {
    Failure::Port(StoreError::Damaged(what.into()))
}

impl Failure {
    /// Whether the server sent a SQLSTATE that begins with one of these.
    fn has_code(&self, beginnings: &[&str]) -> bool {
        matches!(self, Self::Backend(error) if error.has_code(beginnings))
    }

    /// The server's disk is full: the transaction is rolled back, the store is unchanged.
    pub(crate) fn is_full(&self) -> bool {
        self.has_code(&["53100"])
    }

    /// The server ended a statement by its timeout, or the budget of a query was spent (Y-2).
    pub(crate) fn is_too_costly(&self) -> bool {
        matches!(self, Self::Port(StoreError::TooCostly)) || self.has_code(&["57014"])
    }

    /// The session has ended: the server closed it, or the connection is broken.
    pub(crate) fn is_disconnected(&self) -> bool {
        matches!(self, Self::Backend(error) if error.is_disconnected())
    }

    /// A lock timeout on a table.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.has_code(&["55P03"])
    }

    /// The server rejects the data (data exceptions, constraints, its own limits): some event of the batch causes it,
    /// and the others may succeed without that event.
    pub(crate) fn is_of_an_event(&self) -> bool {
        matches!(self, Self::Port(StoreError::Panicked)) || self.has_code(&["22", "23", "54"])
    }
}

impl From<kukuri_postgres::Error> for Failure {
    fn from(error: kukuri_postgres::Error) -> Self {
        use kukuri_postgres::Error;
        Self::Port(match error {
            Error::Backend(error) => return Self::Backend(error),
            Error::NotOpened { name, reason } => StoreError::NotOpened { path: name.into(), reason },
            Error::Newer { name, found, supported } => StoreError::Newer { path: name.into(), found, supported },
            Error::Older { name, found, supported } => StoreError::Older { path: name.into(), found, supported },
        })
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        if failure.is_full() {
            return Self::Full(failure.to_string());
        }
        match failure {
            Failure::Port(error) => error,
            other => Self::Backend(Box::new(other)),
        }
    }
}
