//! Code shared by every component that stores data in PostgreSQL.
//!
//! # Layout
//!
//! - `url`: connection URLs. `tls`: encrypted connections. `server`: the first session, or the reason why there is none.
//! - `session`: a session and its statements. `pool`: sessions for many callers. `error`: why a statement failed.
//! - `values`, `row_set`: values and whole rows in Postgres's binary format.
//! - `migrations`: schema versions and migrations.

mod error;
mod migrations;
mod pool;
mod row_set;
mod server;
mod session;
mod tls;
mod url;
mod values;

pub use error::{Error, SessionError};
pub use migrations::Migrations;
pub use pool::{Pool, PooledSession, SessionCheck};
pub use row_set::{ColumnOf, RowSet};
pub use server::{Listener, Server, name_of};
pub use session::{Notifications, Rows, Session, SqlQuery, SqlRow, plain, query};
pub use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
pub use values::{FixedBytes, signed};

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
