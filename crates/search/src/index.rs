//! The port to a search index: documents in, ids out. An index returns ids only: the caller reads each hit from the store
//! before showing it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kukuri_domain::{Event, EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_store::{ReadPermit, Seq};

use crate::{document::Text, query::SearchQuery};

/// A `Result` of this port.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// A failure of an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// Another process has the index open.
    #[error("{0}: another process has this index open")]
    Locked(String),
    /// The index is not as this instance last saw it. Reading `reached` again shows how far it has come.
    #[error("{0}: another process has written to the index since")]
    Overtaken(String),
    /// `fill` or `switch` without `begin`, or another process has begun a rebuild since.
    #[error("{0}: no rebuild was begun, or another process has begun one since")]
    NotBegun(String),
    /// The stored data is not what this version of the program writes.
    #[error("the index is damaged, rebuild it: {0}")]
    Damaged(String),
    /// The search engine or its server failed.
    #[error("the index failed: {0}")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The indexed form of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The event's id.
    pub id: EventId,
    /// The event's author.
    pub author: PublicKey,
    /// The event's kind.
    pub kind: Kind,
    /// The event's `created_at`.
    pub created_at: Timestamp,
    /// The topics in which the event is effective.
    pub topics: Vec<TopicId>,
    /// The searchable text.
    pub text: Text,
}

impl Document {
    /// The document of an event.
    pub fn new(event: &Event, topics: Vec<TopicId>) -> Self {
        let Event { id, pubkey, kind, created_at, .. } = event;
        Self { id: *id, author: *pubkey, kind: *kind, created_at: *created_at, topics, text: Text::of(event) }
    }
}

/// A change to an index. Applying it twice has the effect of once (O-7), except for `Add`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentChange {
    /// Inserts the document, or replaces the one with the same id.
    Put(Box<Document>),
    /// Inserts the document. The caller knows that the index has none with its id: looking for one costs as much as inserting.
    Add(Box<Document>),
    /// Removes the document, if there is one.
    Remove(EventId),
}

/// A search request. `None` in a list means no restriction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The words; a hit has all of them.
    pub query: SearchQuery,
    /// Hits are in at least one of these topics.
    pub topics: Option<Vec<TopicId>>,
    /// Hits have one of these kinds.
    pub kinds: Option<Vec<Kind>>,
    /// Hits have one of these authors.
    pub authors: Option<Vec<PublicKey>>,
    /// Lowest `created_at`.
    pub since: Option<Timestamp>,
    /// Highest `created_at`.
    pub until: Option<Timestamp>,
    /// The time that recency is measured from.
    pub now: Timestamp,
    /// Number of best hits to skip.
    pub skip: usize,
    /// Maximum number of hits.
    pub limit: usize,
}

impl Search {
    /// A search for words, without restrictions.
    pub fn new(query: SearchQuery, now: Timestamp, limit: usize) -> Self {
        let (topics, kinds, authors) = (None, None, None);
        Self { query, topics, kinds, authors, since: None, until: None, now, skip: 0, limit }
    }
}

/// A clone of the permit of a request that searches. The next request gets the permit when all clones are dropped (Y-1).
#[derive(Clone, Default)]
pub struct SearchPermit {
    /// Never locked: the mutex makes the permit `Sync`.
    _permit: Option<Arc<Mutex<ReadPermit>>>,
}

impl From<Option<ReadPermit>> for SearchPermit {
    fn from(permit: Option<ReadPermit>) -> Self {
        Self { _permit: permit.map(|permit| Arc::new(Mutex::new(permit))) }
    }
}

/// A document that matches a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The event's id.
    pub id: EventId,
    /// Comparable only within one answer; higher is better.
    pub score: f32,
}

/// How far an index has come in the outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexPosition {
    /// The last outbox row that is applied.
    pub seq: Seq,
    /// Tells that row from the row of the same number in another store. Opaque to the index.
    pub fingerprint: String,
}

impl From<Seq> for IndexPosition {
    /// A position without a fingerprint.
    fn from(seq: Seq) -> Self {
        Self { seq, fingerprint: String::new() }
    }
}

/// Size of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Number of documents.
    pub documents: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// A search index: one copy that is searched, and during a rebuild a second one that is filled.
#[async_trait]
pub trait SearchIndex: Send + Sync + 'static {
    /// Matching documents, the best first; ties by the lower id. The index holds `permit` until its work has ended, even if
    /// the caller drops the future earlier.
    async fn search_with_permit(&self, search: &Search, permit: SearchPermit) -> Result<Vec<Hit>>;

    /// [`SearchIndex::search_with_permit`] without a permit, for tests and benchmarks.
    async fn search(&self, search: &Search) -> Result<Vec<Hit>> {
        self.search_with_permit(search, SearchPermit::default()).await
    }

    /// How many searches can run at a time.
    fn max_searches(&self) -> usize {
        usize::MAX
    }

    /// The position whose changes a search that begins now finds. `None`: the index was never filled.
    async fn reached(&self) -> Result<Option<IndexPosition>>;

    /// Applies changes in order, durably, and then records `reached`. A failed call may leave some of the changes applied, but
    /// never a position ahead of them: the caller repeats the call. A back end that can commits both at once.
    async fn apply(&self, changes: Vec<DocumentChange>, reached: IndexPosition) -> Result<()>;

    /// Begins an empty copy beside the one that is searched, and discards a copy begun earlier.
    async fn begin(&self) -> Result<()>;

    /// `apply` for the copy that was begun. `None`: the position is not known yet.
    async fn fill(&self, changes: Vec<DocumentChange>, reached: Option<IndexPosition>) -> Result<()>;

    /// Replaces the copy that is searched by the one that was begun, atomically for searches.
    async fn switch(&self) -> Result<()>;

    /// The lowest `limit` ids above `after`, ascending.
    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>>;

    /// Size of the copy that is searched.
    async fn stats(&self) -> Result<IndexStats>;
}
