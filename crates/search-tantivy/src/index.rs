//! The index in a directory: one numbered subdirectory per generation; the file `current` names the generation that is
//! searched. A rebuild fills the next generation and then replaces `current` by a rename.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_search::{
    DocumentChange, Hit, IndexError, IndexPosition, IndexStats, Search, SearchIndex, SearchPermit, index::Result,
};

use crate::generation::Generation;

const CURRENT: &str = "current";

/// The index in a directory. One process can have it open.
pub struct TantivyIndex {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    current: ArcSwap<Generation>,
    next: ArcSwapOption<Generation>,
}

impl Shared {
    fn not_begun(&self) -> IndexError {
        IndexError::NotBegun(self.directory.display().to_string())
    }
}

impl TantivyIndex {
    /// Opens the index. A missing index, or one written by another version of this program, becomes an empty one.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(backend_error)?;
        let number = current_number(&directory)?;
        let current = match Generation::open(&directory, number) {
            Err(IndexError::Damaged(why)) => {
                tracing::warn!(
                    why,
                    "the search index is unusable; starting with an empty one, which the consumer fills"
                );
                Generation::create(&directory, number)?
            }
            opened => opened?,
        };
        remove_others(&directory, number);
        let (current, next) = (ArcSwap::from_pointee(current), ArcSwapOption::empty());
        Ok(Self { shared: Arc::new(Shared { directory, current, next }) })
    }

    /// Runs blocking work on a thread of the blocking pool.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Shared) -> Result<T> + Send + 'static) -> Result<T> {
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(backend_error)?
    }
}

/// Sets the flag when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl SearchIndex for TantivyIndex {
    async fn search_with_permit(&self, search: &Search, permit: SearchPermit) -> Result<Vec<Hit>> {
        let search = search.clone();
        // The thread works on if this future is dropped: until the flag has ended the work, it holds the permit.
        let cancel = CancelOnDrop(Arc::default());
        let is_cancelled = Arc::clone(&cancel.0);
        self.run(move |shared| {
            let _permit = permit;
            shared.current.load().search(&search, &is_cancelled)
        })
        .await
    }

    async fn reached(&self) -> Result<Option<IndexPosition>> {
        Ok(self.shared.current.load().reached())
    }

    async fn apply(&self, changes: Vec<DocumentChange>, reached: IndexPosition) -> Result<()> {
        let current = self.shared.current.load_full();
        // A cancelled call may still be running on its thread: the position is compared before writing.
        let expected = current.reached();
        self.run(move |shared| {
            if !Arc::ptr_eq(&current, &shared.current.load()) {
                return Err(IndexError::Overtaken(shared.directory.display().to_string()));
            }
            current.apply(expected.as_ref(), &changes, Some(reached))
        })
        .await
    }

    async fn begin(&self) -> Result<()> {
        self.run(|shared| {
            // Close the earlier copy before its files are removed.
            shared.next.store(None);
            let number = shared.current.load().number;
            remove_others(&shared.directory, number);
            // A cancelled call may still write to an earlier number: never reuse one.
            let number = numbers(&shared.directory).max().unwrap_or(number).max(number) + 1;
            shared.next.store(Some(Arc::new(Generation::create(&shared.directory, number)?)));
            Ok(())
        })
        .await
    }

    async fn fill(&self, changes: Vec<DocumentChange>, reached: Option<IndexPosition>) -> Result<()> {
        let next = self.shared.next.load_full().ok_or_else(|| self.shared.not_begun())?;
        let expected = next.reached();
        self.run(move |_| next.apply(expected.as_ref(), &changes, reached)).await
    }

    async fn switch(&self) -> Result<()> {
        let next = self.shared.next.swap(None).ok_or_else(|| self.shared.not_begun())?;
        self.run(move |shared| {
            let number = next.number;
            write_current(&shared.directory, number).map_err(backend_error)?;
            shared.current.store(next);
            // Running searches keep the old files open.
            remove_others(&shared.directory, number);
            Ok(())
        })
        .await
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        self.run(move |shared| shared.current.load().ids(after, limit)).await
    }

    async fn stats(&self) -> Result<IndexStats> {
        self.run(|shared| Ok(shared.current.load().stats())).await
    }
}

fn current_number(directory: &Path) -> Result<u64> {
    match fs::read_to_string(directory.join(CURRENT)) {
        Ok(text) => {
            let number = text.trim().parse();
            number.map_err(|_| IndexError::Damaged(format!("{}: not a number", directory.join(CURRENT).display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write_current(directory, 1).map_err(backend_error)?;
            Ok(1)
        }
        Err(error) => Err(backend_error(error)),
    }
}

/// Atomic: a reader finds the old number or the new one.
fn write_current(directory: &Path, number: u64) -> std::io::Result<()> {
    kukuri_files::write(&directory.join(CURRENT), format!("{number}\n").as_bytes())
}

/// The numbers of all generations on disk.
fn numbers(directory: &Path) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// Removes generations that a rebuild replaced or did not finish.
fn remove_others(directory: &Path, kept: u64) {
    for number in numbers(directory).filter(|number| *number != kept) {
        let path = directory.join(number.to_string());
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(%error, path = %path.display(), "can't remove an old generation of the search index; the next rebuild or start tries again");
        }
    }
}

pub(crate) fn backend_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> IndexError {
    IndexError::Backend(error.into())
}
