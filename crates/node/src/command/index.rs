//! `index`: what the index for search is at, building it anew, comparing it with the store.

use std::time::Duration;

use anyhow::bail;
use clap::Subcommand;

use super::{
    progress::Progress,
    table::{bytes, table},
};
use crate::{
    config::{IndexPlace, Settings},
    control::{
        Reply, Request,
        index::{IndexReport, IndexRequest},
        link::Link,
    },
    output,
    wiring::{searching, stores},
};

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What can be done about the index.
#[derive(Subcommand)]
pub(crate) enum Index {
    /// Prints what it is at, how large it is, and how far it is behind.
    Status,
    /// Builds it anew, beside the one in use, and then puts it in place.
    Rebuild,
    /// Compares it with the events that are visible, and prints what differs.
    Verify,
}

/// Runs the command.
pub(crate) async fn run(settings: &Settings, command: Index) -> anyhow::Result<()> {
    if settings.index_place() == IndexPlace::Off {
        bail!("this node has no search: search.index is off");
    }
    match command {
        Index::Status => status(settings).await,
        Index::Rebuild => rebuild(settings).await,
        Index::Verify => verify(settings).await,
    }
}

async fn status(settings: &Settings) -> anyhow::Result<()> {
    let report = match Link::to_running(settings).await? {
        Some(mut link) => ask_status(&mut link).await?,
        // Nothing is begun just to look.
        None => searching::at_rest(settings, &*stores::for_reading(settings).await?).await?.into(),
    };
    let rows = [
        ("state", report.state),
        ("documents", report.documents.to_string()),
        ("size", bytes(report.bytes)),
        ("has come to", report.offset.to_string()),
        ("outbox ends at", report.head.to_string()),
        ("behind", report.head.saturating_sub(report.offset).to_string()),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]).collect();
    Ok(output::print(&table(&["index", ""], &rows))?)
}

async fn rebuild(settings: &Settings) -> anyhow::Result<()> {
    let mut link = Link::open_searching(settings).await?;
    let Reply::IndexBuilds(before) = link.ask(Request::Index(IndexRequest::Rebuild)).await? else {
        bail!("the node answers something else");
    };
    let mut progress = None;
    let report = loop {
        let report = ask_status(&mut link).await?;
        if report.builds > before {
            break report;
        }
        if report.is_waiting {
            bail!("it was not built: {}", report.state);
        }
        if let Some((done, of)) = report.progress {
            progress.get_or_insert_with(|| Progress::new(Some(of), "events")).reached(done);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    if let Some(progress) = progress {
        progress.finish();
    }
    link.close().await?;
    Ok(output::print(&format!("built anew: {} documents, {}\n", report.documents, bytes(report.bytes)))?)
}

async fn verify(settings: &Settings) -> anyhow::Result<()> {
    let mut link = Link::open_searching(settings).await?;
    let Reply::IndexDifferences(found) = link.ask(Request::Index(IndexRequest::Verify)).await? else {
        bail!("the node answers something else");
    };
    link.close().await?;
    let differences = found.missing + found.left_over;
    output::print(&found.told.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    let summary = format!("{} documents compared, {differences} differences", found.documents);
    if differences > 0 {
        bail!("{summary}; kukuri-node index rebuild builds it anew");
    }
    Ok(output::print(&format!("{summary}\n"))?)
}

async fn ask_status(link: &mut Link) -> anyhow::Result<IndexReport> {
    match link.ask(Request::Index(IndexRequest::Status)).await? {
        Reply::Index(report) => Ok(report),
        _ => bail!("the node answers something else"),
    }
}
