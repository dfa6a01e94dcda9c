//! `service`: list, status, pause, resume, rebuild and verification of the outbox services. `index` is short for
//! `service … index-v1`.

use std::{sync::Arc, time::Duration};

use anyhow::bail;
use clap::{Args, Subcommand};
use kukuri_domain::{Millis, Timestamp};
use kukuri_outbox::pause;
use kukuri_search::index_consumer::CONSUMER as INDEX;

use super::{
    Output,
    progress::Progress,
    table::{bytes, moment, table},
};
use crate::{
    admin_socket::{
        AdminRequest,
        client::AdminClient,
        service::{ServiceReport, ServiceRequest, VerifyReport},
    },
    config::Settings,
    output,
    wiring::{
        self, search_index,
        services::{REGISTRY, Registration, ServiceParts},
        stores,
    },
};

const STATUS_INTERVAL: Duration = Duration::from_millis(200);

/// Commands for any outbox service.
#[derive(Subcommand)]
pub(crate) enum ServiceCommand {
    /// Prints all services: state and backlog.
    List(Output),
    /// Prints the status of one service, or of all.
    Status {
        /// The service, such as index-v1.
        name: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Pauses a service until `resume`, also across restarts. The outbox keeps its rows only as long as
    /// retention.outbox says: a service that is paused for longer needs a rebuild.
    Pause(Named),
    /// Ends a pause, or retries the row that the service is stuck at.
    Resume(Named),
    /// Rebuilds a service's data beside the data in use, then switches to it. Ends a pause.
    Rebuild(Named),
    /// Compares a service's data with the store, and prints what differs.
    Verify(Named),
}

#[derive(Args)]
pub(crate) struct Named {
    /// The service.
    name: String,
}

/// Commands for the search index.
#[derive(Subcommand)]
pub(crate) enum IndexCommand {
    /// Short for `service status index-v1`.
    Status,
    /// Short for `service rebuild index-v1`.
    Rebuild,
    /// Short for `service verify index-v1`.
    Verify,
}

pub(crate) async fn run_index(settings: &Settings, command: IndexCommand) -> anyhow::Result<()> {
    let name = INDEX.to_owned();
    let command = match command {
        IndexCommand::Status => ServiceCommand::Status { name: Some(name), output: Output { json: false } },
        IndexCommand::Rebuild => ServiceCommand::Rebuild(Named { name }),
        IndexCommand::Verify => ServiceCommand::Verify(Named { name }),
    };
    run(settings, command).await
}

pub(crate) async fn run(settings: &Settings, command: ServiceCommand) -> anyhow::Result<()> {
    match command {
        ServiceCommand::List(output) | ServiceCommand::Status { name: None, output } => list(settings, &output).await,
        ServiceCommand::Status { name: Some(name), output } => status(settings, &name, &output).await,
        ServiceCommand::Pause(Named { name }) => {
            change(settings, &name, ServiceRequest::Pause, Some(wiring::now())).await?;
            output::print(&format!("{name} is paused; kukuri-node service resume {name} ends the pause\n"))
        }
        ServiceCommand::Resume(Named { name }) => {
            change(settings, &name, ServiceRequest::Resume, None).await?;
            output::print(&format!("{name} is resumed\n"))
        }
        ServiceCommand::Rebuild(Named { name }) => rebuild(settings, &name).await,
        ServiceCommand::Verify(Named { name }) => verify(settings, &name).await,
    }
}

async fn list(settings: &Settings, output: &Output) -> anyhow::Result<()> {
    let reports = match AdminClient::running_node(settings).await? {
        Some(mut client) => client.ask(AdminRequest::Service(ServiceRequest::List)).await?,
        None => {
            let store = stores::for_reading(settings).await?;
            let mut reports = Vec::new();
            for registration in REGISTRY.iter().filter(|registration| (registration.is_on)(settings)) {
                reports.push(ServiceReport::at_rest(registration.info, &*store).await?);
            }
            reports
        }
    };
    if output.json {
        return output::print(&format!("{}\n", serde_json::to_string(&reports)?));
    }
    let rows = reports.into_iter().map(|report| {
        let is_paused = report.paused_since.is_some() && report.state != "paused";
        let state = format!("{}{}", report.state.replace('_', " "), if is_paused { ", paused" } else { "" });
        [report.name, state, report.backlog.to_string(), report.description]
    });
    output::print(&table(["service", "state", "backlog", "description"], rows))
}

async fn status(settings: &Settings, name: &str, output: &Output) -> anyhow::Result<()> {
    let registration = Registration::find(name, settings)?;
    let report = match AdminClient::running_node(settings).await? {
        Some(mut client) => one_status(&mut client, name).await?,
        // A status query neither creates the service's data nor starts the service.
        None => {
            let store = stores::for_reading(settings).await?;
            let index = search_index::open_existing(settings).await?;
            let parts = ServiceParts { settings, store: Arc::clone(&store), index };
            let figures = (registration.open)(&parts)?.figures().await?;
            ServiceReport::at_rest(registration.info, &*store).await?.with_figures(&figures)
        }
    };
    if output.json {
        return output::print(&format!("{}\n", serde_json::to_string(&report)?));
    }
    let mut rows = vec![["state".to_owned(), report.message]];
    rows.extend(report.paused_since.map(|since| ["paused since".to_owned(), moment(Timestamp(since))]));
    rows.extend(report.figures.iter().map(|(name, value)| figure(name, *value)));
    rows.push(["offset".to_owned(), report.offset.to_string()]);
    rows.push(["outbox head".to_owned(), report.head.to_string()]);
    rows.push(["backlog".to_owned(), report.backlog.to_string()]);
    output::print(&table([name, ""], rows))
}

/// Pauses or resumes a service. Without a node no service runs: the flag in the store is enough.
async fn change(
    settings: &Settings,
    name: &str,
    request: fn(String) -> ServiceRequest,
    paused_since: Option<Millis>,
) -> anyhow::Result<()> {
    Registration::find(name, settings)?;
    match AdminClient::running_node(settings).await? {
        Some(mut client) => client.ask(AdminRequest::Service(request(name.to_owned()))).await,
        None => Ok(pause::set_paused(&*stores::for_changing(settings).await?, name, paused_since).await?),
    }
}

async fn rebuild(settings: &Settings, name: &str) -> anyhow::Result<()> {
    let mut client = AdminClient::open(settings, Some(Registration::find(name, settings)?)).await?;
    let before: u64 = client.ask(AdminRequest::Service(ServiceRequest::Rebuild(name.to_owned()))).await?;
    let mut progress = None;
    let report = loop {
        let report = one_status(&mut client, name).await?;
        if report.rebuilds > before {
            break report;
        }
        if report.needs_operator {
            bail!("{name} was not rebuilt: {}", report.message);
        }
        if let Some(rebuilding) = report.rebuild_progress {
            progress.get_or_insert_with(|| Progress::new(Some(rebuilding.of), "events")).reached(rebuilding.done);
        }
        tokio::time::sleep(STATUS_INTERVAL).await;
    };
    drop(progress);
    client.close().await?;
    let figures = report.figures.iter().map(|(name, value)| figure(name, *value));
    let figures: Vec<String> = figures.map(|cells| cells.join(" ")).collect();
    output::print(&format!("{name} is rebuilt: {}\n", figures.join(", ")))
}

async fn verify(settings: &Settings, name: &str) -> anyhow::Result<()> {
    let mut client = AdminClient::open(settings, Some(Registration::find(name, settings)?)).await?;
    let request = AdminRequest::Service(ServiceRequest::Verify(name.to_owned()));
    let VerifyReport { summary, differences, examples } = client.ask(request).await?;
    client.close().await?;
    output::print(&examples.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    if differences > 0 {
        bail!("{summary}; kukuri-node service rebuild {name} repairs them");
    }
    output::print(&format!("{summary}\n"))
}

/// Label and formatted value of a figure.
fn figure(name: &str, value: u64) -> [String; 2] {
    match name.strip_suffix("_bytes") {
        Some(name) => [name.replace('_', " "), bytes(value)],
        None => [name.replace('_', " "), value.to_string()],
    }
}

async fn one_status(client: &mut AdminClient, name: &str) -> anyhow::Result<ServiceReport> {
    client.ask(AdminRequest::Service(ServiceRequest::Status(name.to_owned()))).await
}
