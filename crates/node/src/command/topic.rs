//! `topic`: the topics that the node accepts, and their policies.

use anyhow::bail;
use clap::{Args, Subcommand};
use kukuri_control::topic_name;
use kukuri_domain::{
    TopicId,
    retention::Keep,
    subscription::{IngestPolicy, Keeper, NodeSubscription},
};
use kukuri_store::{TopicStats, report::total};
use serde_json::json;

use super::table::{bytes, table};
use crate::{
    admin_socket::{AdminRequest, client::AdminClient},
    config::{ByteSize, Foreign, Settings, Switch, format_text, parse_text},
    output,
    wiring::{self, stores},
};

#[derive(Subcommand)]
pub(crate) enum Topic {
    /// Prints the id of a topic's name on this node.
    Id {
        /// A name, or an id.
        name: String,
    },
    /// Lists the topics that are or were enabled, with their number of events and size.
    List {
        /// Prints JSON, one topic per line.
        #[arg(long)]
        json: bool,
    },
    /// Enables a topic. A running node accepts its events within two seconds. A topic that is enabled by its name is listed by it.
    Enable {
        /// A name, or an id.
        topic: String,
    },
    /// Disables a topic: new events are refused. Stored events stay readable until their retention has passed.
    Disable {
        /// A name, or an id.
        topic: String,
    },
    /// Sets a topic's policy. Flags that are not given change nothing; `default` resets a setting.
    Set {
        /// A name, or an id.
        topic: String,
        #[command(flatten)]
        policy: Box<PolicyFlags>,
    },
}

/// The settings of a topic's policy.
#[derive(Args)]
pub(crate) struct PolicyFlags {
    /// How long regular events are kept: a time such as 90d, forever, or default.
    #[arg(long, value_name = "TIME")]
    keep_regular: Option<String>,
    /// How long current versions are kept.
    #[arg(long, value_name = "TIME")]
    keep_current: Option<String>,
    /// How long replaced versions are kept.
    #[arg(long, value_name = "TIME")]
    keep_replaced: Option<String>,
    /// The most events the topic may hold, or default.
    #[arg(long, value_name = "N")]
    max_events: Option<String>,
    /// The most bytes the topic may hold, such as 2GiB, or default.
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<String>,
    /// The topic's priority; 0 is refused first when capacity runs out.
    #[arg(long, value_name = "0-255")]
    priority: Option<u8>,
    /// Whether history is fetched from other nodes: on or off.
    #[arg(long, value_name = "ON|OFF")]
    backfill: Option<String>,
    /// How late events may arrive: a time, or default.
    #[arg(long, value_name = "TIME")]
    max_delay: Option<String>,
}

pub(crate) async fn run(settings: &Settings, command: Topic) -> anyhow::Result<()> {
    match command {
        Topic::Id { name } => output::print(&format!("{}\n", topic_id(settings, &name)?)),
        Topic::List { json } => list(settings, json).await,
        Topic::Enable { topic } => switch(settings, &topic, true).await,
        Topic::Disable { topic } => switch(settings, &topic, false).await,
        Topic::Set { topic, policy } => set(settings, &topic, &policy).await,
    }
}

/// The id of a name, or the id itself.
pub(crate) fn topic_id(settings: &Settings, name: &str) -> anyhow::Result<TopicId> {
    Ok(TopicId::from_name(&settings.topics.network, name, &settings.topic_rules()?)?)
}

async fn switch(settings: &Settings, topic: &str, enabled: bool) -> anyhow::Result<()> {
    let id = topic_id(settings, topic)?;
    change(settings, &id, Some(enabled), None).await?;
    output::print(&format!("{id} {}\n", if enabled { "is enabled" } else { "is disabled" }))?;
    if !enabled || id.as_str() == topic {
        return Ok(());
    }
    // The topic is enabled, whatever becomes of its name.
    match keep_name(settings, &id, topic).await {
        Ok(()) => Ok(()),
        Err(error) => output::print(&format!("its name is not listed: {}\n", output::one_line(&error))),
    }
}

/// Keeps the name of a topic, so that people find the topic by it (S-8).
async fn keep_name(settings: &Settings, id: &TopicId, name: &str) -> anyhow::Result<()> {
    let control = wiring::control::for_serving(settings).await?;
    topic_name::keep(control.database(), id, name).await?;
    control.database().close().await;
    Ok(())
}

async fn change(
    settings: &Settings,
    id: &TopicId,
    enabled: Option<bool>,
    policy: Option<IngestPolicy>,
) -> anyhow::Result<()> {
    let mut client = AdminClient::open(settings, None).await?;
    client.ask::<()>(AdminRequest::Topic { topic: id.to_string(), enabled, policy: policy.map(Box::new) }).await?;
    client.close().await
}

