//! Connecting: the first session, which reports in one line why the server can't be used (never with the password), and
//! the pools.

use std::time::Duration;

use tokio::{runtime::Handle, time::timeout};

use crate::{
    Error, Result, SessionError,
    pool::{Opener, Pool, SessionCheck},
    query,
    session::{Notifications, Session},
    tls::Tls,
    url::Place,
};

/// Settings of the first session. The timeout is one that no server has by default: if the session does not show it, a
/// pooler has dropped the settings.
const FIRST_SESSION: [(&str, &str); 1] = [("statement_timeout", "23h")];
const POOLER: &str = "a pooler in front of the server has to work by session, not by transaction";
/// A server that is gone without a word is noticed after this time, also by a session that only listens.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// A server and its display name.
pub struct Server {
    opener: Opener,
    /// Display name for messages, without the password.
    pub name: String,
}

impl Server {
    /// Opens the first session to the server of a connection URL, or returns the reason why it can't be opened.
    pub async fn connect(url: &str, within: Duration) -> Result<(Self, Session)> {
        let place = Place::parse(url).map_err(|error| unreadable(&error))?;
        let (name, tls) = (place.name(), Tls::new(place.verify, &place.certificates));
        let tls = tls.map_err(|error| not_opened(&name, format!("no encrypted connection: {error}")))?;
        let mut config = place.config;
        config.application_name("kukuri-node").keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL).keepalives_retries(KEEPALIVE_RETRIES);
        let server = Self { opener: Opener { runtime: Handle::current(), config, tls }, name };
        match timeout(within, server.first_session()).await {
            Ok(Ok(first)) => Ok((server, first)),
            Ok(Err(reason)) => Err(not_opened(&server.name, reason)),
            Err(_) => Err(not_opened(&server.name, format!("it did not answer within {within:?}"))),
        }
    }

    async fn first_session(&self) -> Result<Session, String> {
        let opened = self.opener.with(&FIRST_SESSION).open().await;
        let (first, _) = opened.map_err(|error| match reason(&error) {
            // As PgBouncer says it.
            refused if refused.contains("startup parameter") => format!("{refused}: {POOLER}"),
            other => other,
        })?;
        let [(setting, expected)] = FIRST_SESSION;
        let shown = query("SELECT current_setting($1)").bind(setting).fetch_value::<String>(&first).await;
        let shown = shown.map_err(|error| reason(&error))?;
        if shown == expected {
            return Ok(first);
        }
        Err(format!("the settings of a session are lost ({setting} is {shown} instead of {expected}): {POOLER}"))
    }

    /// A pool of at most `most` sessions with these settings.
    pub fn pool(&self, most: u32, acquire: Duration, settings: &[(&str, &str)], check: Option<SessionCheck>) -> Pool {
        Pool::new(self.opener.with(settings), self.name.clone(), most, acquire, check)
    }

    /// A pool of at most `most` reading sessions, with `settings` and a statement timeout.
    pub fn readers(&self, most: u32, acquire: Duration, statement: Duration, settings: &[(&str, &str)]) -> Pool {
        let statement = statement.as_millis().to_string();
        let settings: Vec<_> = settings.iter().copied().chain([("statement_timeout", statement.as_str())]).collect();
        self.pool(most, acquire, &settings, None)
    }

    /// What opens sessions that listen on channels.
    pub fn listener(&self) -> Listener {
        Listener(self.opener.clone())
    }

    /// Names the missing privilege if creating the tables of a schema failed for lack of one.
    pub(crate) fn explain(&self, error: Error, schema: &str) -> Error {
        match &error {
            Error::Backend(error) if error.has_code(&["42501"]) => {
                let reason = reason(error);
                not_opened(&self.name, format!("{reason}: the role has to own the schema {schema}, or may create it"))
            }
            Error::Backend(error) if error.has_code(&["55P03"]) => {
                let holder = "pg_locks and pg_stat_activity name the session that holds it";
                not_opened(&self.name, format!("can't migrate {schema}: a lock is not released; {holder}"))
            }
            _ => error,
        }
    }
}

impl Opener {
    /// With these settings in addition to those of the URL.
    fn with(&self, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| format!("-c {name}={value}"));
        let mut opener = self.clone();
        let of_url = opener.config.get_options().map(str::to_owned);
        let options: Vec<String> = of_url.into_iter().chain(settings).collect();
        opener.config.options(options.join(" "));
        opener
    }

    pub(crate) async fn open(&self) -> Result<(Session, Notifications), SessionError> {
        Session::open(&self.config, self.tls.clone(), &self.runtime).await
    }
}

/// Opens sessions that listen on channels.
pub struct Listener(Opener);

impl Listener {
    /// Opens a session that listens. It does so until it is dropped.
    pub async fn listen(&self, channels: &[&str]) -> Result<(Session, Notifications), SessionError> {
        let (session, notifications) = self.0.open().await?;
        let listen: Vec<String> = channels.iter().map(|channel| format!("LISTEN {channel}")).collect();
        session.run(&listen.join("; ")).await?;
        Ok((session, notifications))
    }
}

impl Session {
    /// Opens a single session, for tools and tests.
    pub async fn connect(url: &str) -> Result<Self, SessionError> {
        let place = Place::parse(url).map_err(SessionError::Unexpected)?;
        let tls = Tls::new(place.verify, &place.certificates).map_err(SessionError::NotEncrypted)?;
        Ok(Self::open(&place.config, tls, &Handle::current()).await?.0)
    }
}

/// Display name of the database of a URL, without the password.
pub fn name_of(url: &str) -> Result<String> {
    Place::parse(url).map(|place| place.name()).map_err(|error| unreadable(&error))
}

fn unreadable(error: &str) -> Error {
    not_opened("postgres", format!("this URL can't be read: {}", error.replace('\n', " ")))
}

fn not_opened(name: &str, reason: String) -> Error {
    Error::NotOpened { name: name.to_owned(), reason }
}

/// One-line reason why a session could not be opened.
fn reason(error: &SessionError) -> String {
    let reason = match error {
        // The server does not speak TLS, or its certificate is not trusted.
        SessionError::NotEncrypted(_) => format!("{error}; sslrootcert names the authority to trust"),
        SessionError::Disconnected(reason) => format!("it can't be reached: {reason}"),
        // The server's message is clear enough: wrong password, no such role or database, no privilege.
        other => other.to_string(),
    };
    reason.replace('\n', " ")
}
