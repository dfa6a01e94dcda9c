//! A control database for a test, on SQLite or on Postgres.

use std::{ops::Deref, path::Path};

use kukuri_control::{Database, PostgresSettings, Refused, Transaction, people::People, secret::Secrets};
use kukuri_domain::{PublicKey, Timestamp, TopicId};

use crate::postgres;

/// A time at which tests begin: noon of a day, UTC.
pub(crate) const START: Timestamp = Timestamp(1_800_000_000 - 1_800_000_000 % 86_400 + 43_200);

/// Where the database is. It goes with the test.
enum Home {
    Directory(tempfile::TempDir),
    Server(postgres::Database),
}

/// A control database with its secrets.
pub(crate) struct Control {
    pub(crate) database: Database,
    pub(crate) secrets: Secrets,
    home: Home,
}

impl Control {
    pub(crate) async fn on_sqlite() -> Self {
        Self::at(Home::Directory(tempfile::tempdir().unwrap())).await
    }

    pub(crate) async fn on_postgres() -> Self {
        Self::at(Home::Server(postgres::Database::new().await)).await
    }

    /// A database without even its secrets.
    pub(crate) async fn empty_on_sqlite() -> Empty {
        Empty::at(Home::Directory(tempfile::tempdir().unwrap())).await
    }

    /// The same on Postgres.
    pub(crate) async fn empty_on_postgres() -> Empty {
        Empty::at(Home::Server(postgres::Database::new().await)).await
    }

    async fn at(home: Home) -> Self {
        let database = open(&home).await;
        let secrets = Secrets::load_or_create(&database, START).await.unwrap();
        Self { database, secrets, home }
    }

    /// Opens the database a second time, as another process does.
    pub(crate) async fn open_again(&self) -> Database {
        open(&self.home).await
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        if let Home::Directory(directory) = &self.home { Some(directory.path()) } else { None }
    }

    /// A transaction.
    pub(crate) async fn begin(&self) -> Transaction {
        self.database.begin().await.unwrap()
    }

    /// Signs a person in who has no account yet.
    pub(crate) async fn join(&self, person: &PublicKey) {
        kukuri_control::sign_in::first_visit(&self.database, &self.secrets, person, None, START).await.unwrap();
    }

    /// People, read from the database.
    pub(crate) async fn people(&self, now: Timestamp) -> People {
        People::load(&self.database, now).await.unwrap()
    }
}

/// A new control database.
pub(crate) struct Empty {
    database: Database,
    _home: Home,
}

impl Empty {
    async fn at(home: Home) -> Self {
        Self { database: open(&home).await, _home: home }
    }
}

impl Deref for Empty {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

async fn open(home: &Home) -> Database {
    match home {
        Home::Directory(directory) => Database::open_sqlite(&directory.path().join("control.db")).await.unwrap(),
        Home::Server(server) => {
            Database::connect_postgres(&server.url(), PostgresSettings { migrate: true }).await.unwrap()
        }
    }
}

/// A key. The number names it.
pub(crate) fn person(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

/// A topic. The number names it.
pub(crate) fn topic(number: u8) -> TopicId {
    TopicId::new_unchecked(&format!("kukuri:{}", kukuri_domain::hex::encode(&[number; 32])))
}

pub(crate) fn later(seconds: u64) -> Timestamp {
    Timestamp(START.0 + seconds)
}

/// The name of the variant of a refusal, for tables.
pub(crate) fn name<T>(result: Result<T, Refused>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(Refused::Failed(error)) => panic!("{error}"),
        Err(refused) => format!("{refused:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
    }
}

/// Runs a test on both databases.
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($control:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn story($control: &$crate::support::Control) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                story(&$crate::support::Control::on_sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                story(&$crate::support::Control::on_postgres().await).await;
            }
        }
    )*};
}
pub(crate) use on_both;
