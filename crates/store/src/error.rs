//! What can go wrong with a store as a whole. An event that is refused is no error: see [`crate::Outcome`].

use std::path::PathBuf;

use kukuri_domain::retention::RetentionError;

use crate::outbox::Seq;

/// A `Result` of this port.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process writes to it.
    #[error("{path}: another process is writing to this store; stop it first, or open the store for reading")]
    Locked {
        /// Where the store is.
        path: PathBuf,
    },
    /// Another process reads it, and it is to be exchanged.
    #[error("{path}: another program reads this store (such as `outbox tail`, `export` or `backup`); end it first")]
    InUse {
        /// Where the store is.
        path: PathBuf,
    },
    /// It was opened for reading.
    #[error("this store was opened for reading only")]
    ReadOnly,
    /// It is somewhere else, and can't be got at.
    #[error("{path}: {reason}")]
    NotOpened {
        /// Where it is.
        path: PathBuf,
        /// What to do something about, in one line.
        reason: String,
    },
    /// What is there is no store of ours. It was not touched.
    #[error("{path}: not a kukuri store ({found}); it was left untouched")]
    Foreign {
        /// Where it is.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// It was written by a newer program. It was not touched.
    #[error(
        "{path}: store format {found} is newer than this program's {supported}; it was left untouched. Use a newer kukuri-node"
    )]
    Newer {
        /// Where it is.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this program knows.
        supported: u32,
    },
    /// It has to be brought up to date first; 0: there is nothing yet.
    #[error("{path}: store format {found} is older than this program's {supported}; bring it up to date first")]
    Older {
        /// Where it is.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format this program works with.
        supported: u32,
    },
    /// Half a copy of another store is here. It is of no use.
    #[error("{path}: a copy into this store broke off; empty it and copy again")]
    Unfinished {
        /// Where it is.
        path: PathBuf,
    },
    /// A copy must not mix with what is there.
    #[error("only an empty store can be copied into")]
    NotEmpty,
    /// There is no room to write in.
    #[error("no room left to write: {0}")]
    Full(String),
    /// The consumer is further behind than the outbox reaches (O-8).
    #[error("outbox rows after {after} are gone, the first kept is {first}: rebuild from a snapshot")]
    Truncated {
        /// Where the consumer is.
        after: Seq,
        /// The first row there is.
        first: Seq,
    },
    /// An offset past the end of the outbox would skip what is to come.
    #[error("offset {offset} lies beyond the last outbox row {head}")]
    OffsetAhead {
        /// The offset.
        offset: Seq,
        /// The highest sequence there is.
        head: Seq,
    },
    /// Another instance runs the consumer now.
    #[error("{consumer} is run by another instance now")]
    LeaseLost {
        /// The consumer.
        consumer: String,
    },
    /// A consumer's name has to fit a key of every store.
    #[error("a consumer's name has 1 to 200 bytes")]
    ConsumerName,
    /// A retention that would bring back what is gone (P-2, P-5).
    #[error(transparent)]
    Retention(#[from] RetentionError),
    /// What was read is not what a store of this format holds.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The engine below failed.
    #[error("the store failed: {0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}
