//! What has changed since a revision, read from one state of the database: a person is read as a whole, or not at all.

use std::collections::{HashMap, HashSet};

use kukuri_domain::{PublicKey, Timestamp, TopicId};
use parking_lot::Mutex;

use super::{Known, Person, ServiceSet};
use crate::{
    Error, Result,
    account::AccountStatus,
    ban::{self, Ban},
    database::{Database, Row, Statement, sql},
    policy::{PolicyType, PolicyVersion},
    request::Service,
};

/// Up to where the database has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revision {
    pub(super) value: i64,
    pub(super) shared: i64,
    pub(super) removed: i64,
}

impl Default for Revision {
    fn default() -> Self {
        Self { value: -1, shared: -1, removed: 0 }
    }
}

impl Revision {
    fn statement() -> Statement {
        sql("SELECT value, shared, removed FROM cn_admin.revision")
    }

    fn of_rows(rows: &[Row]) -> Result<Self> {
        let row = rows.first().ok_or_else(|| Error::Damaged("cn_admin.revision has no row".to_owned()))?;
        Ok(Self { value: row.get(0)?, shared: row.get(1)?, removed: row.get(2)? })
    }

    /// That of the database now.
    pub(super) async fn read(database: &Database) -> Result<Self> {
        Self::of_rows(&database.read(Self::statement()).await?)
    }
}

/// Ids of topics, each kept once: many people subscribe to the same.
#[derive(Default)]
pub(super) struct SharedTopics(Mutex<HashSet<TopicId>>);

impl SharedTopics {
    fn get(&self, id: &str) -> TopicId {
        let topic = TopicId::new_unchecked(id);
        let mut known = self.0.lock();
        if let Some(known) = known.get(&topic) {
            return known.clone();
        }
        known.insert(topic.clone());
        topic
    }
}

const ACCOUNTS: &str =
    "SELECT subscriber_pubkey, status, tokens_from FROM cn_user.subscriber_accounts WHERE revision > $1";
const TOPICS: &str = "SELECT a.subscriber_pubkey, t.topic_id, t.services FROM cn_user.subscriber_accounts a \
    JOIN cn_user.topic_subscriptions t ON t.subscriber_pubkey = a.subscriber_pubkey AND t.status = 'active' \
    WHERE a.revision > $1 ORDER BY a.subscriber_pubkey";
const CONSENTS: &str = "SELECT a.subscriber_pubkey, c.policy_type, c.version FROM cn_user.subscriber_accounts a \
    JOIN cn_user.policy_consents c ON c.accepter_pubkey = a.subscriber_pubkey WHERE a.revision > $1";
const PLANS: &str = "SELECT a.subscriber_pubkey, s.plan_id FROM cn_user.subscriber_accounts a \
    JOIN cn_user.subscriptions s ON s.subscriber_pubkey = a.subscriber_pubkey AND s.status = 'active' \
    WHERE a.revision > $1";
/// All accounts, in the same state of the database: an account that was removed is not among the changed ones.
const ALL_ACCOUNTS: &str = "SELECT subscriber_pubkey FROM cn_user.subscriber_accounts";
const TOKENS: &str = "SELECT jti, expires_at FROM cn_user.ended_tokens WHERE revision > $1";

/// All bans of people with a changed ban or a changed account: an old one that was lifted does not hide one in force.
fn bans() -> String {
    let columns = ban::COLUMNS;
    format!(
        "SELECT {columns}, lifted_at FROM cn_user.bans WHERE revision > $1 \
         OR pubkey IN (SELECT pubkey FROM cn_user.bans WHERE revision > $1) \
         OR pubkey IN (SELECT subscriber_pubkey FROM cn_user.subscriber_accounts WHERE revision > $1)"
    )
}

/// Changes of some people.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) persons: HashMap<PublicKey, Person>,
    pub(super) nameless_bans: HashMap<String, Ban>,
    /// Pseudonyms of bans that are not nameless, or not any more.
    pub(super) lifted: Vec<String>,
    pub(super) ended_tokens: HashMap<String, Timestamp>,
    /// All accounts that there are, if any was removed.
    pub(super) remaining: Option<HashSet<PublicKey>>,
}

