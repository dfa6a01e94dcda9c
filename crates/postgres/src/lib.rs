//! What everything that is kept on PostgreSQL shares.
//!
//! # Layout
//!
//! - [`connecting`]: the first session, or why there is none. [`asking`]: a session of a pool, at work.
//! - [`migrating`]: a schema's version, and the way from an older one.

pub mod asking;
pub mod connecting;
pub mod migrating;

pub use asking::Asking;
pub use connecting::{Server, name_of};
pub use migrating::Migrations;

/// A `Result` of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server, or the way to it, failed.
    #[error("{0}")]
    Engine(#[from] sqlx::Error),
    /// There is no session.
    #[error("{name}: {reason}")]
    NotOpened {
        /// What the database is called in messages.
        name: String,
        /// In one line, without a password.
        reason: String,
    },
    /// The tables were made by a newer program.
    #[error("{name}: its tables have version {found}, this program knows {supported}")]
    Newer {
        /// What the database is called in messages.
        name: String,
        /// The version of the tables.
        found: u32,
        /// The newest version this program knows.
        supported: u32,
    },
    /// The tables were made by an older program, or not at all, and may not be changed now.
    #[error("{name}: its tables have version {found}, this program needs {supported}: bring them up to date first")]
    Older {
        /// What the database is called in messages.
        name: String,
        /// The version of the tables.
        found: u32,
        /// The version this program needs.
        supported: u32,
    },
}
