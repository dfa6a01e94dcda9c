//! Connecting: the first session, which reports in one line why the server can't be used (never with the password), and
//! the pool of reading sessions.

use std::{io, str::FromStr, time::Duration};

use sqlx::{
    ConnectOptions, PgConnection, PgPool, Row as _,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use crate::{Error, Result};

/// Settings of the first session. The timeout is one that no server has by default: if the session does not show it, a
/// pooler has dropped the settings.
const FIRST_SESSION: [(&str, &str); 1] = [("statement_timeout", "23h")];
const POOLER: &str = "a pooler in front of the server has to work by session, not by transaction";

/// A server and its display name.
pub struct Server {
    /// Connection options for every session.
    pub options: PgConnectOptions,
    /// Display name for messages, without the password.
    pub name: String,
}

impl Server {
    /// Opens the first session to the server of a connection URL, or returns the reason why it can't be opened.
    pub async fn connect(url: &str, within: Duration) -> Result<(Self, PgConnection)> {
        let options = PgConnectOptions::from_str(url).map_err(|error| not_opened("postgres", reason(&error)))?;
        let options = options.application_name("kukuri-node").disable_statement_logging();
        let server = Self { name: name_of(&options), options };
        match timeout(within, server.first_session()).await {
            Ok(Ok(first)) => Ok((server, first)),
            Ok(Err(reason)) => Err(not_opened(&server.name, reason)),
            Err(_) => Err(not_opened(&server.name, format!("it did not answer within {within:?}"))),
        }
    }

    async fn first_session(&self) -> Result<PgConnection, String> {
        let mut first =
            self.options.clone().options(FIRST_SESSION).connect().await.map_err(|error| match reason(&error) {
                // As PgBouncer says it.
                refused if refused.contains("startup parameter") => format!("{refused}: {POOLER}"),
                other => other,
            })?;
        let [(setting, expected)] = FIRST_SESSION;
        let shown = sqlx::raw_sql("SHOW statement_timeout").fetch_one(&mut first).await;
        let shown: String = shown.and_then(|row| row.try_get(0)).map_err(|error| reason(&error))?;
        if shown == expected {
            return Ok(first);
        }
        Err(format!("the settings of a session are lost ({setting} is {shown} instead of {expected}): {POOLER}"))
    }

    /// A pool of at most `most` reading sessions, with `settings` and a statement timeout.
    pub fn readers(&self, most: u32, acquire: Duration, statement: Duration, settings: &[(&str, &str)]) -> PgPool {
        let statement = statement.as_millis().to_string();
        let settings = settings.iter().copied().chain([("statement_timeout", statement.as_str())]);
        // A liveness check per acquire would cost as much as a short query. A dead session fails once and is closed.
        let pool =
            PgPoolOptions::new().acquire_timeout(acquire).max_connections(most.max(1)).test_before_acquire(false);
        pool.connect_lazy_with(self.options.clone().options(settings))
    }

    /// Names the missing privilege if creating the tables of a schema failed for lack of one.
    pub(crate) fn explain(&self, error: Error, schema: &str) -> Error {
        match &error {
            Error::Backend(error @ sqlx::Error::Database(refused)) if refused.code().as_deref() == Some("42501") => {
                let reason = reason(error);
                not_opened(&self.name, format!("{reason}: the role has to own the schema {schema}, or may create it"))
            }
            Error::Backend(sqlx::Error::Database(refused)) if refused.code().as_deref() == Some("55P03") => {
                let holder = "pg_locks and pg_stat_activity name the session that holds it";
                not_opened(&self.name, format!("can't migrate {schema}: a lock is not released; {holder}"))
            }
            _ => error,
        }
    }
}

/// Display name of a database for messages, without the password.
pub fn name_of(options: &PgConnectOptions) -> String {
    let place = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    format!("postgres {place}/{}", options.get_database().unwrap_or_default())
}

fn not_opened(name: &str, reason: String) -> Error {
    Error::NotOpened { name: name.to_owned(), reason }
}

/// One-line reason why a session could not be opened.
fn reason(error: &sqlx::Error) -> String {
    let reason = match error {
        sqlx::Error::Configuration(error) => format!("this URL can't be read: {error}"),
        // The server's message is clear enough: wrong password, no such role or database, no privilege.
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Tls(error) => format!("no encrypted connection: {error}"),
        // The server does not speak TLS, or its certificate is not trusted.
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            format!("no encrypted connection: {error}; sslrootcert names the authority to trust")
        }
        sqlx::Error::Io(error) => format!("it can't be reached: {error}"),
        other => other.to_string(),
    };
    reason.replace('\n', " ")
}
