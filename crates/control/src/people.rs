//! What the database knows of people, in memory: for checks that may not wait for a database, such as those of each event and each
//! request on a WebSocket. Read anew where it changed, by revision; a change counts on every node of the database when it has
//! next looked ([`People::refresh`], every half second).

use std::collections::{HashMap, HashSet};

use kukuri_domain::{PublicKey, Timestamp, TopicId};
use parking_lot::{Mutex, RwLock};

use crate::{
    Refused, Result,
    account::AccountStatus,
    admission::{self, AdmissionMode},
    ban::{self, Ban},
    database::{Database, sql},
    metric::Metric,
    plan::{self, Plan},
    policy::{self, PolicyType, PolicyVersion, Published},
    request::Service,
    token::Claims,
};

/// People, in memory.
#[derive(Default)]
pub struct People {
    known: RwLock<Known>,
    /// One refresh at a time.
    revision: tokio::sync::Mutex<Revision>,
    /// Texts that many people share.
    shared: Mutex<Shared>,
}

/// What a refresh found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refreshed {
    /// Nothing has changed.
    Same,
    /// Nothing that takes anything from anybody who was known: people who are new, for instance.
    New,
    /// Something that people who were known may lose by.
    Changed,
}

/// Up to where the database has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Revision {
    value: i64,
    shared: i64,
}

impl Default for Revision {
    fn default() -> Self {
        Self { value: -1, shared: -1 }
    }
}

#[derive(Default)]
struct Known {
    persons: HashMap<PublicKey, Person>,
    /// Bans of people whose account was deleted, by pseudonym.
    nameless_bans: HashMap<String, Ban>,
    ended_tokens: HashMap<String, Timestamp>,
    plans: HashMap<String, Plan>,
    admission: AdmissionMode,
    all_policies: Vec<(PolicyVersion, Timestamp)>,
    published: Published,
}

/// What is known of one person. Kept small: there may be a hundred thousand.
#[derive(Default)]
struct Person {
    /// `None`: there is no account.
    status: Option<AccountStatus>,
    tokens_from: Timestamp,
    ban: Option<Box<Ban>>,
    accepted: Box<[PolicyVersion]>,
    topics: Box<[(TopicId, ServiceSet)]>,
    /// `None`: the free one.
    plan: Option<Box<str>>,
}

/// Services of a subscription, as bits.
#[derive(Clone, Copy, Default)]
struct ServiceSet(u8);

impl ServiceSet {
    fn of(services: &[Service]) -> Self {
        Self(services.iter().fold(0, |set, service| set | 1 << *service as u8))
    }

    fn has(self, service: Service) -> bool {
        self.0 & 1 << service as u8 != 0
    }
}

#[derive(Default)]
struct Shared {
    topics: HashSet<TopicId>,
}

impl Shared {
    fn topic(&mut self, id: &str) -> TopicId {
        let topic = TopicId::new_unchecked(id);
        match self.topics.get(&topic) {
            Some(known) => known.clone(),
            None => {
                self.topics.insert(topic.clone());
                topic
            }
        }
    }
}

/// Changes of some people, read from the database.
#[derive(Default)]
struct Changes {
    persons: HashMap<PublicKey, Person>,
    nameless_bans: HashMap<String, Ban>,
    lifted: Vec<String>,
    ended_tokens: HashMap<String, Timestamp>,
}

impl Changes {
    /// Whether they concern people who were known.
    fn concern(&self, known: &Known) -> bool {
        !self.nameless_bans.is_empty()
            || !self.ended_tokens.is_empty()
            || self.persons.iter().any(|(key, person)| known.persons.contains_key(key) || person.ban.is_some())
    }
}

impl People {
    /// Reads everything.
    pub async fn load(database: &Database, now: Timestamp) -> Result<Self> {
        let people = Self::default();
        people.refresh(database, now).await?;
        Ok(people)
    }

    /// Reads what has changed since the last time.
    pub async fn refresh(&self, database: &Database, now: Timestamp) -> Result<Refreshed> {
        let mut read = self.revision.lock().await;
        let row = database.read_first(sql("SELECT value, shared FROM cn_admin.revision")).await?;
        let row = row.ok_or_else(|| crate::Error::Damaged("cn_admin.revision has no row".to_owned()))?;
        let found = Revision { value: row.get(0)?, shared: row.get(1)? };
        let is_changed = found != *read;
        // Rows of a later revision may be among what is read. They are read again next time.
        let changes = if is_changed { Some(self.read_changes(database, read.value, now).await?) } else { None };
        let shared = if found.shared != read.shared { Some(read_shared(database).await?) } else { None };
        let mut known = self.known.write();
        let mut refreshed = if is_changed { Refreshed::New } else { Refreshed::Same };
        if shared.is_some() || changes.as_ref().is_some_and(|changes| changes.concern(&known)) {
            refreshed = Refreshed::Changed;
        }
        if let Some((plans, admission, all_policies)) = shared {
            (known.plans, known.admission, known.all_policies) = (plans, admission, all_policies);
        }
        if let Some(changes) = changes {
            known.persons.extend(changes.persons);
            known.nameless_bans.extend(changes.nameless_bans);
            changes.lifted.iter().for_each(|pseudonym| drop(known.nameless_bans.remove(pseudonym)));
            known.ended_tokens.retain(|_, expires_at| *expires_at > now);
            known.ended_tokens.extend(changes.ended_tokens);
        }
        // A policy may take effect without a change.
        let published = policy::split(known.all_policies.iter().cloned(), now);
        if published != known.published {
            known.published = published;
            refreshed = Refreshed::Changed;
        }
        *read = found;
        Ok(refreshed)
    }

