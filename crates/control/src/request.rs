//! Requests for topics (S-1, S-2, S-6): a person asks, an administrator approves or rejects, the node takes the topic in.

use std::fmt;

use kukuri_domain::{PublicKey, Timestamp, TopicId};
use uuid::Uuid;

use crate::{
    Error, Refused, Result, account, ban,
    database::{Database, Row, Transaction, sql},
    metric::Metric,
    plan,
    secret::Secrets,
    subscription, topic_name,
};

/// The longest reason of a person, and note of a reviewer, in characters.
pub const MAX_TEXT: usize = 1_000;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestStatus {
    /// It waits for a decision.
    Pending,
    /// It was approved; the node has not taken the topic in yet.
    Approved,
    /// It was rejected.
    Rejected,
    /// It was approved, and the node carries the topic.
    Active,
    /// The person cancelled it.
    Cancelled,
}

impl RequestStatus {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Rejected, Self::Active, Self::Cancelled];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Active => "active",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A service that a subscription may include.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Publishing and reading. Every subscription includes it.
    Relay,
    /// Search.
    Index,
    /// Labels.
    Moderation,
    /// Trust.
    Trust,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 4] = [Self::Relay, Self::Index, Self::Moderation, Self::Trust];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Index => "index",
            Self::Moderation => "moderation",
            Self::Trust => "trust",
        }
    }

    /// The service of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }

    pub(crate) fn write_list(services: &[Self]) -> String {
        services.iter().map(|service| service.name()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn read_list(text: &str) -> Result<Vec<Self>> {
        let read = |name| Self::of_name(name).ok_or_else(|| Error::Damaged(format!("a service is `{name}`")));
        text.split(',').map(read).collect()
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRequest {
    /// Its id.
    pub id: String,
    /// The person who asks.
    pub requester: PublicKey,
    /// The topic.
    pub topic: TopicId,
    /// The topic's name, if the person gave it.
    pub topic_name: Option<String>,
    /// The services that are asked for, the relay first.
    pub services: Vec<Service>,
    /// Why the person asks.
    pub reason: Option<String>,
    /// Its state.
    pub status: RequestStatus,
    /// What the reviewer tells the person.
    pub review_note: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was decided on.
    pub reviewed_at: Option<Timestamp>,
    /// By which actor.
    pub reviewed_by: Option<String>,
}

const COLUMNS: &str = "request_id, requester_pubkey, topic_id, topic_name, requested_services, reason, status, \
    review_note, created_at, reviewed_at, reviewed_by";

impl TopicRequest {
    fn of_row(row: &Row) -> Result<Self> {
        let status: String = row.get(6)?;
        Ok(Self {
            id: row.get(0)?,
            requester: row.get(1)?,
            topic: TopicId::new_unchecked(&row.get::<String>(2)?),
            topic_name: row.get(3)?,
            services: Service::read_list(&row.get::<String>(4)?)?,
            reason: row.get(5)?,
            status: RequestStatus::of_name(&status)
                .ok_or_else(|| Error::Damaged(format!("a request is `{status}`")))?,
            review_note: row.get(7)?,
            created_at: row.get(8)?,
            reviewed_at: row.get(9)?,
            reviewed_by: row.get(10)?,
        })
    }
}

/// What a person asks for. The caller has checked topic, name and services.
#[derive(Clone, Debug)]
pub struct NewRequest {
    /// The topic.
    pub topic: TopicId,
    /// Its name, if it hashes to the id.
    pub topic_name: Option<String>,
    /// The services, without the relay, which is always included.
    pub services: Vec<Service>,
    /// Why.
    pub reason: Option<String>,
}

/// How much may be asked for and taken in.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Pending requests of one person.
    pub pending_per_person: u64,
    /// Topics that the node carries for its members.
    pub topics: u64,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { pending_per_person: 5, topics: 100 }
    }
}

/// Asks for a topic. Returns the request: a new one, the pending one for the same topic, or the one by which the person has the
/// topic already (S-6).
pub async fn create(
    database: &Database,
    person: &PublicKey,
    asked: &NewRequest,
    limits: RequestLimits,
    now: Timestamp,
) -> Result<TopicRequest, Refused> {
    let topic = asked.topic.to_string();
    check_text("reason", asked.reason.as_deref())?;
    let mut transaction = database.begin().await?;
    account::find_in(&mut transaction, person).await?.ok_or(Refused::UnknownAccount)?.status.require_active()?;
    let is_subscribed = subscription::is_active(&mut transaction, person, &topic).await?;
    let select = sql(format!(
        "SELECT {COLUMNS} FROM cn_user.topic_subscription_requests WHERE requester_pubkey = $1 AND topic_id = $2 \
         AND (status = 'pending' OR ($3 = 1 AND status IN ('approved', 'active'))) \
         ORDER BY created_at DESC, request_id LIMIT 1"
    ));
    let known = transaction.fetch_first(select.bind(person).bind(&topic).bind(is_subscribed)).await?;
    if let Some(known) = known {
        return Ok(TopicRequest::of_row(&known)?);
    }
    let count = sql(
        "SELECT count(*) FROM cn_user.topic_subscription_requests WHERE requester_pubkey = $1 AND status = 'pending'",
    );
    let pending: u64 = transaction.fetch_first(count.bind(person)).await?.map_or(Ok(0), |row| row.get(0))?;
    if pending >= limits.pending_per_person {
        return Err(Refused::TooManyPendingRequests { current: pending, limit: limits.pending_per_person });
    }
    check_room(&mut transaction, &topic, limits).await?;
    check_max_topics(&mut transaction, person).await?;
    let services: Vec<Service> = [Service::Relay]
        .into_iter()
        .chain(asked.services.iter().copied().filter(|one| *one != Service::Relay))
        .collect();
    let insert = sql(format!(
        "INSERT INTO cn_user.topic_subscription_requests \
         (request_id, requester_pubkey, topic_id, topic_name, requested_services, reason, status, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7) RETURNING {COLUMNS}"
    ));
    let insert = insert.bind(Uuid::new_v4().to_string()).bind(person).bind(&topic).bind(asked.topic_name.as_deref());
    let insert = insert.bind(Service::write_list(&services)).bind(asked.reason.as_deref()).bind(now);
    let row = transaction.fetch_first(insert).await?.ok_or(Refused::UnknownRequest)?;
    transaction.commit().await?;
    Ok(TopicRequest::of_row(&row)?)
}

/// Approves a pending request: the person subscribes to the topic, whose taking in follows (S-7).
pub async fn approve(
    transaction: &mut Transaction,
    secrets: &Secrets,
    id: &str,
    note: Option<&str>,
    reviewer: &str,
    limits: RequestLimits,
    now: Timestamp,
) -> Result<TopicRequest, Refused> {
    let request = decide(transaction, id, RequestStatus::Approved, note, reviewer, now).await?;
    let (person, topic) = (request.requester, request.topic.to_string());
    account::find_in(transaction, &person).await?.ok_or(Refused::UnknownAccount)?.status.require_active()?;
    if let Some(ban) = ban::find(transaction, secrets, &person, now).await? {
        return Err(Refused::Banned { reason: ban.reason, until: ban.until });
    }
    check_max_topics(transaction, &person).await?;
    check_room(transaction, &topic, limits).await?;
    subscription::begin(transaction, &person, &topic, &request.services, now).await?;
    if let Some(name) = &request.topic_name {
        topic_name::keep_first(transaction, &request.topic, name).await?;
    }
    Ok(request)
}

/// Rejects a pending request.
pub async fn reject(
    transaction: &mut Transaction,
    id: &str,
    note: Option<&str>,
    reviewer: &str,
    now: Timestamp,
) -> Result<TopicRequest, Refused> {
    decide(transaction, id, RequestStatus::Rejected, note, reviewer, now).await
}

/// Decides on a request, if it is pending: of two decisions at the same time one fails.
async fn decide(
    transaction: &mut Transaction,
    id: &str,
    status: RequestStatus,
    note: Option<&str>,
    reviewer: &str,
    now: Timestamp,
) -> Result<TopicRequest, Refused> {
    check_text("note", note)?;
    let update = sql(format!(
        "UPDATE cn_user.topic_subscription_requests SET status = $2, review_note = $3, reviewed_by = $4, reviewed_at = $5 \
         WHERE request_id = $1 AND status = 'pending' RETURNING {COLUMNS}"
    ));
    let update = update.bind(id).bind(status.name()).bind(note).bind(reviewer).bind(now);
    match transaction.fetch_first(update).await? {
        Some(row) => Ok(TopicRequest::of_row(&row)?),
        None => Err(refused(find_in(transaction, id).await?)),
    }
}

/// Cancels a person's own pending request.
pub async fn cancel(database: &Database, person: &PublicKey, id: &str, now: Timestamp) -> Result<(), Refused> {
    let update = sql("UPDATE cn_user.topic_subscription_requests SET status = 'cancelled', reviewed_at = $3 \
         WHERE request_id = $1 AND requester_pubkey = $2 AND status = 'pending' RETURNING 1");
    if !database.change(update.bind(id).bind(person).bind(now)).await?.is_empty() {
        return Ok(());
    }
    let known = find(database, id).await?;
    Err(refused(known.filter(|request| request.requester == *person)))
}

/// Cancels all requests of a person that are pending, or whose topic the node does not carry yet.
pub(crate) async fn cancel_all(transaction: &mut Transaction, person: &PublicKey, now: Timestamp) -> Result<()> {
    let update = sql("UPDATE cn_user.topic_subscription_requests SET status = 'cancelled', reviewed_at = $2 \
         WHERE requester_pubkey = $1 AND status IN ('pending', 'approved')");
    transaction.execute(update.bind(person).bind(now)).await
}

/// Cancels the request of a person who has ended the subscription before the node carried the topic.
pub(crate) async fn cancel_approved(
    transaction: &mut Transaction,
    person: &PublicKey,
    topic: &TopicId,
    now: Timestamp,
) -> Result<()> {
    let update = sql("UPDATE cn_user.topic_subscription_requests SET status = 'cancelled', reviewed_at = $3 \
         WHERE requester_pubkey = $1 AND topic_id = $2 AND status = 'approved'");
    transaction.execute(update.bind(person).bind(topic).bind(now)).await
}

/// Notes that the node carries a topic now. Returns how many requests became active.
pub async fn taken_in(database: &Database, topic: &TopicId) -> Result<usize> {
    let update = sql("UPDATE cn_user.topic_subscription_requests SET status = 'active' \
         WHERE topic_id = $1 AND status = 'approved' RETURNING request_id");
    Ok(database.change(update.bind(topic)).await?.len())
}

/// Topics that were approved and are not known to be carried yet.
pub async fn waiting_topics(database: &Database) -> Result<Vec<TopicId>> {
    let select = sql("SELECT DISTINCT topic_id FROM cn_user.topic_subscription_requests WHERE status = 'approved'");
    let rows = database.read(select).await?;
    rows.iter().map(|row| Ok(TopicId::new_unchecked(&row.get::<String>(0)?))).collect()
}

/// Reads a request.
pub async fn find(database: &Database, id: &str) -> Result<Option<TopicRequest>> {
    let row = database.read_first(by_id(id)).await?;
    row.as_ref().map(TopicRequest::of_row).transpose()
}

async fn find_in(transaction: &mut Transaction, id: &str) -> Result<Option<TopicRequest>> {
    let row = transaction.fetch_first(by_id(id)).await?;
    row.as_ref().map(TopicRequest::of_row).transpose()
}

fn by_id(id: &str) -> crate::database::Statement {
    sql(format!("SELECT {COLUMNS} FROM cn_user.topic_subscription_requests WHERE request_id = $1")).bind(id)
}

/// A position in a list of requests: time and id of the last one read.
pub type RequestCursor = (Timestamp, String);

/// A page of requests, the oldest first: of a person, in a state, or all.
pub async fn list(
    database: &Database,
    person: Option<&PublicKey>,
    status: Option<RequestStatus>,
    after: Option<RequestCursor>,
    limit: usize,
) -> Result<Vec<TopicRequest>> {
    let (since, last) = after.unwrap_or_default();
    let mut select =
        format!("SELECT {COLUMNS} FROM cn_user.topic_subscription_requests WHERE (created_at, request_id) > ($1, $2)");
    let mut values: Vec<crate::database::Value> = vec![since.into(), last.into(), (limit as u64).into()];
    if let Some(person) = person {
        values.push(person.into());
        select += &format!(" AND requester_pubkey = ${}", values.len());
    }
    if let Some(status) = status {
        values.push(status.name().into());
        select += &format!(" AND status = ${}", values.len());
    }
    select += " ORDER BY created_at, request_id LIMIT $3";
    let select = values.into_iter().fold(sql(select), crate::database::Statement::bind);
    database.read(select).await?.iter().map(TopicRequest::of_row).collect()
}

/// Whether the node may carry another topic for its members, if it does not carry this one (S-4).
async fn check_room(transaction: &mut Transaction, topic: &str, limits: RequestLimits) -> Result<(), Refused> {
    if subscription::is_wanted(transaction, topic).await? {
        return Ok(());
    }
    let (current, limit) = (subscription::count_wanted(transaction).await?, limits.topics);
    if current < limit { Ok(()) } else { Err(Refused::TooManyTopics { current, limit }) }
}

async fn check_max_topics(transaction: &mut Transaction, person: &PublicKey) -> Result<(), Refused> {
    let metric = Metric::MaxTopics;
    let Some(limit) = plan::limit_in(transaction, person, metric).await? else { return Ok(()) };
    let current = subscription::count_of(transaction, person).await?;
    if current < limit { Ok(()) } else { Err(Refused::QuotaExceeded { metric, current, limit, reset_at: None }) }
}

fn refused(known: Option<TopicRequest>) -> Refused {
    known.map_or(Refused::UnknownRequest, |request| Refused::RequestNotPending { status: request.status })
}

fn check_text(field: &'static str, text: Option<&str>) -> Result<(), Refused> {
    if text.is_some_and(|text| text.chars().count() > MAX_TEXT || text.contains('\0')) {
        return Err(Refused::invalid(field, format!("must have at most {MAX_TEXT} characters")));
    }
    Ok(())
}
