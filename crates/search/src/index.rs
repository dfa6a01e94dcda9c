//! The port to an index: documents in, ids out. An index never says what an event is, only which to look at: whoever
//! shows a hit reads it from the store.

use async_trait::async_trait;
use kukuri_domain::{Event, EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_store::Seq;

use crate::{document::Text, query::SearchQuery};

/// A `Result` of this port.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// Why an index could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// Another process writes to it.
    #[error("{0}: another process is writing to this index")]
    Locked(String),
    /// What was read is not what an index holds.
    #[error("the index is damaged, rebuild it: {0}")]
    Damaged(String),
    /// The engine below failed.
    #[error("the index failed: {0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What an index holds of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The event.
    pub id: EventId,
    /// Its author.
    pub author: PublicKey,
    /// Its kind.
    pub kind: Kind,
    /// When its author says it was made.
    pub created_at: Timestamp,
    /// The topics it is effective in.
    pub topics: Vec<TopicId>,
    /// What can be found of it.
    pub text: Text,
}

impl Document {
    /// The document of an event.
    pub fn new(event: &Event, topics: Vec<TopicId>) -> Self {
        let Event { id, pubkey, kind, created_at, .. } = event;
        Self { id: *id, author: *pubkey, kind: *kind, created_at: *created_at, topics, text: Text::of(event) }
    }
}

/// A change to an index. Made twice, it has the effect of once (O-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The document is there from now on, in the place of one with the same id.
    Put(Box<Document>),
    /// There is no such document any more.
    Remove(EventId),
}

/// A question to an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The words.
    pub query: SearchQuery,
    /// In any of these topics; `None`: in all.
    pub topics: Option<Vec<TopicId>>,
    /// Of any of these kinds.
    pub kinds: Option<Vec<Kind>>,
    /// By any of these.
    pub authors: Option<Vec<PublicKey>>,
    /// Made no earlier.
    pub since: Option<Timestamp>,
    /// Made no later.
    pub until: Option<Timestamp>,
    /// The time by which something is recent.
    pub now: Timestamp,
    /// So many of the best are passed over.
    pub skip: usize,
    /// So many are wanted.
    pub limit: usize,
}

impl Search {
    /// For words, everywhere.
    pub fn new(query: SearchQuery, now: Timestamp, limit: usize) -> Self {
        let (topics, kinds, authors) = (None, None, None);
        Self { query, topics, kinds, authors, since: None, until: None, now, skip: 0, limit }
    }
}

/// Something that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The event.
    pub id: EventId,
    /// How good it is, compared with others of the same answer.
    pub score: f32,
}

/// How far an index has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The outbox row up to which changes are in it.
    pub seq: Seq,
    /// What tells that row from every other, in the words of whoever follows. An index keeps it as it is.
    pub mark: String,
}

impl From<Seq> for Place {
    /// A row that nothing else is known of.
    fn from(seq: Seq) -> Self {
        Self { seq, mark: String::new() }
    }
}

/// Figures of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// How many documents there are.
    pub documents: u64,
    /// What they take on disk.
    pub bytes: u64,
}

/// A place where documents are found by words.
#[async_trait]
pub trait SearchIndex: Send + Sync + 'static {
    /// What answers a question, the best first; ties by the lower id.
    async fn search(&self, search: &Search) -> Result<Vec<Hit>>;

    /// The place up to which a search that begins now finds changes. `None`: it was never filled.
    async fn reached(&self) -> Result<Option<Place>>;

    /// Makes changes, in order, and notes how far they reach: durably, and all of it or nothing.
    async fn apply(&self, changes: Vec<Change>, reached: Place) -> Result<()>;

    /// Begins an empty index beside this one. One that was begun before is thrown away.
    async fn begin(&self) -> Result<()>;

    /// The same as `apply`, for the index that was begun. `None`: how far it reaches is not known yet.
    async fn fill(&self, changes: Vec<Change>, reached: Option<Place>) -> Result<()>;

    /// Puts the index that was begun in the place of this one, at once.
    async fn switch(&self) -> Result<()>;

    /// The ids of all documents after one, in ascending order.
    async fn ids(&self, after: Option<EventId>, limit: usize) -> Result<Vec<EventId>>;

    /// Figures.
    async fn stats(&self) -> Result<IndexStats>;
}
