//! The embedded index: tantivy, in a directory.
//!
//! Below that directory each index has its own, numbered; `current` names the one that is searched. A rebuild fills
//! the next one and then changes that name, in one step.

mod generation;
mod schema;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use generation::Generation;
use kukuri_domain::EventId;
use kukuri_store::Seq;

use crate::index::{Change, Hit, IndexError, IndexStats, Result, Search, SearchIndex};

const CURRENT: &str = "current";

/// The index in a directory. One process may have it open.
pub struct TantivyIndex {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    current: ArcSwap<Generation>,
    next: Mutex<Option<Generation>>,
}

impl TantivyIndex {
    /// Opens it, or makes an empty one. One that was made by another version of this program counts as empty.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(engine)?;
        let number = current_number(&directory)?;
        let current = match Generation::open(&directory, number) {
            Err(IndexError::Damaged(why)) => {
                tracing::warn!(why, "the search index can't be used as it is; it begins anew");
                Generation::make(&directory, number)?
            }
            opened => opened?,
        };
        remove_others(&directory, number);
        Ok(Self {
            shared: Arc::new(Shared { directory, current: ArcSwap::from_pointee(current), next: Mutex::default() }),
        })
    }

    /// Runs on a thread that may wait for a disk.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Shared) -> Result<T> + Send + 'static) -> Result<T> {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(engine)?
    }
}

#[async_trait]
impl SearchIndex for TantivyIndex {
    async fn search(&self, search: &Search) -> Result<Vec<Hit>> {
        let search = search.clone();
        self.run(move |shared| shared.current.load().search(&search)).await
    }

    async fn reached(&self) -> Result<Option<Seq>> {
        Ok(self.shared.current.load().reached())
    }

    async fn apply(&self, changes: Vec<Change>, reached: Seq) -> Result<()> {
        self.run(move |shared| shared.current.load().apply(changes, Some(reached))).await
    }

    async fn begin(&self) -> Result<()> {
        self.run(|shared| {
            let mut next = shared.next();
            // What was begun before is closed before its files go.
            *next = None;
            *next = Some(Generation::make(&shared.directory, shared.current.load().number() + 1)?);
            Ok(())
        })
        .await
    }

    async fn fill(&self, changes: Vec<Change>, reached: Option<Seq>) -> Result<()> {
        self.run(move |shared| match &*shared.next() {
            Some(next) => next.apply(changes, reached),
            None => Err(IndexError::Engine("no index was begun".into())),
        })
        .await
    }

    async fn switch(&self) -> Result<()> {
        self.run(|shared| {
            let Some(next) = shared.next().take() else {
                return Err(IndexError::Engine("no index was begun".into()));
            };
            let number = next.number();
            write_current(&shared.directory, number).map_err(engine)?;
            shared.current.store(Arc::new(next));
            // Whoever still searches the old one has its files open.
            remove_others(&shared.directory, number);
            Ok(())
        })
        .await
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        self.run(move |shared| shared.current.load().ids(after, limit)).await
    }

    async fn stats(&self) -> Result<IndexStats> {
        self.run(|shared| shared.current.load().stats()).await
    }
}

impl Shared {
    fn next(&self) -> MutexGuard<'_, Option<Generation>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn current_number(directory: &Path) -> Result<u64> {
    match fs::read_to_string(directory.join(CURRENT)) {
        Ok(text) => {
            let number = text.trim().parse();
            number.map_err(|_| IndexError::Damaged(format!("{}: no number", directory.join(CURRENT).display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write_current(directory, 1).map_err(engine)?;
            Ok(1)
        }
        Err(error) => Err(engine(error)),
    }
}

/// In one step: whoever reads it finds the old number or the new one.
fn write_current(directory: &Path, number: u64) -> std::io::Result<()> {
    let beside = directory.join("current.new");
    fs::write(&beside, format!("{number}\n"))?;
    fs::File::open(&beside)?.sync_all()?;
    fs::rename(&beside, directory.join(CURRENT))?;
    fs::File::open(directory)?.sync_all()
}

/// What a rebuild left behind, or never finished.
fn remove_others(directory: &Path, number: u64) {
    let kept = number.to_string();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_index = name.to_str().is_some_and(|name| name != kept && name.parse::<u64>().is_ok());
        if is_index && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, path = %entry.path().display(), "an old index could not be removed");
        }
    }
}

fn engine(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> IndexError {
    IndexError::Engine(error.into())
}
