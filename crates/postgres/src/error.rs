//! Why a database can't be used, and why a statement failed.

use std::{error::Error as _, io, time::Duration};

/// Why a database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server or the connection to it failed.
    #[error(transparent)]
    Backend(#[from] SessionError),
    /// No session could be opened.
    #[error("{name}: {reason}")]
    NotOpened {
        /// Display name of the database.
        name: String,
        /// One line, without the password.
        reason: String,
    },
    /// A newer program created the tables.
    #[error("{name}: its tables have version {found}, this program knows {supported}")]
    Newer {
        /// Display name of the database.
        name: String,
        /// Version of the tables.
        found: u32,
        /// Newest version that this program knows.
        supported: u32,
    },
    /// The tables are missing or of an older version, and migrations are not allowed now.
    #[error("{name}: its tables have version {found}, this program needs {supported}: bring them up to date first")]
    Older {
        /// Display name of the database.
        name: String,
        /// Version of the tables.
        found: u32,
        /// Version that this program needs.
        supported: u32,
    },
}

/// Why a statement failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// The server refused the statement, or ended the session.
    #[error("{message}")]
    Refused {
        /// The SQLSTATE.
        code: String,
        /// The server's message.
        message: String,
    },
    /// The session could not be encrypted as the URL asks for.
    #[error("no encrypted connection: {0}")]
    NotEncrypted(String),
    /// The server can't be reached, or the connection broke.
    #[error("{0}")]
    Disconnected(String),
    /// All sessions of the pool were busy for this long.
    #[error("no session was free within {0:?}")]
    Busy(Duration),
    /// A value does not fit its column or parameter, or the server does not speak as expected.
    #[error("{0}")]
    Unexpected(String),
}

impl SessionError {
    /// Whether the server sent a SQLSTATE that begins with one of these.
    pub fn has_code(&self, beginnings: &[&str]) -> bool {
        matches!(self, Self::Refused { code, .. } if beginnings.iter().any(|beginning| code.starts_with(beginning)))
    }

    /// Whether the session has ended: the server closed it, or the connection is broken.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected(_)) || self.has_code(&["57P01", "57P02", "57P03"])
    }
}

impl From<tokio_postgres::Error> for SessionError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refused) = error.as_db_error() {
            return Self::Refused { code: refused.code().code().to_owned(), message: refused.message().to_owned() };
        }
        // The kinds of errors are not public. Causes say more than these headings.
        let (heading, cause) = (error.to_string(), error.source().map(ToString::to_string));
        let reason = cause.unwrap_or_else(|| heading.clone());
        if heading.contains("TLS") {
            return Self::NotEncrypted(reason);
        }
        let is_io = error.source().is_some_and(|cause| cause.is::<io::Error>());
        if is_io || error.is_closed() { Self::Disconnected(reason) } else { Self::Unexpected(reason) }
    }
}
