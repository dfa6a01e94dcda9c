//! Whose index it is. An index tells how far it has come by the number of a row, and every store counts from 1: one that was
//! restored, or is another, has other rows by the same numbers. So a row that the index has come to is noted beside it, and
//! the kinds that are in it.
//!
//! A mark may be a little older than the index. Only a store that parts from the old one within that moment, and was
//! written to without an index since, is taken for the old one; what it shows is true even then, since every hit is looked up.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kukuri_domain::{EventId, Kind, Millis};
use kukuri_outbox::Status;
use kukuri_search::SearchIndex;
use kukuri_store::{Seq, Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const FILE: &str = "mark.json";
const MARK_EVERY: Duration = Duration::from_secs(1);

/// What is noted beside an index.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    kinds: BTreeSet<u16>,
    row: Option<Row>,
}

/// A row of the outbox, told from every other.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    seq: u64,
    event_id: EventId,
    written_at: Millis,
}

impl Mark {
    /// The one in a directory. What can't be read says nothing.
    pub(super) fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Why an index that has come to a row is not the one of this store and these kinds; `None`: it is.
    pub(super) async fn why_not(
        &self,
        store: &dyn Store,
        kinds: &BTreeSet<Kind>,
        reached: Seq,
    ) -> Result<Option<&'static str>, StoreError> {
        if reached == Seq(0) {
            // It is empty.
            return Ok(None);
        }
        if self.kinds != numbers(kinds) {
            return Ok(Some("other kinds are to be indexed"));
        }
        if store.stats().await?.head < reached {
            return Ok(Some("it is ahead of the store"));
        }
        if self.row.is_some() && self.row == row_at(store, self.row.as_ref().map_or(0, |row| row.seq)).await? {
            return Ok(None);
        }
        // Whoever can't be followed any more is told so by the consumer, and what to do (O-8).
        let is_far_behind = matches!(store.outbox(reached, 1).await, Err(StoreError::Truncated { .. }));
        Ok((!is_far_behind).then_some("it follows another store"))
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        let beside = directory.join("mark.new");
        fs::write(&beside, serde_json::to_string(self)?)?;
        fs::rename(beside, directory.join(FILE))
    }
}

/// Keeps the mark near what the index has come to.
pub(super) fn keep(
    directory: &Path,
    kinds: &BTreeSet<Kind>,
    store: Arc<dyn Store>,
    index: Arc<dyn SearchIndex>,
    mut status: watch::Receiver<Status>,
) -> impl Future<Output = ()> + Send + 'static {
    let (directory, kinds): (PathBuf, BTreeSet<Kind>) = (directory.to_owned(), kinds.clone());
    async move {
        let mut marked = None;
        loop {
            let offset = status.borrow_and_update().offset;
            if marked != Some(offset) {
                write_now(&directory, &kinds, &*store, &*index).await;
                marked = Some(offset);
                tokio::time::sleep(MARK_EVERY).await;
            }
            if status.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Notes what the index has come to. Without it the index is built anew at the next start: that is no reason to stop.
pub(super) async fn write_now(directory: &Path, kinds: &BTreeSet<Kind>, store: &dyn Store, index: &dyn SearchIndex) {
    let written = async {
        let Some(reached) = index.reached().await? else { return anyhow::Ok(()) };
        let row = row_at(store, reached.0).await?;
        // A row that is gone says nothing; the mark before may.
        if row.is_some() || reached == Seq(0) {
            Mark { kinds: numbers(kinds), row }.write(directory)?;
        }
        Ok(())
    };
    if let Err(error) = written.await {
        tracing::warn!(%error, "what the search index has come to could not be noted");
    }
}

async fn row_at(store: &dyn Store, seq: u64) -> Result<Option<Row>, StoreError> {
    let Some(before) = seq.checked_sub(1) else { return Ok(None) };
    let rows = match store.outbox(Seq(before), 1).await {
        Err(StoreError::Truncated { .. }) => return Ok(None),
        rows => rows?,
    };
    let row = rows.into_iter().find(|row| row.seq == Seq(seq));
    Ok(row.map(|row| Row { seq, event_id: row.event_id, written_at: row.written_at }))
}

fn numbers(kinds: &BTreeSet<Kind>) -> BTreeSet<u16> {
    kinds.iter().map(|kind| kind.0).collect()
}
