//! The port of `kukuri_search` over a database.

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_search::{DocumentChange, Hit, IndexPosition, IndexStats, Search, SearchIndex, index::Result};
use parking_lot::Mutex;

use crate::{
    error::{self, Failure},
    open::{self, MIGRATIONS, PostgresIndexOptions, Sessions},
    search,
    write::{self, CopyName, CopyVersion},
};

/// The index in a database. Any number of processes can search it. A writer whose view is out of date is refused.
pub struct PostgresIndex {
    sessions: Sessions,
    /// The searched copy as this instance last read or wrote it; `None` while a write is under way.
    seen: Mutex<Option<CopyVersion>>,
    /// The copy that this instance is filling.
    begun: Mutex<Option<CopyVersion>>,
}

impl PostgresIndex {
    /// Connects, and migrates the tables if the options say so.
    pub async fn connect(url: &str, options: PostgresIndexOptions) -> Result<Self> {
        let sessions = open::connect(url, &options).await.map_err(|failure| failure.into_index_error("postgres"))?;
        Ok(Self { sessions, seen: Mutex::default(), begun: Mutex::default() })
    }

    /// Creates or migrates the tables. Returns the old and the new version.
    pub async fn migrate(url: &str) -> Result<(u32, u32)> {
        let migrated = MIGRATIONS.run_at(url, PostgresIndexOptions::default().acquire_timeout).await;
        migrated.map_err(|error| Failure::from(error).into_index_error("postgres"))
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.sessions.readers.close().await;
        self.sessions.writer.close().await;
    }

    /// Names the database in a failure.
    async fn named<T>(&self, work: impl Future<Output = error::Result<T>>) -> Result<T> {
        work.await.map_err(|failure| failure.into_index_error(&self.sessions.name))
    }
}

#[async_trait]
impl SearchIndex for PostgresIndex {
    async fn search(&self, search: &Search) -> Result<Vec<Hit>> {
        if search.limit == 0 {
            return Ok(Vec::new());
        }
        self.named(search::search(&self.sessions.readers, search)).await
    }

    async fn reached(&self) -> Result<Option<IndexPosition>> {
        let (version, fingerprint) = self.named(write::current_version(&self.sessions.readers)).await?;
        // Searches call this too: the version that a writer relies on is replaced only after a refusal.
        self.seen.lock().get_or_insert(version);
        Ok(version.reached.map(|seq| IndexPosition { seq, fingerprint }))
    }

    async fn apply(&self, changes: Vec<DocumentChange>, reached: IndexPosition) -> Result<()> {
        // A cancelled call leaves `None`: the transaction may or may not have committed.
        let expected = self.seen.lock().take();
        let write = write::write(&self.sessions.writer, CopyName::Current, expected, &changes, Some(&reached));
        let version = self.named(write).await?;
        *self.seen.lock() = Some(version);
        Ok(())
    }

    async fn begin(&self) -> Result<()> {
        *self.begun.lock() = None;
        let begun = self.named(write::begin(&self.sessions.writer)).await?;
        *self.begun.lock() = Some(begun);
        Ok(())
    }

    async fn fill(&self, changes: Vec<DocumentChange>, reached: Option<IndexPosition>) -> Result<()> {
        let begun = self.named(async { self.begun.lock().take().ok_or(Failure::NotBegun) }).await?;
        let write = write::write(&self.sessions.writer, CopyName::Next, Some(begun), &changes, reached.as_ref());
        let version = self.named(write).await?;
        *self.begun.lock() = Some(version);
        Ok(())
    }

    async fn switch(&self) -> Result<()> {
        let begun = self.named(async { self.begun.lock().take().ok_or(Failure::NotBegun) }).await?;
        self.named(write::switch(&self.sessions.writer, begun)).await?;
        *self.seen.lock() = Some(begun);
        Ok(())
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        self.named(search::ids(&self.sessions.readers, after, limit)).await
    }

    async fn stats(&self) -> Result<IndexStats> {
        self.named(search::stats(&self.sessions.readers)).await
    }
}
