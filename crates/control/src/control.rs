//! The control plane of a running node: the database, and what of it is held in memory.

use std::sync::Arc;

use arc_swap::ArcSwap;
use kukuri_domain::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Refused, Result, Transaction,
    audit::Actor,
    database::Database,
    member_usage::MemberUsage,
    people::{People, Refreshed},
    secret::{Purpose, Secrets},
};

/// The database, and what of it is held in memory.
pub struct Control {
    database: Database,
    secrets: ArcSwap<Secrets>,
    people: People,
    member_usage: MemberUsage,
    /// The most that any refresh has found since [`Control::take_refreshed`].
    refreshed: Mutex<Refreshed>,
    changed: Notify,
}

impl Control {
    /// Reads what is held in memory. Makes missing secrets.
    pub async fn open(database: Database, now: Timestamp) -> Result<Self> {
        let secrets = ArcSwap::from_pointee(Secrets::load_or_create(&database, now).await?);
        let people = People::load(&database, now).await?;
        Ok(Self {
            database,
            secrets,
            people,
            member_usage: MemberUsage::default(),
            refreshed: Mutex::new(Refreshed::Same),
            changed: Notify::new(),
        })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The secrets now.
    pub fn secrets(&self) -> Arc<Secrets> {
        self.secrets.load_full()
    }

    /// What is known of people, in memory.
    pub fn people(&self) -> &People {
        &self.people
    }

    /// Counters of WebSocket usage, in memory.
    pub fn member_usage(&self) -> &MemberUsage {
        &self.member_usage
    }

    /// Writes what was counted in memory.
    pub async fn write_member_usage(&self, now: Timestamp) -> Result<()> {
        self.member_usage.write(&self.database, now).await
    }

    /// Reads what has changed, in this process or another.
    pub async fn refresh(&self, now: Timestamp) -> Result<Refreshed> {
        let refreshed = self.people.refresh(&self.database, now).await?;
        if refreshed > Refreshed::Same {
            let secrets = Secrets::load(&self.database).await?;
            let is_rotated = |purpose| secrets.newest(purpose).ok() != self.secrets.load().newest(purpose).ok();
            if Purpose::ALL.into_iter().any(is_rotated) {
                self.secrets.store(Arc::new(secrets));
            }
        }
        if refreshed > Refreshed::Same {
            let mut most = self.refreshed.lock();
            *most = refreshed.max(*most);
            self.changed.notify_one();
        }
        Ok(refreshed)
    }

    /// The most that refreshes have found, whoever asked for them, since this was asked last: for the part of the node that acts on it.
    pub fn take_refreshed(&self) -> Refreshed {
        std::mem::replace(&mut *self.refreshed.lock(), Refreshed::Same)
    }

    /// Waits until a refresh has found something.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Does what an operator asks for: all of it with its audit row, or nothing (K-1). What is held in memory is up to date
    /// when this returns.
    pub async fn perform<A: Action>(&self, action: &A, actor: &Actor, now: Timestamp) -> Result<A::Done, Refused> {
        let secrets = self.secrets();
        let mut transaction = self.database.begin().await?;
        let done = action.apply(&mut transaction, &Acting { secrets: &secrets, actor, now }).await?;
        transaction.commit().await?;
        self.refresh(now).await?;
        Ok(done)
    }
}

/// By whom and when an action is done.
pub struct Acting<'a> {
    /// For pseudonyms.
    pub secrets: &'a Secrets,
    /// The actor.
    pub actor: &'a Actor,
    /// The time.
    pub now: Timestamp,
}

/// Something that an operator can change (K-1). It checks its input, changes the database, and writes its audit row, in one
/// transaction.
pub trait Action: Sync {
    /// What it answers.
    type Done: Send;

    /// Does it.
    fn apply(
        &self,
        transaction: &mut Transaction,
        acting: &Acting<'_>,
    ) -> impl Future<Output = Result<Self::Done, Refused>> + Send;
}
