//! The port of `kukuri_search` over a database.

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_postgres::Pool;
use kukuri_search::{
    DocumentChange, Hit, IndexError, IndexPosition, IndexStats, Search, SearchIndex, SearchPermit, index::Result,
};
use kukuri_store::Seq;
use parking_lot::Mutex;

use crate::{
    open::{self, MIGRATIONS, PostgresIndexOptions},
    permit::StatementPermit,
    search,
    write::{self, CURRENT, CopyVersion, NEXT},
};

/// The index in a database. Any number of processes can search it. A writer whose view is out of date is refused.
pub struct PostgresIndex {
    readers: Pool,
    writer: Pool,
    /// The searched copy as this instance last read or wrote it; `None` while a write is under way.
    seen: Mutex<Option<CopyVersion>>,
    /// The copy that this instance is filling.
    begun: Mutex<Option<CopyVersion>>,
}

impl PostgresIndex {
    /// Connects, and migrates the tables if the options say so.
    pub async fn connect(url: &str, options: PostgresIndexOptions) -> Result<Self> {
        let (readers, writer) = open::connect(url, &options).await.map_err(not_opened)?;
        Ok(Self { readers, writer, seen: Mutex::default(), begun: Mutex::default() })
    }

    /// Creates or migrates the tables. Returns the old and the new version.
    pub async fn migrate(url: &str) -> Result<(u32, u32)> {
        MIGRATIONS.run_at(url, PostgresIndexOptions::default().acquire_timeout).await.map_err(not_opened)
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    fn take_begun(&self) -> Result<CopyVersion> {
        self.begun.lock().take().ok_or_else(|| write::not_begun(&self.writer))
    }
}

fn not_opened(error: kukuri_postgres::Error) -> IndexError {
    IndexError::Backend(Box::new(error))
}

#[async_trait]
impl SearchIndex for PostgresIndex {
    async fn search_with_permit(&self, search: &Search, permit: SearchPermit) -> Result<Vec<Hit>> {
        if search.limit == 0 {
            return Ok(Vec::new());
        }
        let permit = StatementPermit::new(permit);
        let hits = search::search(&self.readers, search).await;
        permit.release();
        Ok(hits?)
    }

    /// One session for each. A session more is left for the position and the figures of the index.
    fn max_searches(&self) -> usize {
        (self.readers.max_sessions() as usize).saturating_sub(1).max(1)
    }

    async fn reached(&self) -> Result<Option<IndexPosition>> {
        let (version, fingerprint) = write::current_version(&self.readers).await?;
        // Searches call this too: the version that a writer relies on is replaced only after a refusal.
        self.seen.lock().get_or_insert(version);
        Ok(version.reached.map(|seq| IndexPosition { seq: Seq(seq.unsigned_abs()), fingerprint }))
    }

    async fn apply(&self, changes: Vec<DocumentChange>, reached: IndexPosition) -> Result<()> {
        // A cancelled call leaves `None`: the transaction may or may not have committed.
        let expected = self.seen.lock().take();
        let version = write::write(&self.writer, CURRENT, expected, &changes, Some(&reached)).await?;
        *self.seen.lock() = Some(version);
        Ok(())
    }

    async fn begin(&self) -> Result<()> {
        *self.begun.lock() = None;
        let begun = write::begin(&self.writer).await?;
        *self.begun.lock() = Some(begun);
        Ok(())
    }

    async fn fill(&self, changes: Vec<DocumentChange>, reached: Option<IndexPosition>) -> Result<()> {
        let begun = self.take_begun()?;
        let version = write::write(&self.writer, NEXT, Some(begun), &changes, reached.as_ref()).await?;
        *self.begun.lock() = Some(version);
        Ok(())
    }

    async fn switch(&self) -> Result<()> {
        let begun = self.take_begun()?;
        write::switch(&self.writer, begun).await?;
        *self.seen.lock() = Some(begun);
        Ok(())
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        Ok(search::ids(&self.readers, after, limit).await?)
    }

    async fn stats(&self) -> Result<IndexStats> {
        Ok(search::stats(&self.readers).await?)
    }
}