    async fn read_changes(&self, database: &Database, since: i64, now: Timestamp) -> Result<Changes> {
        let mut changes = Changes::default();
        let accounts =
            sql("SELECT subscriber_pubkey, status, tokens_from FROM cn_user.subscriber_accounts WHERE revision > $1");
        for row in database.read(accounts.bind(since)).await? {
            let person = changes.persons.entry(row.get(0)?).or_default();
            person.status = Some(AccountStatus::of_name(&row.get::<String>(1)?)?);
            person.tokens_from = row.get(2)?;
        }
        self.read_topics(database, since, &mut changes).await?;
        let consents = sql("SELECT a.subscriber_pubkey, c.policy_type, c.version FROM cn_user.subscriber_accounts a \
             JOIN cn_user.policy_consents c ON c.accepter_pubkey = a.subscriber_pubkey WHERE a.revision > $1");
        let mut accepted = HashMap::<PublicKey, Vec<PolicyVersion>>::new();
        for row in database.read(consents.bind(since)).await? {
            if let Some(policy_type) = PolicyType::of_name(&row.get::<String>(1)?) {
                accepted.entry(row.get(0)?).or_default().push(PolicyVersion { policy_type, version: row.get(2)? });
            }
        }
        for (key, accepted) in accepted {
            changes.persons.entry(key).or_default().accepted = accepted.into();
        }
        let plans = sql("SELECT a.subscriber_pubkey, s.plan_id FROM cn_user.subscriber_accounts a \
             JOIN cn_user.subscriptions s ON s.subscriber_pubkey = a.subscriber_pubkey AND s.status = 'active' \
             WHERE a.revision > $1");
        for row in database.read(plans.bind(since)).await? {
            changes.persons.entry(row.get(0)?).or_default().plan = Some(row.get::<String>(1)?.into());
        }
        self.read_bans(database, since, now, &mut changes).await?;
        let tokens = sql("SELECT jti, expires_at FROM cn_user.ended_tokens WHERE revision > $1");
        for row in database.read(tokens.bind(since)).await? {
            changes.ended_tokens.insert(row.get(0)?, row.get(1)?);
        }
        Ok(changes)
    }

    async fn read_topics(&self, database: &Database, since: i64, changes: &mut Changes) -> Result<()> {
        let topics = sql("SELECT a.subscriber_pubkey, t.topic_id, t.services FROM cn_user.subscriber_accounts a \
             JOIN cn_user.topic_subscriptions t ON t.subscriber_pubkey = a.subscriber_pubkey AND t.status = 'active' \
             WHERE a.revision > $1");
        let rows = database.read(topics.bind(since)).await?;
        let mut shared = self.shared.lock();
        let mut subscribed = HashMap::<PublicKey, Vec<(TopicId, ServiceSet)>>::new();
        for row in rows {
            let services = Service::read_list(&row.get::<String>(2)?)?;
            let topic = shared.topic(&row.get::<String>(1)?);
            subscribed.entry(row.get(0)?).or_default().push((topic, ServiceSet::of(&services)));
        }
        for (key, mut topics) in subscribed {
            topics.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            changes.persons.entry(key).or_default().topics = topics.into();
        }
        Ok(())
    }

    /// Bans that have changed, and those of people who have.
    async fn read_bans(&self, database: &Database, since: i64, now: Timestamp, changes: &mut Changes) -> Result<()> {
        let columns = ban::COLUMNS;
        let changed = sql(format!("SELECT {columns}, lifted_at FROM cn_user.bans WHERE revision > $1"));
        let of_changed =
            sql("SELECT b.pubkey, b.pseudonym, b.reason, b.created_at, b.until, b.lifted_at FROM cn_user.bans b \
             JOIN cn_user.subscriber_accounts a ON a.subscriber_pubkey = b.pubkey WHERE a.revision > $1");
        let mut rows = database.read(changed.bind(since)).await?;
        rows.extend(database.read(of_changed.bind(since)).await?);
        for row in rows {
            let ban = Ban::of_row(&row)?;
            let is_over = row.get::<Option<Timestamp>>(5)?.is_some() || ban.until.is_some_and(|until| until <= now);
            match ban.pubkey {
                // An account with a changed ban has a new revision, and is read as a whole.
                Some(key) => changes.persons.entry(key).or_default().ban = (!is_over).then(|| Box::new(ban)),
                None if is_over => changes.lifted.push(ban.pseudonym),
                None => drop(changes.nameless_bans.insert(ban.pseudonym.clone(), ban)),
            }
        }
        Ok(())
    }

