//! Where events are stored. The password of a database is in it, and is shown nowhere.

use std::{fmt, path::PathBuf};

use url::{Url, form_urlencoded};

use super::value::Spelled;

/// Stands for a password.
const HIDDEN: &str = "***";

/// Where events are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorePlace {
    /// In this directory, in the embedded store.
    Lmdb(PathBuf),
    /// In this database.
    Postgres(PostgresUrl),
}

/// The URL of a database. Neither `Display` nor `Debug` tells its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PostgresUrl(String);

impl PostgresUrl {
    /// All of it, to connect with.
    pub(crate) fn with_password(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lmdb(path) => write!(f, "lmdb:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl Spelled for StorePlace {
    const ALLOWED: &'static str =
        "lmdb: and a directory, such as lmdb:/var/lib/kukuri/store, or a URL such as postgres://user@host/database";

    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("lmdb:") {
            return (!path.is_empty()).then(|| Self::Lmdb(path.into()));
        }
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        let is_url = is_postgres && Url::parse(text).is_ok();
        is_url.then(|| Self::Postgres(PostgresUrl(text.to_owned())))
    }

    fn spell(&self) -> toml::Value {
        self.to_string().into()
    }
}

/// A text in which no password of a URL can be read, however badly that is written: a password may hold whatever ends
/// it by the rules for URLs.
pub(crate) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let user = user.map(|user| match user.split_once(':') {
        Some((name, _)) => format!("{name}:{HIDDEN}@"),
        None => format!("{user}@"),
    });
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let query = query.map(|query| format!("?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&")));
    format!("{scheme}://{}{place}{}", user.unwrap_or_default(), query.unwrap_or_default())
}

/// One `name=value` of a query.
fn hide(pair: &str) -> String {
    let name = form_urlencoded::parse(pair.as_bytes()).next().map(|(name, _)| name);
    match name.filter(|name| name.to_lowercase().contains("password")) {
        Some(name) => format!("{name}={HIDDEN}"),
        None => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown_wherever_it_stands() {
        for (text, shown) in [
            ("postgres://kukuri@db.example.com/kukuri", "postgres://kukuri@db.example.com/kukuri"),
            ("postgres://kukuri:secret@db:5432/kukuri", "postgres://kukuri:***@db:5432/kukuri"),
            ("postgresql://kukuri:s:e@c/r?et@db/kukuri", "postgresql://kukuri:***@db/kukuri"),
            (
                "postgres://u@localhost/db?host=/run/p&password=secret",
                "postgres://u@localhost/db?host=/run/p&password=***",
            ),
            ("postgres://u@localhost/db?pass%77ord=secret", "postgres://u@localhost/db?password=***"),
            ("postgres://localhost:5432/db", "postgres://localhost:5432/db"),
            ("lmdb:/srv/a:b@c", "lmdb:/srv/a:b@c"),
        ] {
            assert_eq!(without_password(text), shown);
        }
        let place = StorePlace::parse("postgres://kukuri:secret@db/kukuri").unwrap();
        let StorePlace::Postgres(url) = &place else { panic!("{place}") };
        assert_eq!(url.with_password(), "postgres://kukuri:secret@db/kukuri");
        for shown in [place.to_string(), format!("{place:?}"), place.spell().to_string()] {
            assert!(shown.contains("kukuri:***@db") && !shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_place_is_a_directory_or_a_database() {
        for text in ["postgres://u@h/d", "postgresql://u@h/d", "postgres:///d?host=/run/postgresql", "lmdb:store"] {
            assert!(StorePlace::parse(text).is_some(), "{text}");
        }
        for text in ["", "lmdb:", "store", "postgres:", "postgres:/u@h/d", "postgres://h:port/d", "mysql://u@h/d"] {
            assert_eq!(StorePlace::parse(text), None, "{text}");
        }
    }
}