async fn set(settings: &Settings, topic: &str, flags: &PolicyFlags) -> anyhow::Result<()> {
    let id = topic_id(settings, topic)?;
    let known = stores::for_reading(settings).await?.subscriptions().await?.into_iter().find(|one| one.topic == id);
    let Some(known) = known else { bail!("{id} is not a topic of this node; enable it first") };
    let mut policy = known.policy;
    flags.apply(&mut policy)?;
    change(settings, &id, None, Some(policy)).await?;
    output::print(&format!("{id}: {}\n", described(&policy)))
}

impl PolicyFlags {
    fn apply(&self, policy: &mut IngestPolicy) -> anyhow::Result<()> {
        let keep = |text: &str| parse_text::<Foreign<Keep>>(text).map(|keep| keep.0);
        set_or_default(&mut policy.retention.regular, "--keep-regular", self.keep_regular.as_deref(), keep)?;
        set_or_default(&mut policy.retention.current, "--keep-current", self.keep_current.as_deref(), keep)?;
        set_or_default(&mut policy.retention.replaced, "--keep-replaced", self.keep_replaced.as_deref(), keep)?;
        set_or_default(&mut policy.max_events, "--max-events", self.max_events.as_deref(), |text| {
            text.parse::<u64>().map_err(|_| "must be a whole number".to_owned())
        })?;
        let size = |text: &str| parse_text::<ByteSize>(text).map(|size| size.0);
        set_or_default(&mut policy.max_bytes, "--max-bytes", self.max_bytes.as_deref(), size)?;
        set_or_default(&mut policy.max_delay, "--max-delay", self.max_delay.as_deref(), parse_text)?;
        if let Some(priority) = self.priority {
            policy.priority = priority;
        }
        if let Some(text) = &self.backfill {
            let switch: Switch = parse_text(text).map_err(|error| anyhow::anyhow!("--backfill {text}: {error}"))?;
            policy.backfill = switch == Switch::On;
        }
        Ok(())
    }
}

fn set_or_default<T, E: std::fmt::Display>(
    value: &mut Option<T>,
    flag: &str,
    text: Option<&str>,
    read: impl Fn(&str) -> Result<T, E>,
) -> anyhow::Result<()> {
    match text {
        None => {}
        Some("default") => *value = None,
        Some(text) => *value = Some(read(text).map_err(|error| anyhow::anyhow!("{flag} {text}: {error}"))?),
    }
    Ok(())
}

async fn list(settings: &Settings, as_json: bool) -> anyhow::Result<()> {
    let store = stores::for_reading(settings).await?;
    let subscriptions = store.subscriptions().await?;
    let topics: Vec<TopicId> = subscriptions.iter().map(|one| one.topic.clone()).collect();
    let stats = store.topic_stats(&topics).await?;
    if as_json {
        let lines = subscriptions.iter().zip(&stats).map(|(one, stats)| format!("{}\n", as_value(one, stats.as_ref())));
        return output::print(&lines.collect::<String>());
    }
    let rows = subscriptions.iter().zip(&stats).map(|(one, stats)| row(one, stats.as_ref()));
    output::print(&table(["topic", "enabled", "events", "stored", "users", "policy"], rows))
}

fn holds(stats: Option<&TopicStats>) -> (u64, u64) {
    stats.map_or((0, 0), |stats| (stats.effective, total(&stats.by_class).bytes))
}

fn row(one: &NodeSubscription, stats: Option<&TopicStats>) -> [String; 6] {
    let (events, size) = holds(stats);
    let enabled = match (one.enabled, one.keeper) {
        (true, Keeper::Operator) => "yes",
        (true, Keeper::Use) => "by use",
        (true, Keeper::People) => "by members",
        (false, _) => "no",
    };
    [
        one.topic.to_string(),
        enabled.to_owned(),
        events.to_string(),
        bytes(size),
        one.ref_count.to_string(),
        described(&one.policy),
    ]
}

fn as_value(one: &NodeSubscription, stats: Option<&TopicStats>) -> serde_json::Value {
    let (events, size) = holds(stats);
    json!({
        "topic": one.topic.as_str(),
        "enabled": one.enabled,
        "opened_by": match one.keeper {
            Keeper::Operator => "operator",
            Keeper::Use => "use",
            Keeper::People => "people",
        },
        "ref_count": one.ref_count,
        "events": events,
        "bytes": size,
        "policy": one.policy,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
    })
}

/// The settings that differ from the default, in words.
fn described(policy: &IngestPolicy) -> String {
    let keep = |keep: Keep| format_text(&Foreign(keep));
    let parts = [
        policy.retention.regular.map(|time| format!("regular {}", keep(time))),
        policy.retention.current.map(|time| format!("current {}", keep(time))),
        policy.retention.replaced.map(|time| format!("replaced {}", keep(time))),
        policy.max_events.map(|most| format!("at most {most} events")),
        policy.max_bytes.map(|most| format!("at most {}", bytes(most))),
        (policy.priority != IngestPolicy::default().priority).then(|| format!("priority {}", policy.priority)),
        (!policy.backfill).then(|| "no backfill".to_owned()),
        policy.max_delay.map(|delay| format!("at most {} s late", delay.as_secs())),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "default".to_owned() } else { parts.join(", ") }
}
