//! The admin socket: commands to a running node, over a Unix socket in its data directory that only its owner can open.
//!
//! Only one process can write to an embedded store. A command that writes sends a request to the running node
//! (`client`); without one it opens the store and calls the same [`answer`]. On Postgres it always opens the store:
//! several processes can write there, and the node in the data directory may use another store.
//!
//! One JSON object per line each way. The type of a reply depends on its request; the command knows it.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Context;
use kukuri_domain::{
    subscription::{IngestPolicy, SubscriptionChange},
    topic::TopicValue,
};
use kukuri_engine::{Engine, PublishRefused};
use kukuri_gossip::Bridge;
use kukuri_outbox::Services;
use kukuri_store::Outcome;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::ServiceRequest;

use crate::{
    command::{gossip, retention},
    wiring::now,
};

/// On the wire. An error is the text for the operator.
type AdminReply = Result<Value, String>;

/// The parts of a node that requests work on.
pub(crate) struct AdminContext {
    pub(crate) engine: Arc<Engine>,
    pub(crate) services: Arc<Services>,
    /// `None`: gossip is off, or no node runs.
    pub(crate) bridge: Option<Arc<Bridge>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum AdminRequest {
    /// Enables or disables a topic, or sets its policy.
    Topic { topic: String, enabled: Option<bool>, policy: Option<Box<IngestPolicy>> },
    /// Purges by retention and capacity now, or counts what a purge would remove. The reply is text for the operator.
    Purge { dry_run: bool },
    /// Imports events, one JSON text per line. The reply has a [`LineOutcome`] for each.
    Import { lines: Vec<String> },
    /// Reads the clock (P-5). The reply is a [`kukuri_domain::clock::Clock`].
    Clock,
    /// Confirms that the system clock is right (P-5). The reply is the clock after that.
    ConfirmClock,
    /// [`service::answer`] carries it out.
    Service(ServiceRequest),
    /// Ticket, peers or topics of gossip. The reply is text for the operator.
    Gossip(gossip::Gossip),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineOutcome {
    Stored,
    Known,
    Refused(String),
}

pub(crate) async fn answer(context: &AdminContext, request: AdminRequest) -> anyhow::Result<Value> {
    let engine = &*context.engine;
    Ok(match request {
        AdminRequest::Topic { topic, enabled, policy } => json!(change_topic(engine, &topic, enabled, policy).await?),
        AdminRequest::Purge { dry_run } => json!(retention::purge(engine, dry_run).await?),
        AdminRequest::Import { lines } => {
            let outcomes = engine.import(lines.into_iter().map(String::into_bytes).collect()).await;
            outcomes.into_iter().map(|outcome| json!(line_outcome(outcome))).collect()
        }
        AdminRequest::Clock => json!(engine.observe_clock().await?),
        AdminRequest::ConfirmClock => json!(engine.confirm_clock().await?),
        AdminRequest::Service(request) => service::answer(context, request).await?,
        AdminRequest::Gossip(command) => {
            let bridge = context.bridge.as_deref().context("gossip.enabled is off")?;
            json!(gossip::answer(bridge, command)?)
        }
    })
}

async fn change_topic(
    engine: &Engine,
    topic: &str,
    enabled: Option<bool>,
    policy: Option<Box<IngestPolicy>>,
) -> anyhow::Result<()> {
    let config = engine.config();
    let TopicValue::Topic(topic) = config.admission.topics.read(topic) else {
        anyhow::bail!("`{topic}` is not a topic of this node");
    };
    let mut change = match enabled {
        Some(true) => SubscriptionChange::enable(),
        Some(false) => SubscriptionChange::disable(),
        None => SubscriptionChange::default(),
    };
    if let Some(policy) = policy {
        // The topic's own retention must not let purged events come back (P-2, P-5).
        let all = engine.store().subscriptions().await?;
        let others = all.iter().filter(|one| one.topic != topic).map(|one| &one.policy.retention);
        config.retention.validate(others.chain([&policy.retention]))?;
        change.policy = Some(*policy);
    }
    engine.store().change_subscription(&topic, change, now()).await?;
    Ok(engine.reload_topics().await?)
}

fn line_outcome(outcome: Result<Outcome, PublishRefused>) -> LineOutcome {
    match outcome {
        Ok(Outcome::Stored | Outcome::Ephemeral) => LineOutcome::Stored,
        Ok(Outcome::Duplicate) => LineOutcome::Known,
        Ok(Outcome::Refused(refusal)) => LineOutcome::Refused(refusal.to_string()),
        Err(refused) => LineOutcome::Refused(refused.to_string()),
    }
}
