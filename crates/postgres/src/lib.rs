//! Code shared by every component that stores data in PostgreSQL.
//!
//! # Layout
//!
//! - `server`: the first session, or the reason why there is none. `session`: a pooled session that runs one query.
//! - `migrations`: schema versions and migrations.

mod migrations;
mod server;
mod session;

pub use migrations::Migrations;
pub use server::{Server, name_of};
pub use session::QuerySession;

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server or the connection to it failed.
    #[error("{0}")]
    Backend(#[from] sqlx::Error),
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

/// As a `bigint`: Postgres has no unsigned integers. Larger values are clamped.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
