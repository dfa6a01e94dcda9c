//! Failures inside this store, told apart by what to do about them.

use kukuri_store::StoreError;

/// A failure below the port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server, or the way to it, failed.
    #[error("{0}")]
    Engine(#[from] sqlx::Error),
    /// Already in the port's words.
    #[error("{0}")]
    Port(#[from] StoreError),
    /// The code that decides panicked.
    #[error("panicked")]
    Panic,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Turns what can't be in a store of ours into a failure.
pub(crate) fn damaged(what: impl Into<String>) -> Failure {
    Failure::Port(StoreError::Damaged(what.into()))
}

impl Failure {
    /// The SQLSTATE, if the server said one.
    fn code(&self) -> Option<String> {
        match self {
            Self::Engine(sqlx::Error::Database(error)) => error.code().map(|code| code.into_owned()),
            _ => None,
        }
    }

    /// There was no room on the server: the transaction is gone, the store is as before.
    pub(crate) fn is_full(&self) -> bool {
        self.code().as_deref() == Some("53100")
    }

    /// A table could not be had in time.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.code().as_deref() == Some("55P03")
    }

    /// The server does not take what it was given (data exceptions, constraints, its own limits): some event of the
    /// batch is to blame, and the others may go in without it.
    pub(crate) fn is_of_an_event(&self) -> bool {
        let of_the_data = |code: String| ["22", "23", "54"].iter().any(|class| code.starts_with(class));
        matches!(self, Self::Panic) || self.code().is_some_and(of_the_data)
    }
}

impl From<kukuri_postgres::Error> for Failure {
    fn from(error: kukuri_postgres::Error) -> Self {
        use kukuri_postgres::Error;
        Self::Port(match error {
            Error::Engine(error) => return Self::Engine(error),
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
            other => Self::Engine(Box::new(other)),
        }
    }
}
