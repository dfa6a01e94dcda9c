//! The first session: whether there is a server that takes us, and one line that says so if not. Never the password.

use std::{io, str::FromStr, time::Duration};

use kukuri_store::StoreError;
use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tokio::time::timeout;

use crate::error::{Failure, Result};

/// A server, and what it is called in messages.
pub(crate) struct Server {
    pub(crate) options: PgConnectOptions,
    pub(crate) name: String,
}

impl Server {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let options = PgConnectOptions::from_str(url).map_err(|error| not_opened("postgres", reason(&error)))?;
        let options = options.application_name("kukuri-node").disable_statement_logging();
        Ok(Self { name: name_of(&options), options })
    }

    /// Opens a session, or tells why that can't be.
    pub(crate) async fn connect(&self, within: Duration) -> Result<PgConnection> {
        match timeout(within, self.options.connect()).await {
            Ok(connected) => connected.map_err(|error| not_opened(&self.name, reason(&error))),
            Err(_) => Err(not_opened(&self.name, format!("it did not answer within {within:?}"))),
        }
    }

    /// Says what right is missing, if that is what a failure to make tables is about.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        match &failure {
            Failure::Engine(error) if code(error).as_deref() == Some("42501") => not_opened(
                &self.name,
                format!("{}: the role has to own the schema cn_relay, or may create it", reason(error)),
            ),
            _ => failure,
        }
    }
}

/// What a store is called in messages: without a password.
pub(crate) fn name_of(options: &PgConnectOptions) -> String {
    let place = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    format!("postgres {place}/{}", options.get_database().unwrap_or_default())
}

fn not_opened(name: &str, reason: String) -> Failure {
    Failure::Port(StoreError::NotOpened { path: name.into(), reason })
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

/// Why there is no session, in one line.
fn reason(error: &sqlx::Error) -> String {
    let reason = match error {
        sqlx::Error::Configuration(error) => format!("this URL can't be read: {error}"),
        // The server says it well: a wrong password, no such role or database, no right.
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Tls(error) => format!("no encrypted connection: {error}"),
        // What was read is no TLS, or not from whom we trust.
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            format!("no encrypted connection: {error}; sslrootcert names the authority to trust")
        }
        sqlx::Error::Io(error) => format!("it can't be reached: {error}"),
        other => other.to_string(),
    };
    reason.replace('\n', " ")
}