    /// Whether a token is still good: it was not ended, nor all tokens of its person.
    pub fn check_token(&self, claims: &Claims) -> Result<(), Refused> {
        let known = self.known.read();
        let tokens_from = known.persons.get(&claims.sub).map_or(Timestamp(0), |person| person.tokens_from);
        let is_ended = known.ended_tokens.contains_key(&claims.jti) || claims.iat < tokens_from.0;
        if is_ended { Err(Refused::AuthFailed) } else { Ok(()) }
    }

    /// Whether a person is served: has an account that is active, and no ban.
    pub fn check_served(&self, key: &PublicKey, now: Timestamp) -> Result<(), Refused> {
        let known = self.known.read();
        let person = known.persons.get(key).ok_or(Refused::UnknownAccount)?;
        person.check_ban(now)?;
        person.status.ok_or(Refused::UnknownAccount)?.require_active()
    }

    /// Whether a person is banned. A ban holds for people without an account as well.
    pub fn check_ban(&self, key: &PublicKey, now: Timestamp) -> Result<(), Refused> {
        self.known.read().persons.get(key).map_or(Ok(()), |person| person.check_ban(now))
    }

    /// Bans of people whose account was deleted, by pseudonym; usually none.
    pub fn check_nameless_bans(&self, pseudonyms: &[String], now: Timestamp) -> Result<(), Refused> {
        let known = self.known.read();
        let ban = pseudonyms.iter().find_map(|pseudonym| known.nameless_bans.get(pseudonym));
        ban.map_or(Ok(()), |ban| ban.check(now))
    }

    /// Whether there are bans of people whose account was deleted.
    pub fn has_nameless_bans(&self) -> bool {
        !self.known.read().nameless_bans.is_empty()
    }

    /// Which policies in effect a person has not accepted.
    pub fn missing_consents(&self, key: &PublicKey) -> Vec<PolicyVersion> {
        let known = self.known.read();
        let accepted = known.persons.get(key).map_or(&[][..], |person| &person.accepted);
        known.required().filter(|version| !accepted.contains(version)).cloned().collect()
    }

    /// Whether a person has accepted the policies in effect.
    pub fn has_consented(&self, key: &PublicKey) -> bool {
        let known = self.known.read();
        let accepted = known.persons.get(key).map_or(&[][..], |person| &person.accepted);
        known.required().all(|version| accepted.contains(version))
    }

    /// Whether a person subscribes to a topic with a service.
    pub fn is_subscribed(&self, key: &PublicKey, topic: &TopicId, service: Service) -> bool {
        let known = self.known.read();
        let Some(person) = known.persons.get(key) else { return false };
        let found = person.topics.binary_search_by(|(known, _)| known.cmp(topic));
        found.is_ok_and(|found| person.topics[found].1.has(service))
    }

    /// The limit of a metric for a person. `None`: there is none.
    pub fn limit(&self, key: &PublicKey, metric: Metric) -> Option<u64> {
        let known = self.known.read();
        let plan = known.persons.get(key).and_then(|person| person.plan.as_deref()).unwrap_or(plan::FREE);
        known.plans.get(plan)?.limits.get(&metric).copied()
    }

    /// The plan of a person.
    pub fn plan(&self, key: &PublicKey) -> Option<Plan> {
        let known = self.known.read();
        let plan = known.persons.get(key).and_then(|person| person.plan.as_deref()).unwrap_or(plan::FREE);
        known.plans.get(plan).cloned()
    }

    /// Who gets an account.
    pub fn admission(&self) -> AdmissionMode {
        self.known.read().admission
    }

    /// The policies in effect, and those to come.
    pub fn published(&self) -> Published {
        self.known.read().published.clone()
    }

    /// How many people are known.
    pub fn len(&self) -> usize {
        self.known.read().persons.len()
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Known {
    fn required(&self) -> impl Iterator<Item = &PolicyVersion> {
        self.published.current.iter().filter(|version| version.policy_type.needs_consent())
    }
}

impl Person {
    fn check_ban(&self, now: Timestamp) -> Result<(), Refused> {
        self.ban.as_ref().map_or(Ok(()), |ban| ban.check(now))
    }
}

impl Ban {
    /// Refuses the person, if the ban is not over.
    fn check(&self, now: Timestamp) -> Result<(), Refused> {
        if self.until.is_some_and(|until| until <= now) {
            return Ok(());
        }
        Err(Refused::Banned { reason: self.reason.clone(), until: self.until })
    }
}

type SharedFacts = (HashMap<String, Plan>, AdmissionMode, Vec<(PolicyVersion, Timestamp)>);

async fn read_shared(database: &Database) -> Result<SharedFacts> {
    let plans = plan::list(database).await?.into_iter().map(|plan| (plan.id.clone(), plan)).collect();
    Ok((plans, admission::mode(database).await?, policy::all_published(database).await?))
}
