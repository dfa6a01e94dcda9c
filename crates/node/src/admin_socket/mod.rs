//! The admin socket: commands to a running node, over a Unix socket in its data directory that only its owner can open.
//!
//! Only one process can write to an embedded store. A command that writes sends a request to the running node
//! (`client`); without one it opens the store and calls the same [`answer`]. On Postgres it always opens the store:
//! several processes can write there, and the node in the data directory may use another store.
//!
//! One JSON object per line each way.

pub(crate) mod client;
pub(crate) mod gossip;
pub(crate) mod server;
pub(crate) mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use gossip::{GossipRequest, PeerReport, TicketReport, TopicReport};
use kukuri_domain::{
    TopicId,
    subscription::{IngestPolicy, SubscriptionChange},
};
use kukuri_engine::{Engine, Refused};
use kukuri_gossip::Bridge;
use kukuri_outbox::Services;
use kukuri_store::{DryRun, Outcome, Purged};
use serde::{Deserialize, Serialize};
use service::{ServiceReport, ServiceRequest, VerifyReport};

use crate::{output, wiring::now};

/// Error for a reply that does not fit the request.
pub(crate) const UNEXPECTED_REPLY: &str = "unexpected reply from the node: are node and command of the same version?";

/// The parts of a node that requests work on.
pub(crate) struct AdminContext {
    pub(crate) engine: Arc<Engine>,
    /// The services that run in this process.
    pub(crate) services: Arc<Services>,
    /// `None`: gossip is off, or no node runs.
    pub(crate) bridge: Option<Arc<Bridge>>,
    /// Whether this process is a command, not a node.
    pub(crate) is_command: bool,
}

/// A request of a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum AdminRequest {
    /// Enables or disables a topic, or sets its policy.
    Topic { topic: String, enabled: Option<bool>, policy: Option<Box<IngestPolicy>> },
    /// Purges by retention and capacity now.
    Purge,
    /// Counts the events that a purge would remove.
    DryRunPurge,
    /// Imports events, one JSON text per line.
    Import { lines: Vec<String> },
    /// Confirms that the system clock is right (P-5).
    ConfirmClock,
    /// A request about outbox services.
    Service(ServiceRequest),
    /// Ticket, peers or topics of gossip.
    Gossip(GossipRequest),
}

/// The reply to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminReply {
    Done,
    Purged(PurgeReport),
    Imported(Vec<LineOutcome>),
    Services(Vec<ServiceReport>),
    /// Number of rebuilds before the requested one.
    RebuildsBefore(u64),
    Verified(VerifyReport),
    Ticket(TicketReport),
    Peers(Vec<PeerReport>),
    GossipTopics(Vec<TopicReport>),
    Failed(String),
}

/// The outcome of one imported line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineOutcome {
    Stored,
    Known,
    Refused(String),
}

/// The counts of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PurgeReport {
    pub(crate) by_retention: u64,
    pub(crate) by_capacity: u64,
    pub(crate) ids: u64,
    pub(crate) outbox: u64,
    pub(crate) memories: u64,
    pub(crate) held: bool,
    /// A dry run ended at its bound: a purge would remove more.
    #[serde(default)]
    pub(crate) is_incomplete: bool,
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
            is_incomplete: false,
        }
    }
}

fn dry_run_report(dry_run: DryRun) -> AdminReply {
    AdminReply::Purged(PurgeReport { is_incomplete: !dry_run.is_complete, ..PurgeReport::from(&dry_run.purged) })
}

/// Carries out a request.
pub(crate) async fn answer(context: &AdminContext, request: AdminRequest) -> AdminReply {
    let engine = &*context.engine;
    let reply = match request {
        AdminRequest::Topic { topic, enabled, policy } => change_topic(engine, &topic, enabled, policy).await,
        AdminRequest::Purge => {
            engine.purge().await.map(|purged| AdminReply::Purged((&purged).into())).map_err(Into::into)
        }
        AdminRequest::DryRunPurge => engine.dry_run_purge().await.map(dry_run_report).map_err(Into::into),
        AdminRequest::Import { lines } => {
            let texts = lines.into_iter().map(String::into_bytes).collect();
            let outcomes = engine.import(texts).await;
            Ok(AdminReply::Imported(outcomes.into_iter().map(line_outcome).collect()))
        }
        AdminRequest::ConfirmClock => {
            engine.store().confirm_clock(now()).await.map(|()| AdminReply::Done).map_err(Into::into)
        }
        AdminRequest::Service(request) => service::answer(context, request).await,
        AdminRequest::Gossip(request) => gossip::answer(context, request),
    };
    reply.unwrap_or_else(|error: anyhow::Error| AdminReply::Failed(output::one_line(&error)))
}

async fn change_topic(
    engine: &Engine,
    topic: &str,
    enabled: Option<bool>,
    policy: Option<Box<IngestPolicy>>,
) -> anyhow::Result<AdminReply> {
    let config = engine.config();
    let kukuri_domain::topic::TopicValue::Topic(topic) = config.admission.topics.read(topic) else {
        anyhow::bail!("`{topic}` is not a topic of this node");
    };
    let mut change = match enabled {
        Some(true) => SubscriptionChange::enable(),
        Some(false) => SubscriptionChange::disable(),
        None => SubscriptionChange::default(),
    };
    if let Some(policy) = policy {
        check_retention(engine, &topic, &policy).await?;
        change.policy = Some(*policy);
    }
    engine.store().change_subscription(&topic, change, now()).await?;
    engine.reload_topics().await?;
    Ok(AdminReply::Done)
}

/// A topic's own retention must not let purged events come back (P-2, P-5).
async fn check_retention(engine: &Engine, topic: &TopicId, policy: &IngestPolicy) -> anyhow::Result<()> {
    let all = engine.store().subscriptions().await?;
    let others = all.iter().filter(|one| one.topic != *topic).map(|one| &one.policy.retention);
    engine.config().retention.validate(others.chain([&policy.retention]))?;
    Ok(())
}

fn line_outcome(outcome: Result<Outcome, Refused>) -> LineOutcome {
    match outcome {
        Ok(Outcome::Stored | Outcome::Ephemeral) => LineOutcome::Stored,
        Ok(Outcome::Duplicate) => LineOutcome::Known,
        Ok(Outcome::Refused(refusal)) => LineOutcome::Refused(refusal.to_string()),
        Err(refused) => LineOutcome::Refused(refused.to_string()),
    }
}
