//! Commands to a running node, over a socket in its data directory that only its owner can open.
//!
//! Only one process may write to an embedded store. A command that changes something asks the node that runs, by
//! `link`; if none runs, it opens the store itself and gives itself the same answer. On Postgres it always does: any
//! number of processes may write there, and hear of what the others changed. A node that runs in the data directory might
//! be one on another store.
//!
//! One JSON object per line each way.

pub(crate) mod gossip;
pub(crate) mod index;
pub(crate) mod link;
pub(crate) mod server;

use std::sync::Arc;

use gossip::{GossipRequest, PeerReport, TicketReport, TopicReport};
use index::{IndexDifferences, IndexReport, IndexRequest};
use kukuri_domain::{
    TopicId,
    subscription::{IngestPolicy, SubscriptionChange},
};
use kukuri_gossip::Bridge;
use kukuri_relay::Relay;
use kukuri_store::{Outcome, Purged};
use serde::{Deserialize, Serialize};

use crate::{
    output,
    wiring::{now, searching::Searching},
};

/// A node, as far as commands are concerned.
pub(crate) struct Running {
    pub(crate) relay: Arc<Relay>,
    /// `None`: it has no search, or no command needs it.
    pub(crate) searching: Option<Arc<Searching>>,
    /// `None`: it talks to no peers, or this is only a command.
    pub(crate) bridge: Option<Arc<Bridge>>,
}

/// What a command asks of the node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Enable or disable a topic, or set its policy.
    Topic { topic: String, enabled: Option<bool>, policy: Option<Box<IngestPolicy>> },
    /// Throw away what has stayed long enough, now.
    Purge,
    /// Take in these events, each the text of one line.
    Import { lines: Vec<String> },
    /// The clock is right (P-5).
    ConfirmClock,
    /// Something about the index for search.
    Index(IndexRequest),
    /// Something about peers.
    Gossip(GossipRequest),
}

/// What the node answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Purged(PurgeReport),
    Imported(Vec<LineOutcome>),
    Index(IndexReport),
    /// How often it was built before what was asked for.
    IndexBuilds(u64),
    IndexDifferences(IndexDifferences),
    Ticket(TicketReport),
    Peers(Vec<PeerReport>),
    GossipTopics(Vec<TopicReport>),
    Failed(String),
}

/// What became of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineOutcome {
    Stored,
    Known,
    Refused(String),
}

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PurgeReport {
    pub(crate) by_retention: u64,
    pub(crate) by_capacity: u64,
    pub(crate) ids: u64,
    pub(crate) outbox: u64,
    pub(crate) memories: u64,
    pub(crate) held: bool,
}

impl From<&Purged> for PurgeReport {
    fn from(purged: &Purged) -> Self {
        Self {
            by_retention: purged.by_retention,
            by_capacity: purged.by_capacity,
            ids: purged.ids,
            outbox: purged.outbox,
            memories: purged.memories,
            held: purged.held,
        }
    }
}

/// Does what is asked.
pub(crate) async fn answer(running: &Running, request: Request) -> Reply {
    let relay = &*running.relay;
    let answered = match request {
        Request::Topic { topic, enabled, policy } => change_topic(relay, &topic, enabled, policy).await,
        Request::Purge => relay.purge().await.map(|purged| Reply::Purged((&purged).into())).map_err(Into::into),
        Request::Import { lines } => {
            let texts = lines.into_iter().map(String::into_bytes).collect();
            let outcomes = relay.import(texts).await;
            Ok(Reply::Imported(outcomes.into_iter().map(line_outcome).collect()))
        }
        Request::ConfirmClock => relay.store().confirm_clock(now()).await.map(|()| Reply::Done).map_err(Into::into),
        Request::Index(request) => index::answer(running, request).await,
        Request::Gossip(request) => gossip::answer(running, request),
    };
    answered.unwrap_or_else(|error: anyhow::Error| Reply::Failed(output::one_line(&error)))
}

async fn change_topic(
    relay: &Relay,
    topic: &str,
    enabled: Option<bool>,
    policy: Option<Box<IngestPolicy>>,
) -> anyhow::Result<Reply> {
    let config = relay.config();
    let kukuri_domain::topic::TopicValue::Topic(topic) = config.admission.topics.read(topic) else {
        anyhow::bail!("`{topic}` is no topic here");
    };
    let mut change = match enabled {
        Some(true) => SubscriptionChange::enable(),
        Some(false) => SubscriptionChange::disable(),
        None => SubscriptionChange::default(),
    };
    if let Some(policy) = policy {
        check_retention(relay, &topic, &policy).await?;
        change.policy = Some(*policy);
    }
    relay.store().change_subscription(&topic, change, now()).await?;
    relay.read_topics().await?;
    Ok(Reply::Done)
}

/// A topic's own retention must not let what is gone come back (P-2, P-5).
async fn check_retention(relay: &Relay, topic: &TopicId, policy: &IngestPolicy) -> anyhow::Result<()> {
    let all = relay.store().subscriptions().await?;
    let others = all.iter().filter(|one| one.topic != *topic).map(|one| &one.policy.retention);
    relay.config().retention.validate(others.chain([&policy.retention]))?;
    Ok(())
}

fn line_outcome(outcome: Result<Outcome, String>) -> LineOutcome {
    match outcome {
        Ok(Outcome::Stored | Outcome::Ephemeral) => LineOutcome::Stored,
        Ok(Outcome::Duplicate) => LineOutcome::Known,
        Ok(Outcome::Refused(refusal)) => LineOutcome::Refused(refusal.to_string()),
        Err(refused) => LineOutcome::Refused(refused),
    }
}
