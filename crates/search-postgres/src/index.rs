//! The port of `kukuri_search` over a database.

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_postgres::Asking;
use kukuri_search::{DocumentChange, Hit, IndexError, IndexPosition, IndexStats, Search, SearchIndex, index::Result};
use parking_lot::Mutex;

use crate::{
    error::{self, Failure},
    open::{self, PostgresIndexOptions, Sessions},
    row::signed,
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
        open::migrate(url).await.map_err(|failure| failure.into_index_error("postgres"))
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.sessions.readers.close().await;
        self.sessions.writer.close().await;
    }

    fn failure(&self, failure: Failure) -> IndexError {
        failure.into_index_error(&self.sessions.name)
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> error::Result<Vec<EventId>> {
        let mut connection = Asking::of(&self.sessions.readers).await?;
        let rows = sqlx::query(
            "SELECT document_id FROM cn_search.post_search_documents WHERE $1::bytea IS NULL OR document_id > $1::bytea \
             ORDER BY document_id LIMIT $2",
        )
        .bind(after.map(|id| *id.as_bytes()))
        .bind(signed(limit as u64))
        .fetch_all(&mut *connection)
        .await?;
        connection.done();
        rows.iter().map(search::id).collect()
    }

    async fn stats(&self) -> error::Result<IndexStats> {
        let mut connection = Asking::of(&self.sessions.readers).await?;
        let (documents, bytes): (i64, i64) = sqlx::query_as(
            "SELECT documents, pg_total_relation_size('cn_search.post_search_documents') FROM cn_search.copies \
             WHERE name = 'current'",
        )
        .fetch_one(&mut *connection)
        .await?;
        connection.done();
        Ok(IndexStats { documents: documents.unsigned_abs(), bytes: bytes.unsigned_abs() })
    }
}

#[async_trait]
impl SearchIndex for PostgresIndex {
    async fn search(&self, search: &Search) -> Result<Vec<Hit>> {
        if search.limit == 0 {
            return Ok(Vec::new());
        }
        search::search(&self.sessions.readers, search).await.map_err(|failure| self.failure(failure))
    }

    async fn reached(&self) -> Result<Option<IndexPosition>> {
        let read = write::current_version(&self.sessions.readers).await;
        let (version, fingerprint) = read.map_err(|failure| self.failure(failure))?;
        // Searches call this too: the version that a writer relies on is replaced only after a refusal.
        self.seen.lock().get_or_insert(version);
        Ok(version.reached.map(|seq| IndexPosition { seq, fingerprint }))
    }

    async fn apply(&self, changes: Vec<DocumentChange>, reached: IndexPosition) -> Result<()> {
        // A cancelled call leaves `None`: the transaction may or may not have committed.
        let expected = self.seen.lock().take();
        let written = write::write(&self.sessions.writer, CopyName::Current, expected, &changes, Some(&reached)).await;
        let version = written.map_err(|failure| self.failure(failure))?;
        *self.seen.lock() = Some(version);
        Ok(())
    }

    async fn begin(&self) -> Result<()> {
        *self.begun.lock() = None;
        let begun = write::begin(&self.sessions.writer).await.map_err(|failure| self.failure(failure))?;
        *self.begun.lock() = Some(begun);
        Ok(())
    }

    async fn fill(&self, changes: Vec<DocumentChange>, reached: Option<IndexPosition>) -> Result<()> {
        let begun = self.begun.lock().take().ok_or_else(|| self.failure(Failure::NotBegun))?;
        let written =
            write::write(&self.sessions.writer, CopyName::Next, Some(begun), &changes, reached.as_ref()).await;
        let version = written.map_err(|failure| self.failure(failure))?;
        *self.begun.lock() = Some(version);
        Ok(())
    }

    async fn switch(&self) -> Result<()> {
        let begun = self.begun.lock().take().ok_or_else(|| self.failure(Failure::NotBegun))?;
        write::switch(&self.sessions.writer, begun).await.map_err(|failure| self.failure(failure))?;
        *self.seen.lock() = Some(begun);
        Ok(())
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        PostgresIndex::ids(self, after, limit).await.map_err(|failure| self.failure(failure))
    }

    async fn stats(&self) -> Result<IndexStats> {
        PostgresIndex::stats(self).await.map_err(|failure| self.failure(failure))
    }
}
