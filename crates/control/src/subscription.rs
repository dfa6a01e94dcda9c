//! Topics that people subscribe to (S-1, S-3). How many subscribe to a topic decides whether the node carries it for them (S-7).

use std::collections::BTreeMap;

use kukuri_domain::{PublicKey, Timestamp, TopicId};

use crate::{
    Refused, Result, account, ban,
    database::{Database, Row, Transaction, sql},
    request::{self, Service},
};

/// A person's subscription to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSubscription {
    /// The topic.
    pub topic: TopicId,
    /// The topic's name, if it is known.
    pub topic_name: Option<String>,
    /// The services that were granted.
    pub services: Vec<Service>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended. `None`: it is active, or paused while the person is disabled or banned.
    pub ended_at: Option<Timestamp>,
}

impl TopicSubscription {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            topic: TopicId::new_unchecked(&row.get::<String>(0)?),
            topic_name: row.get(4)?,
            services: Service::read_list(&row.get::<String>(1)?)?,
            started_at: row.get(2)?,
            ended_at: row.get(3)?,
        })
    }
}

/// The subscriptions of a person, by topic.
pub async fn list(database: &Database, person: &PublicKey) -> Result<Vec<TopicSubscription>> {
    let select = sql(
        "SELECT t.topic_id, t.services, t.started_at, t.ended_at, n.name FROM cn_user.topic_subscriptions t \
         LEFT JOIN cn_user.topic_names n ON n.topic_id = t.topic_id WHERE t.subscriber_pubkey = $1 ORDER BY t.topic_id",
    );
    database.read(select.bind(person)).await?.iter().map(TopicSubscription::of_row).collect()
}

/// How many people subscribe to each topic that anybody subscribes to.
///
/// A subscription is paused while its account is disabled or banned (S-1): then it does not count.
pub async fn wanted(database: &Database, now: Timestamp) -> Result<BTreeMap<TopicId, u64>> {
    let select = sql(format!(
        "SELECT s.topic_id, count(*) FROM cn_user.topic_subscriptions s \
         JOIN cn_user.subscriber_accounts a ON a.subscriber_pubkey = s.subscriber_pubkey AND a.status = 'active' \
         WHERE s.status = 'active' AND NOT EXISTS \
         (SELECT 1 FROM cn_user.bans b WHERE b.pubkey = s.subscriber_pubkey AND {}) GROUP BY s.topic_id",
        ban::IS_IN_FORCE
    ));
    let rows = database.read(select.bind(now)).await?;
    rows.iter().map(|row| Ok((TopicId::new_unchecked(&row.get::<String>(0)?), row.get(1)?))).collect()
}

/// Topics that people subscribe to, in a transaction.
pub(crate) async fn count_wanted(transaction: &mut Transaction) -> Result<u64> {
    let select = sql("SELECT count(DISTINCT topic_id) FROM cn_user.topic_subscriptions WHERE status = 'active'");
    transaction.fetch_first(select).await?.map_or(Ok(0), |row| row.get(0))
}

/// Active subscriptions of a person, in a transaction.
pub(crate) async fn count_of(transaction: &mut Transaction, person: &PublicKey) -> Result<u64> {
    let select =
        sql("SELECT count(*) FROM cn_user.topic_subscriptions WHERE subscriber_pubkey = $1 AND status = 'active'");
    transaction.fetch_first(select.bind(person)).await?.map_or(Ok(0), |row| row.get(0))
}

/// Whether anybody subscribes to a topic.
pub(crate) async fn is_wanted(transaction: &mut Transaction, topic: &str) -> Result<bool> {
    let select = sql("SELECT 1 FROM cn_user.topic_subscriptions WHERE topic_id = $1 AND status = 'active' LIMIT 1");
    Ok(transaction.fetch_first(select.bind(topic)).await?.is_some())
}

/// Whether a person subscribes to a topic.
pub(crate) async fn is_active(transaction: &mut Transaction, person: &PublicKey, topic: &str) -> Result<bool> {
    let select = sql("SELECT 1 FROM cn_user.topic_subscriptions \
         WHERE subscriber_pubkey = $1 AND topic_id = $2 AND status = 'active'");
    Ok(transaction.fetch_first(select.bind(person).bind(topic)).await?.is_some())
}

/// Begins a subscription, or begins an ended one anew.
pub(crate) async fn begin(
    transaction: &mut Transaction,
    person: &PublicKey,
    topic: &str,
    services: &[Service],
    now: Timestamp,
) -> Result<()> {
    let upsert =
        sql("INSERT INTO cn_user.topic_subscriptions (subscriber_pubkey, topic_id, services, status, started_at) \
         VALUES ($1, $2, $3, 'active', $4) ON CONFLICT (subscriber_pubkey, topic_id) DO UPDATE SET \
         services = excluded.services, status = 'active', started_at = excluded.started_at, ended_at = NULL");
    let upsert = upsert.bind(person).bind(topic).bind(Service::write_list(services)).bind(now);
    transaction.execute(upsert).await?;
    account::touch(transaction, person).await
}

/// Ends a person's subscription.
pub async fn end(database: &Database, person: &PublicKey, topic: &TopicId, now: Timestamp) -> Result<(), Refused> {
    let mut transaction = database.begin().await?;
    let update = sql("UPDATE cn_user.topic_subscriptions SET status = 'ended', ended_at = $3 \
         WHERE subscriber_pubkey = $1 AND topic_id = $2 AND status = 'active' RETURNING 1");
    let ended = transaction.fetch_first(update.bind(person).bind(topic).bind(now)).await?;
    ended.ok_or(Refused::NotSubscribed)?;
    request::cancel_approved(&mut transaction, person, topic, now).await?;
    account::touch(&mut transaction, person).await?;
    Ok(transaction.commit().await?)
}

/// Ends all subscriptions of a person. Returns how many there were.
pub async fn end_all(transaction: &mut Transaction, person: &PublicKey, now: Timestamp) -> Result<usize> {
    let update = sql("UPDATE cn_user.topic_subscriptions SET status = 'ended', ended_at = $2 \
         WHERE subscriber_pubkey = $1 AND status = 'active' RETURNING topic_id");
    let ended = transaction.fetch(update.bind(person).bind(now)).await?;
    request::cancel_all(transaction, person, now).await?;
    account::touch(transaction, person).await?;
    Ok(ended.len())
}
