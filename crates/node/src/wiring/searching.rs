//! Search for a node: the index, in its data directory or in its database, and the consumer that keeps it. [`verify`]: whether
//! it holds what it should.

mod verify;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use kukuri_domain::Kind;
use kukuri_outbox::{Consumer, ConsumerSettings, Handle, State, Status};
use kukuri_search::{Finder, IndexSink, IndexStats, SearchIndex, TantivyIndex, following::CONSUMER};
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use kukuri_store::{Holder, Seq, Store};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
pub(crate) use verify::Differences;

use super::now;
use crate::config::{IndexPlace, Settings, StorePlace, Switch, place::PostgresUrl};

/// A stop waits this long for a batch that is being written. One that breaks off is done again at the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// A start waits this long for an index that is built anew: until it is filled nothing is found.
const FILL_TIMEOUT: Duration = Duration::from_secs(1);
/// An index that comes no further for so long does not follow.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The index and what keeps it.
pub(crate) struct Searching {
    index: Arc<dyn SearchIndex>,
    store: Arc<dyn Store>,
    kinds: BTreeSet<Kind>,
    consumer: Handle,
    /// For how long a process that is gone may still count as the one that keeps it.
    lease: Duration,
}

/// An index that nobody keeps here at the moment.
pub(crate) struct AtRest {
    pub(crate) stats: IndexStats,
    pub(crate) offset: Seq,
    pub(crate) head: Seq,
}

impl Searching {
    /// Opens the index, made if there is none, and lets it follow the store. `None`: search is off.
    pub(crate) async fn start(settings: &Settings, store: &Arc<dyn Store>) -> anyhow::Result<Option<Self>> {
        let place = settings.index_place();
        let Some(index) = open(settings, place, settings.postgres.migrate).await? else { return Ok(None) };
        let kinds = settings.indexed_kinds();
        let sink = IndexSink::new(Arc::clone(&index), Arc::clone(store), kinds.iter().copied());
        let mut following = ConsumerSettings::default();
        if place == IndexPlace::Embedded {
            // Nobody else has this directory open: after a crash nobody has to be waited for.
            following.holder = Some(Holder(1));
        }
        let lease = following.lease;
        let consumer = Consumer::start(CONSUMER, Arc::clone(store), Arc::new(sink), following);
        let mut status = consumer.status();
        // A large one takes longer, and the relay is there meanwhile.
        let is_at_work = |status: &Status| matches!(status.state, State::Following | State::Standby);
        let _ = timeout(FILL_TIMEOUT, status.wait_for(is_at_work)).await;
        Ok(Some(Self { index, store: Arc::clone(store), kinds, consumer, lease }))
    }

    /// What finds events in it.
    pub(crate) fn finder(&self) -> Finder {
        Finder::new(Arc::clone(&self.index), Arc::clone(&self.store), self.kinds.iter().copied())
    }

    /// What keeps it.
    pub(crate) fn consumer(&self) -> &Handle {
        &self.consumer
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
    pub(crate) async fn rebuild(&self) -> anyhow::Result<u64> {
        let mut status = self.status();
        let is_ours = |status: &Status| !matches!(status.state, State::Starting | State::Standby);
        if timeout(self.lease + FILL_TIMEOUT, status.wait_for(is_ours)).await.is_err() {
            bail!("another node on this database keeps the index: run this beside it, or stop it first");
        }
        let builds = self.status().borrow().builds;
        self.consumer.rebuild().await;
        Ok(builds)
    }

    /// Compares the index with the store, once it has followed that far, whoever keeps it.
    pub(crate) async fn verify(&self) -> anyhow::Result<Differences> {
        let head = self.store.stats().await?.head;
        let (mut reached, mut since) = (None, Instant::now());
        loop {
            let place = self.index.reached().await?.map(|place| place.seq);
            if place.is_some_and(|seq| seq >= head) {
                return verify::verify(&*self.index, &*self.store, &self.kinds, now()).await;
            }
            if place != reached {
                (reached, since) = (place, Instant::now());
            }
            if self.status().borrow().state.is_waiting() || since.elapsed() > PATIENCE {
                bail!("the index does not follow the store: see kukuri-node index status");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Stops following.
    pub(crate) async fn stop(&self) {
        if timeout(STOP_TIMEOUT, self.consumer.end()).await.is_err() {
            tracing::warn!("the search index is in the middle of a batch; it goes on from there at the next start");
        }
    }
}

/// Figures of an index that no node keeps here.
pub(crate) async fn at_rest(settings: &Settings, store: &dyn Store) -> anyhow::Result<AtRest> {
    let place = settings.index_place();
    let directory = directory(settings);
    if place == IndexPlace::Embedded && !directory.exists() {
        bail!("{}: there is no index here yet; a node that starts makes it", directory.display());
    }
    let index = open(settings, place, Switch::Off).await?.context("search.index is off")?;
    let offset = index.reached().await?.unwrap_or_default().seq;
    Ok(AtRest { stats: index.stats().await?, offset, head: store.stats().await?.head })
}

/// Makes the tables of an index in a database, or brings them up to date. Returns from which version to which.
pub(crate) async fn migrate(url: &PostgresUrl) -> anyhow::Result<(u32, u32)> {
    PostgresIndex::migrate(url.with_password()).await.with_context(|| about(url))
}

/// Opens the index. `None`: there is to be none.
async fn open(settings: &Settings, place: IndexPlace, migrate: Switch) -> anyhow::Result<Option<Arc<dyn SearchIndex>>> {
    match (place, settings.store_place()) {
        (IndexPlace::Embedded, _) => Ok(Some(Arc::new(embedded(&directory(settings))?))),
        (IndexPlace::Postgres, StorePlace::Postgres(url)) => {
            let options = PostgresIndexOptions {
                query_timeout: settings.postgres.query_timeout.duration(),
                migrate: migrate == Switch::On,
                ..PostgresIndexOptions::default()
            };
            let index = PostgresIndex::connect(url.with_password(), options).await.with_context(|| about(&url))?;
            Ok(Some(Arc::new(index)))
        }
        (IndexPlace::Postgres, StorePlace::Lmdb(_)) | (IndexPlace::Off, _) => Ok(None),
    }
}

fn directory(settings: &Settings) -> PathBuf {
    settings.data.join("index")
}

fn embedded(directory: &Path) -> anyhow::Result<TantivyIndex> {
    TantivyIndex::open(directory).with_context(|| {
        format!("can't open the search index in {} (search.index = \"off\" does without)", directory.display())
    })
}

fn about(url: &PostgresUrl) -> String {
    format!(
        "can't open the search index in {url} (kukuri-node migrate makes its tables, search.index = \"off\" does without)"
    )
}
