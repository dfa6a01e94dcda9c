//! The index.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_postgres::Asking;
use kukuri_search::{Change, Hit, IndexError, IndexStats, Place as Reached, Search, SearchIndex, index::Result};

use crate::{
    error::{self, Failure},
    open::{self, PostgresIndexOptions, Sessions},
    row::signed,
    searching,
    writing::{self, Place, Which},
};

/// The index in a database. Any number of processes may search it; of those that write, one that was overtaken is refused.
pub struct PostgresIndex {
    sessions: Sessions,
    /// The copy that is searched, as this instance last saw it when it began to write, or left it.
    seen: Mutex<Option<Place>>,
    /// The copy that this instance has begun.
    begun: Mutex<Option<Place>>,
}

impl PostgresIndex {
    /// Opens it.
    pub async fn connect(url: &str, options: PostgresIndexOptions) -> Result<Self> {
        let sessions = open::connect(url, &options).await.map_err(|failure| failure.of("postgres"))?;
        Ok(Self { sessions, seen: Mutex::default(), begun: Mutex::default() })
    }

    /// Makes the tables, or brings them up to date. Returns from which version to which.
    pub async fn migrate(url: &str) -> Result<(u32, u32)> {
        open::migrate(url).await.map_err(|failure| failure.of("postgres"))
    }

    /// Lets all sessions end.
    pub async fn close(&self) {
        self.sessions.readers.close().await;
        self.sessions.writer.close().await;
    }

    fn failure(&self, failure: Failure) -> IndexError {
        failure.of(&self.sessions.name)
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> error::Result<Vec<EventId>> {
        let mut asking = Asking::of(&self.sessions.readers).await?;
        let rows = sqlx::query(
            "SELECT document_id FROM cn_search.post_search_documents WHERE $1::bytea IS NULL OR document_id > $1::bytea \
             ORDER BY document_id LIMIT $2",
        )
        .bind(after.map(|id| *id.as_bytes()))
        .bind(signed(limit as u64))
        .fetch_all(&mut *asking)
        .await?;
        asking.done();
        rows.iter().map(searching::id).collect()
    }

    async fn stats(&self) -> error::Result<IndexStats> {
        let mut asking = Asking::of(&self.sessions.readers).await?;
        let (documents, bytes): (i64, i64) = sqlx::query_as(
            "SELECT documents, pg_total_relation_size('cn_search.post_search_documents') FROM cn_search.copies \
             WHERE name = 'current'",
        )
        .fetch_one(&mut *asking)
        .await?;
        asking.done();
        Ok(IndexStats { documents: documents.unsigned_abs(), bytes: bytes.unsigned_abs() })
    }
}

#[async_trait]
impl SearchIndex for PostgresIndex {
    async fn search(&self, search: &Search) -> Result<Vec<Hit>> {
        if search.limit == 0 {
            return Ok(Vec::new());
        }
        searching::search(&self.sessions.readers, search).await.map_err(|failure| self.failure(failure))
    }

    async fn reached(&self) -> Result<Option<Reached>> {
        let (place, mark) = writing::place(&self.sessions.readers).await.map_err(|failure| self.failure(failure))?;
        // Whoever only searches asks this, too: what a writer goes by stays until it is refused.
        locked(&self.seen).get_or_insert(place);
        Ok(place.reached.map(|seq| Reached { seq, mark }))
    }

    async fn apply(&self, changes: Vec<Change>, reached: Reached) -> Result<()> {
        // If this is left halfway, what was last seen may be no more.
        let expected = locked(&self.seen).take();
        let written = writing::write(&self.sessions.writer, Which::Current, expected, &changes, Some(&reached)).await;
        let place = written.map_err(|failure| self.failure(failure))?;
        *locked(&self.seen) = Some(place);
        Ok(())
    }

    async fn begin(&self) -> Result<()> {
        *locked(&self.begun) = None;
        let begun = writing::begin(&self.sessions.writer).await.map_err(|failure| self.failure(failure))?;
        *locked(&self.begun) = Some(begun);
        Ok(())
    }

    async fn fill(&self, changes: Vec<Change>, reached: Option<Reached>) -> Result<()> {
        let begun = locked(&self.begun).take().ok_or_else(|| self.failure(Failure::NotBegun))?;
        let written = writing::write(&self.sessions.writer, Which::Next, Some(begun), &changes, reached.as_ref()).await;
        let place = written.map_err(|failure| self.failure(failure))?;
        *locked(&self.begun) = Some(place);
        Ok(())
    }

    async fn switch(&self) -> Result<()> {
        let begun = locked(&self.begun).take().ok_or_else(|| self.failure(Failure::NotBegun))?;
        writing::switch(&self.sessions.writer, begun).await.map_err(|failure| self.failure(failure))?;
        *locked(&self.seen) = Some(begun);
        Ok(())
    }

    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>> {
        PostgresIndex::ids(self, after, limit).await.map_err(|failure| self.failure(failure))
    }

    async fn stats(&self) -> Result<IndexStats> {
        PostgresIndex::stats(self).await.map_err(|failure| self.failure(failure))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