impl Changes {
    /// Reads what is newer than a revision. Returns the revision it was read at. `is_removed`: an account was removed since.
    pub(super) async fn read(
        database: &Database,
        since: Revision,
        is_removed: bool,
        topics: &SharedTopics,
        now: Timestamp,
    ) -> Result<(Revision, Self)> {
        let newer = |text: &'static str| sql(text).bind(since.value);
        let mut statements = vec![
            Revision::statement(),
            newer(ACCOUNTS),
            newer(TOPICS),
            newer(CONSENTS),
            newer(PLANS),
            sql(bans()).bind(since.value),
            newer(TOKENS),
        ];
        if is_removed {
            statements.push(sql(ALL_ACCOUNTS));
        }
        let mut answers = database.read_together(statements).await?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let (revision, mut changes) = (Revision::of_rows(&next())?, Self::default());
        changes.add_accounts(&next())?;
        changes.add_topics(&next(), topics)?;
        changes.add_consents(&next())?;
        changes.add_plans(&next())?;
        changes.add_bans(&next(), now)?;
        for row in next() {
            changes.ended_tokens.insert(row.get(0)?, row.get(1)?);
        }
        if is_removed {
            changes.remaining = Some(next().iter().map(|row| row.get(0)).collect::<Result<_>>()?);
        }
        Ok((revision, changes))
    }

    /// Whether people who were known are among them, or anybody is kept out.
    pub(super) fn concern(&self, known: &Known) -> bool {
        self.remaining.is_some()
            || !self.nameless_bans.is_empty()
            || self.persons.iter().any(|(key, person)| known.persons.contains_key(key) || person.ban.is_some())
    }

    fn person(&mut self, row: &Row) -> Result<&mut Person> {
        Ok(self.persons.entry(row.get(0)?).or_default())
    }

    fn add_accounts(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            let person = self.person(row)?;
            person.status = Some(AccountStatus::of_name(&row.get::<String>(1)?)?);
            person.tokens_from = row.get(2)?;
        }
        Ok(())
    }

    /// The rows of a person stand together.
    fn add_topics(&mut self, rows: &[Row], shared: &SharedTopics) -> Result<()> {
        for of_person in rows.chunk_by(|one, next| one.first() == next.first()) {
            let read = |row: &Row| -> Result<_> {
                let services = Service::read_list(&row.get::<String>(2)?)?;
                Ok((shared.get(&row.get::<String>(1)?), ServiceSet::of(&services)))
            };
            let mut topics: Vec<_> = of_person.iter().map(read).collect::<Result<_>>()?;
            topics.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            self.person(&of_person[0])?.topics = topics.into();
        }
        Ok(())
    }

    fn add_consents(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            if let Some(policy_type) = PolicyType::of_name(&row.get::<String>(1)?) {
                let version = row.get(2)?;
                self.person(row)?.accepted.push(PolicyVersion { policy_type, version });
            }
        }
        self.persons.values_mut().for_each(|person| person.accepted.shrink_to_fit());
        Ok(())
    }

    fn add_plans(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            self.person(row)?.plan = Some(row.get::<String>(1)?.into());
        }
        Ok(())
    }

    fn add_bans(&mut self, rows: &[Row], now: Timestamp) -> Result<()> {
        for row in rows {
            let ban = Ban::of_row(row)?;
            let is_over = row.get::<Option<Timestamp>>(5)?.is_some() || ban.until.is_some_and(|until| until <= now);
            match ban.pubkey {
                Some(key) => {
                    // It may have been nameless until the person was banned anew.
                    self.lifted.push(ban.pseudonym.clone());
                    let person = self.persons.entry(key).or_default();
                    if !is_over {
                        person.ban = Some(Box::new(ban));
                    }
                }
                None if is_over => self.lifted.push(ban.pseudonym),
                None => drop(self.nameless_bans.insert(ban.pseudonym.clone(), ban)),
            }
        }
        Ok(())
    }
}
