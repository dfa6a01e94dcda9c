//! `request`: topics that people ask for.

use std::time::Duration;

use clap::{Args, Subcommand};
use kukuri_control::{
    Control,
    actions::{ApproveRequest, RejectRequest},
    request::{self, RequestStatus, Service, TopicRequest},
};
use kukuri_domain::nip19::npub;
use serde_json::json;
use tokio::time::Instant;

use super::{
    people::{Lines, as_lines, named, perform},
    table::{moment, one_line, table},
};
use crate::{config::Settings, output, wiring};

const PAGE: usize = 1_000;
/// How long an approval waits for the node to take the topic in.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub(crate) enum RequestCommand {
    /// Lists requests, the oldest first.
    List {
        /// Only those in this state: pending, approved, rejected, active or cancelled.
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        lines: Lines,
    },
    /// Approves a pending request: the person subscribes to the topic, and the node takes it in.
    Approve(Decision),
    /// Rejects a pending request.
    Reject(Decision),
}

/// A decision on a request.
#[derive(Args)]
pub(crate) struct Decision {
    /// The request's id.
    id: String,
    /// What the person is told.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub(crate) async fn run(settings: &Settings, command: RequestCommand) -> anyhow::Result<()> {
    let open = || wiring::control::for_command(settings);
    match command {
        RequestCommand::List { status, lines } => {
            let parse = |name: String| named("--status", &name, RequestStatus::ALL, RequestStatus::name);
            let status = status.map(parse).transpose()?;
            list(&*open().await?, status, &lines).await
        }
        RequestCommand::Approve(Decision { id, note }) => {
            let action = ApproveRequest { id, note, limits: settings.subscriptions.limits() };
            approve(&*open().await?, action).await
        }
        RequestCommand::Reject(Decision { id, note }) => {
            let request = perform(&*open().await?, RejectRequest { id, note }).await?;
            output::print(&decided(&request))
        }
    }
}

async fn approve(control: &Control, action: ApproveRequest) -> anyhow::Result<()> {
    let request = perform(control, action).await?;
    output::print(&decided(&request))?;
    output::print(match becomes_active(control, &request.id).await? {
        true => "The node has taken the topic in.\n",
        false => "The node takes the topic in when it runs.\n",
    })
}

fn decided(request: &TopicRequest) -> String {
    let TopicRequest { id, requester, topic, status, .. } = request;
    format!("request {id} of {} for {topic} is {status}\n", npub(requester))
}

/// Waits until the request is active, not for ever.
async fn becomes_active(control: &Control, id: &str) -> anyhow::Result<bool> {
    let end = Instant::now() + ACTIVE_TIMEOUT;
    loop {
        let request = request::find(control.database(), id).await?;
        if request.is_some_and(|request| request.status == RequestStatus::Active) {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn list(control: &Control, status: Option<RequestStatus>, lines: &Lines) -> anyhow::Result<()> {
    let requests = all(control, status).await?;
    if lines.json {
        return output::print(&as_lines(requests.iter().map(as_value)));
    }
    let text = |text: &Option<String>| text.as_deref().map(one_line).unwrap_or_default();
    let rows = requests.iter().map(|request| {
        [
            request.id.clone(),
            request.status.to_string(),
            moment(request.created_at),
            request.requester.to_string(),
            service_names(&request.services).join(","),
            request.topic.to_string(),
            text(&request.topic_name),
            text(&request.reason),
        ]
    });
    output::print(&table(["id", "status", "asked", "key", "services", "topic", "name", "reason"], rows))
}

async fn all(control: &Control, status: Option<RequestStatus>) -> anyhow::Result<Vec<TopicRequest>> {
    let (mut requests, mut after) = (Vec::new(), None);
    loop {
        let page = request::list(control.database(), None, status, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(requests) };
        after = Some((last.created_at, last.id.clone()));
        requests.extend(page);
    }
}

pub(super) fn service_names(services: &[Service]) -> Vec<&'static str> {
    services.iter().map(|service| service.name()).collect()
}

fn as_value(request: &TopicRequest) -> serde_json::Value {
    json!({
        "id": request.id,
        "status": request.status.name(),
        "pubkey": request.requester,
        "npub": npub(&request.requester),
        "topic": request.topic.as_str(),
        "topic_name": request.topic_name,
        "services": service_names(&request.services),
        "reason": request.reason,
        "review_note": request.review_note,
        "reviewed_by": request.reviewed_by,
        "created_at": request.created_at.0,
        "reviewed_at": request.reviewed_at.map(|time| time.0),
    })
}
