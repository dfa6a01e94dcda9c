//! Requests about outbox services, the same for every service.

use std::collections::BTreeMap;

use kukuri_outbox::{Figure, RunningService, ServiceError, ServiceInfo, State, Verification, pause};
use kukuri_store::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AdminContext;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServiceRequest {
    /// The reply is a list of [`ServiceReport`], without figures.
    List,
    /// The reply is a [`ServiceReport`].
    Status(String),
    Pause(String),
    Resume(String),
    /// Begins a rebuild; its end shows in the status. The reply is the number of rebuilds before it.
    Rebuild(String),
    /// The reply is a [`VerifyReport`].
    Verify(String),
}

/// The status of a service. With `--json` it is printed as it is: a stable contract.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServiceReport {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The name of the state, or `not_running`.
    pub(crate) state: String,
    /// The state in words.
    pub(crate) message: String,
    /// Whether only an operator can make the service continue.
    pub(crate) needs_operator: bool,
    /// Unix seconds; also while another process runs the service.
    pub(crate) paused_since: Option<u64>,
    pub(crate) rebuild_progress: Option<RebuildProgress>,
    /// Rebuilds since the node started.
    pub(crate) rebuilds: u64,
    pub(crate) offset: u64,
    pub(crate) head: u64,
    pub(crate) backlog: u64,
    pub(crate) figures: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RebuildProgress {
    pub(crate) done: u64,
    pub(crate) of: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VerifyReport {
    pub(crate) summary: String,
    pub(crate) differences: u64,
    pub(crate) examples: Vec<String>,
}

pub(super) async fn answer(context: &AdminContext, request: ServiceRequest) -> anyhow::Result<Value> {
    let services = &context.services;
    let store = context.engine.store();
    Ok(match request {
        ServiceRequest::List => {
            let mut reports = Vec::new();
            for service in services.iter() {
                reports.push(ServiceReport::of_running(service, store).await?);
            }
            json!(reports)
        }
        ServiceRequest::Status(name) => {
            let service = services.get(&name)?;
            json!(ServiceReport::of_running(service, store).await?.with_figures(&service.figures().await?))
        }
        ServiceRequest::Pause(name) => json!(services.get(&name)?.pause().await?),
        ServiceRequest::Resume(name) => json!(services.get(&name)?.resume().await?),
        ServiceRequest::Rebuild(name) => json!(services.get(&name)?.rebuild().await?),
        ServiceRequest::Verify(name) => {
            let Verification { records, compared, differences, examples } = services.get(&name)?.verify().await?;
            let summary = format!("{compared} {records} compared, {differences} differences");
            json!(VerifyReport { summary, differences, examples })
        }
    })
}

impl ServiceReport {
    async fn of_running(service: &RunningService, store: &dyn Store) -> Result<Self, ServiceError> {
        let status = service.status().borrow().clone();
        let mut report = Self::at_rest(service.info(), store).await?;
        if let State::Rebuilding { done, of } = status.state {
            report.rebuild_progress = Some(RebuildProgress { done, of });
        }
        report.message = message(service.info().name, &status.state);
        report.state = status.state.name().to_owned();
        report.needs_operator = status.state.is_waiting();
        report.rebuilds = status.builds;
        report.offset = status.offset.0.min(report.head);
        report.backlog = report.head - report.offset;
        Ok(report)
    }

    /// The report of a service that does not run in this process.
    pub(crate) async fn at_rest(info: ServiceInfo, store: &dyn Store) -> Result<Self, ServiceError> {
        let (offsets, head) = (store.offsets().await?, store.stats().await?.head.0);
        let offset = offsets.iter().find(|offset| offset.consumer == info.name).map_or(0, |offset| offset.last_seq.0);
        let paused_since = pause::paused_since(&offsets, info.name).map(|since| since.seconds().0);
        Ok(Self {
            name: info.name.to_owned(),
            description: info.description.to_owned(),
            state: "not_running".to_owned(),
            message: "no node runs here".to_owned(),
            paused_since,
            offset,
            head,
            backlog: head.saturating_sub(offset),
            ..Self::default()
        })
    }

    pub(crate) fn with_figures(mut self, figures: &[Figure]) -> Self {
        self.figures = figures.iter().map(|figure| (figure.name.to_owned(), figure.value)).collect();
        self
    }
}

fn message(name: &str, state: &State) -> String {
    match state {
        State::Starting => "starting".to_owned(),
        State::Standby => "standby: another node runs it".to_owned(),
        State::Following => "following".to_owned(),
        State::Rebuilding { done, of } => format!("rebuilding, {done} of {of} events"),
        State::Paused => format!("paused; kukuri-node service resume {name} ends the pause"),
        State::Retrying { why, times } => format!("failed {times} times, retrying: {why}"),
        State::Stuck { at, why } => format!("stuck at row {at}: {why}"),
        State::TooFarBehind { first } => {
            format!("too far behind: the outbox begins at {first}; run kukuri-node service rebuild {name}")
        }
        State::Stopped => "stopped".to_owned(),
    }
}
