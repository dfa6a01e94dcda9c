//! Search for a node: the index in its data directory and the consumer that keeps it. [`mark`]: whose index it is.
//! [`verify`]: whether it holds what it should.

mod mark;
mod verify;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use kukuri_domain::Kind;
use kukuri_outbox::{Consumer, ConsumerSettings, Handle, State, Status};
use kukuri_search::{Finder, IndexSink, IndexStats, SearchIndex, TantivyIndex, following::CONSUMER};
use kukuri_store::{Seq, Store};
use mark::Mark;
use tokio::{sync::watch, task::JoinHandle};
pub(crate) use verify::Differences;

use super::now;
use crate::config::{IndexPlace, Settings};

/// A stop waits this long for a batch that is being written. One that breaks off is done again at the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A start waits this long for an index that is built anew: until it is filled nothing is found.
const FILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The index and what keeps it.
pub(crate) struct Searching {
    index: Arc<dyn SearchIndex>,
    store: Arc<dyn Store>,
    kinds: BTreeSet<Kind>,
    directory: PathBuf,
    consumer: Handle,
    marking: JoinHandle<()>,
}

/// An index that nobody keeps at the moment.
pub(crate) struct AtRest {
    pub(crate) stats: IndexStats,
    pub(crate) offset: Seq,
    pub(crate) head: Seq,
}

impl Searching {
    /// Opens the index, made if there is none, and lets it follow the store. `None`: search is off.
    pub(crate) async fn start(settings: &Settings, store: &Arc<dyn Store>) -> anyhow::Result<Option<Self>> {
        if settings.index_place() == IndexPlace::Off {
            return Ok(None);
        }
        let (directory, kinds) = (place(settings), settings.indexed_kinds());
        let index: Arc<dyn SearchIndex> = Arc::new(open_of(&**store, &directory, &kinds).await?);
        let sink = Arc::new(IndexSink::new(Arc::clone(&index), kinds.iter().copied()));
        let consumer = Consumer::start(CONSUMER, Arc::clone(store), sink, ConsumerSettings::default());
        let mut status = consumer.status();
        // A large one takes longer, and the relay is there meanwhile.
        let _ = tokio::time::timeout(FILL_TIMEOUT, status.wait_for(|status| status.state == State::Following)).await;
        let marking = mark::keep(&directory, &kinds, Arc::clone(store), Arc::clone(&index), consumer.status());
        Ok(Some(Self { index, store: Arc::clone(store), kinds, directory, consumer, marking: tokio::spawn(marking) }))
    }

    /// What finds events in it.
    pub(crate) fn finder(&self) -> Finder {
        Finder::new(Arc::clone(&self.index), Arc::clone(&self.store), self.kinds.iter().copied())
    }

    /// What the consumer is at.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.consumer.status()
    }

    /// Figures of the index.
    pub(crate) async fn stats(&self) -> anyhow::Result<IndexStats> {
        Ok(self.index.stats().await?)
    }

    /// Has everything built anew. It is done when `builds` of the status is more than what is returned.
    pub(crate) async fn rebuild(&self) -> u64 {
        let builds = self.status().borrow().builds;
        self.consumer.rebuild().await;
        builds
    }

    /// Compares the index with the store, once it has followed that far.
    pub(crate) async fn verify(&self) -> anyhow::Result<Differences> {
        let head = self.store.stats().await?.head;
        if !self.consumer.caught_up(head).await {
            bail!("the index does not follow the store: see kukuri-node index status");
        }
        verify::verify(&*self.index, &*self.store, &self.kinds, now()).await
    }

    /// Stops following.
    pub(crate) async fn stop(&self) {
        if tokio::time::timeout(STOP_TIMEOUT, self.consumer.end()).await.is_err() {
            tracing::warn!("the search index is in the middle of a batch; it goes on from there at the next start");
        }
        self.marking.abort();
        mark::write_now(&self.directory, &self.kinds, &*self.store, &*self.index).await;
    }
}

/// Figures of an index that no node keeps.
pub(crate) async fn at_rest(settings: &Settings, store: &dyn Store) -> anyhow::Result<AtRest> {
    let directory = place(settings);
    if !directory.exists() {
        bail!("{}: there is no index here yet; a node that starts makes it", directory.display());
    }
    let index = open(&directory)?;
    let offset = index.reached().await?.unwrap_or_default();
    Ok(AtRest { stats: index.stats().await?, offset, head: store.stats().await?.head })
}

fn place(settings: &Settings) -> PathBuf {
    settings.data.join("index")
}

/// Opens the index of this store. One that is of another, or of other kinds, is thrown away: the consumer fills a new one.
async fn open_of(store: &dyn Store, directory: &Path, kinds: &BTreeSet<Kind>) -> anyhow::Result<TantivyIndex> {
    let index = open(directory)?;
    let Some(reached) = index.reached().await? else { return Ok(index) };
    let Some(why) = Mark::read(directory).why_not(store, kinds, reached).await? else { return Ok(index) };
    tracing::warn!(why, "the search index is built anew");
    drop(index);
    fs::remove_dir_all(directory).with_context(|| directory.display().to_string())?;
    open(directory)
}

fn open(directory: &Path) -> anyhow::Result<TantivyIndex> {
    TantivyIndex::open(directory).with_context(|| {
        format!("can't open the search index in {} (search.index = \"off\" does without)", directory.display())
    })
}
