//! What the database knows of people, in memory: for checks that may not wait for a database, such as those of each event and each
//! request on a WebSocket. Read anew where it changed, by revision; a change counts on every node of the database when it has
//! next looked ([`People::refresh`], every half second).

mod changes;

use std::collections::HashMap;

use kukuri_domain::{PublicKey, Timestamp, TopicId};
use parking_lot::RwLock;

use self::changes::{Changes, Revision, SharedTopics};

use crate::{
    Refused, Result,
    account::AccountStatus,
    admission::{self, AdmissionMode},
    ban::Ban,
    database::Database,
    metric::Metric,
    plan::{self, Plan},
    policy::{self, PolicyVersion, Published},
    request::Service,
    setting::{self, Configuration},
    token::Claims,
};

/// People, in memory.
#[derive(Default)]
pub struct People {
    known: RwLock<Known>,
    /// One refresh at a time.
    revision: tokio::sync::Mutex<Revision>,
    topics: SharedTopics,
}

/// Why a person may not use a service in topics, where the node serves members only.
#[derive(Debug, thiserror::Error)]
pub enum MemberRefused {
    /// The person has no account, or one that is not served.
    #[error(transparent)]
    Person(#[from] Refused),
    /// Policies in effect are not accepted.
    #[error("policies in effect are not accepted")]
    ConsentRequired,
    /// The person does not subscribe to this topic with the service.
    #[error("{0} is not subscribed to")]
    SubscriptionRequired(TopicId),
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

#[derive(Default)]
struct Known {
    persons: HashMap<PublicKey, Person>,
    /// Bans of people whose account was deleted, by pseudonym.
    nameless_bans: HashMap<String, Ban>,
    ended_tokens: HashMap<String, Timestamp>,
    plans: HashMap<String, Plan>,
    admission: AdmissionMode,
    configuration: Configuration,
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
    accepted: Vec<PolicyVersion>,
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
        let mut found = Revision::read(database).await?;
        let is_changed = found != *read;
        let mut changes = None;
        if is_changed {
            let is_removed = found.removed > read.removed;
            let (revision, newer) = Changes::read(database, *read, is_removed, &self.topics, now).await?;
            // An account that was removed between the two reads is found by the next refresh.
            (found, changes) = (Revision { removed: found.removed, ..revision }, Some(newer));
        }
        let shared = if found.shared != read.shared { Some(read_shared(database).await?) } else { None };
        let mut known = self.known.write();
        let mut refreshed = if is_changed { Refreshed::New } else { Refreshed::Same };
        if shared.is_some() || changes.as_ref().is_some_and(|changes| changes.concern(&known)) {
            refreshed = Refreshed::Changed;
        }
        if let Some(SharedFacts { plans, admission, configuration, all_policies }) = shared {
            (known.plans, known.admission) = (plans, admission);
            (known.configuration, known.all_policies) = (configuration, all_policies);
        }
        if let Some(changes) = changes {
            if let Some(remaining) = &changes.remaining {
                known.persons.retain(|key, person| person.status.is_none() || remaining.contains(key));
            }
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

    /// Whether a person has an account that is not being deleted, whatever else its state: for what concerns own data (N-2).
    pub fn check_account(&self, key: &PublicKey) -> Result<(), Refused> {
        match self.known.read().persons.get(key).and_then(|person| person.status) {
            None => Err(Refused::UnknownAccount),
            Some(AccountStatus::Deleting) => Err(Refused::AccountDeleted),
            Some(AccountStatus::Active | AccountStatus::Disabled) => Ok(()),
        }
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

    /// Whether a person may use a service in topics where the node serves members only: the one decision for WebSocket and HTTP (S-5).
    /// Some topics are everybody's (S-6).
    pub fn check_member(
        &self,
        key: &PublicKey,
        topics: &[TopicId],
        service: Service,
        is_for_everybody: impl Fn(&TopicId) -> bool,
        now: Timestamp,
    ) -> Result<(), MemberRefused> {
        self.check_served(key, now)?;
        if !self.has_consented(key) {
            return Err(MemberRefused::ConsentRequired);
        }
        let is_entitled = |topic: &&TopicId| is_for_everybody(topic) || self.is_subscribed(key, topic, service);
        match topics.iter().find(|topic| !is_entitled(topic)) {
            None => Ok(()),
            Some(topic) => Err(MemberRefused::SubscriptionRequired(topic.clone())),
        }
    }

    /// The limit of a metric for a person. `None`: there is none.
    pub fn limit(&self, key: &PublicKey, metric: Metric) -> Option<u64> {
        let known = self.known.read();
        let plan = known.persons.get(key).and_then(|person| person.plan.as_deref()).unwrap_or(plan::FREE);
        known.plans.get(plan)?.limits.get(&metric).copied()
    }

    /// Whether any plan limits a metric.
    pub fn is_limited(&self, metric: Metric) -> bool {
        self.known.read().plans.values().any(|plan| plan.limits.contains_key(&metric))
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

    /// Keys of the configuration that were set while the node runs.
    pub fn configuration(&self) -> Configuration {
        self.known.read().configuration.clone()
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

/// Facts that hold for all people.
struct SharedFacts {
    plans: HashMap<String, Plan>,
    admission: AdmissionMode,
    configuration: Configuration,
    all_policies: Vec<(PolicyVersion, Timestamp)>,
}

async fn read_shared(database: &Database) -> Result<SharedFacts> {
    Ok(SharedFacts {
        plans: plan::list(database).await?.into_iter().map(|plan| (plan.id.clone(), plan)).collect(),
        admission: admission::mode(database).await?,
        configuration: setting::configuration(database).await?,
        all_policies: policy::all_published(database).await?,
    })
}
