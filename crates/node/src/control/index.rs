//! What is asked of the node about its index for search.

use anyhow::Context;
use kukuri_outbox::{State, Status};
use kukuri_search::IndexStats;
use serde::{Deserialize, Serialize};

use super::{Reply, Running};
use crate::wiring::searching::{AtRest, Differences, Searching};

/// Differences that are told one by one.
const TOLD: usize = 20;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IndexRequest {
    /// What it is at.
    Status,
    /// Begin to build it anew.
    Rebuild,
    /// Compare it with the store.
    Verify,
}

/// What an index is at.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IndexReport {
    pub(crate) state: String,
    /// It goes on only if an operator does something.
    pub(crate) is_waiting: bool,
    /// While it is built anew: how many events of how many.
    pub(crate) progress: Option<(u64, u64)>,
    pub(crate) builds: u64,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    pub(crate) head: u64,
}

/// What a comparison found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IndexDifferences {
    pub(crate) documents: u64,
    pub(crate) missing: usize,
    pub(crate) left_over: usize,
    /// Some of them, in words.
    pub(crate) told: Vec<String>,
}

/// Does what is asked.
pub(super) async fn answer(running: &Running, request: IndexRequest) -> anyhow::Result<Reply> {
    let searching = running.searching.as_deref().context("this node has no search: search.index is off")?;
    Ok(match request {
        IndexRequest::Status => Reply::Index(report(searching).await?),
        IndexRequest::Rebuild => Reply::IndexBuilds(searching.rebuild().await?),
        IndexRequest::Verify => Reply::IndexDifferences((&searching.verify().await?).into()),
    })
}

async fn report(searching: &Searching) -> anyhow::Result<IndexReport> {
    let stats = searching.stats().await?;
    let status = searching.status().borrow().clone();
    let state = in_words(&status);
    let is_waiting = status.state.is_waiting();
    let progress = match status.state {
        State::Rebuilding { done, of } => Some((done, of)),
        _ => None,
    };
    let (offset, head) = (status.offset.0, status.head.0);
    let IndexStats { documents, bytes } = stats;
    Ok(IndexReport { state, is_waiting, progress, builds: status.builds, documents, bytes, offset, head })
}

fn in_words(status: &Status) -> String {
    match &status.state {
        State::Starting => "starting".to_owned(),
        State::Standby => "another node keeps it".to_owned(),
        State::Following => "following".to_owned(),
        State::Rebuilding { done, of } => format!("being built, {done} of {of} events"),
        State::Paused => "paused".to_owned(),
        State::Retrying { why, times } => format!("failed {times} times, tries again: {why}"),
        State::Stuck { at, why } => format!("stuck at row {at}: {why}"),
        State::TooFarBehind { first } => {
            format!("too far behind: the outbox begins at {first}; kukuri-node index rebuild builds it anew")
        }
        State::Stopped => "stopped".to_owned(),
    }
}

impl From<AtRest> for IndexReport {
    fn from(rest: AtRest) -> Self {
        Self {
            state: "no node runs here".to_owned(),
            is_waiting: false,
            progress: None,
            builds: 0,
            documents: rest.stats.documents,
            bytes: rest.stats.bytes,
            offset: rest.offset.0,
            head: rest.head.0,
        }
    }
}

impl From<&Differences> for IndexDifferences {
    fn from(found: &Differences) -> Self {
        let missing = found.missing.iter().map(|id| format!("{id} is visible, but not in the index"));
        let left_over = found.left_over.iter().map(|id| format!("{id} is in the index, but should not be"));
        Self {
            documents: found.documents,
            missing: found.missing.len(),
            left_over: found.left_over.len(),
            told: missing.take(TOLD).chain(left_over.take(TOLD)).collect(),
        }
    }
}
