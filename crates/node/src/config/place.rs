//! The location of the store, and of the control database. The password of a database URL is never printed.

use std::{fmt, path::PathBuf};

use kukuri_config::{TextSetting, TomlValue, without_password};
use url::Url;

/// `store`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StorePlace {
    /// The embedded store in this directory.
    Lmdb(PathBuf),
    /// This database.
    Postgres(PostgresUrl),
}

/// `control`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlPlace {
    /// SQLite in this file.
    Sqlite(PathBuf),
    /// This database.
    Postgres(PostgresUrl),
}

/// The URL of a database. `Display` and `Debug` hide its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PostgresUrl(String);

impl PostgresUrl {
    /// The URL with its password, to connect with.
    pub(crate) fn with_password(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        (is_postgres && Url::parse(text).is_ok()).then(|| Self(text.to_owned()))
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

impl TextSetting for StorePlace {
    const ALLOWED: &'static str =
        "lmdb: and a directory, such as lmdb:/var/lib/kukuri/store, or a URL such as postgres://user@host/database";

    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("lmdb:") {
            return (!path.is_empty()).then(|| Self::Lmdb(path.into()));
        }
        PostgresUrl::parse(text).map(Self::Postgres)
    }

    fn to_value(&self) -> TomlValue {
        self.to_string().into()
    }
}

impl fmt::Display for ControlPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl TextSetting for ControlPlace {
    const ALLOWED: &'static str =
        "sqlite: and a file, such as sqlite:/var/lib/kukuri/control.db, or a URL such as postgres://user@host/database";

    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            return (!path.is_empty()).then(|| Self::Sqlite(path.into()));
        }
        PostgresUrl::parse(text).map(Self::Postgres)
    }

    fn to_value(&self) -> TomlValue {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_kept_for_connecting_and_never_shown() {
        let place = StorePlace::parse("postgres://kukuri:secret@db/kukuri").unwrap();
        let StorePlace::Postgres(url) = &place else { panic!("{place}") };
        assert_eq!(url.with_password(), "postgres://kukuri:secret@db/kukuri");
        for shown in [place.to_string(), format!("{place:?}"), place.to_value().to_string()] {
            assert!(shown.contains("kukuri:***@db") && !shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_store_is_a_directory_or_a_database_url() {
        for text in ["postgres://u@h/d", "postgresql://u@h/d", "postgres:///d?host=/run/postgresql", "lmdb:store"] {
            assert!(StorePlace::parse(text).is_some(), "{text}");
        }
        for text in ["", "lmdb:", "store", "postgres:", "postgres:/u@h/d", "postgres://h:port/d", "mysql://u@h/d"] {
            assert_eq!(StorePlace::parse(text), None, "{text}");
        }
    }
}
