//! Errors of a store as a whole. A refused event is not an error: see [`crate::Outcome`].

use std::path::PathBuf;

use kukuri_domain::retention::RetentionError;

use crate::outbox::Seq;

/// The result type of the port.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The error of every method of the port.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open for writing.
    #[error("{0}: another process is writing to this store; stop it first, or open the store for reading")]
    Locked(PathBuf),
    /// Another process has the store open for reading, so its file can't be replaced.
    #[error("{0}: another program reads this store (such as `outbox tail`, `export` or `backup`); end it first")]
    InUse(PathBuf),
    /// The store was opened read-only.
    #[error("this store was opened for reading only")]
    ReadOnly,
    /// The task or thread that writes has ended, by a shutdown or a panic.
    #[error("the writer has ended; nothing more is stored")]
    WriterGone,
    /// The store, such as a database server, can't be reached or opened.
    #[error("{path}: {reason}")]
    NotOpened {
        /// The location of the store.
        path: PathBuf,
        /// The cause that the operator has to fix, in one line.
        reason: String,
    },
    /// A server setting lets an acknowledged commit be lost.
    #[error("{server}: {setting} = {value} can lose acknowledged writes; turn {setting} on")]
    NotDurable {
        /// The database server.
        server: String,
        /// The name of its setting.
        setting: &'static str,
        /// The value of that setting.
        value: String,
    },
    /// The path holds something other than a kukuri store. It is left untouched.
    #[error("{path}: not a kukuri store ({found}); it was left untouched")]
    Foreign {
        /// The location of the store.
        path: PathBuf,
        /// A description of the found content.
        found: String,
    },
    /// A newer program wrote the store. It is left untouched.
    #[error(
        "{path}: store format {found} is newer than this program's {supported}; it was left untouched. Use a newer kukuri-node"
    )]
    Newer {
        /// The location of the store.
        path: PathBuf,
        /// The store's format.
        found: u32,
        /// The newest format this program knows.
        supported: u32,
    },
    /// The store's format is older and must be migrated first. Format 0: the store does not exist yet.
    #[error("{path}: store format {found} is older than this program's {supported}; bring it up to date first")]
    Older {
        /// The location of the store.
        path: PathBuf,
        /// The store's format.
        found: u32,
        /// The format this program works with.
        supported: u32,
    },
    /// The store holds an incomplete copy of another store, which is unusable.
    #[error("{0}: a copy into this store broke off; empty it and copy again")]
    Unfinished(PathBuf),
    /// The target of a copy must be empty.
    #[error("only an empty store can be copied into")]
    NotEmpty,
    /// The store has no space left to write.
    #[error("no room left to write: {0}")]
    Full(String),
    /// All numbers of a kind are given away.
    #[error("no numbers are left for new {0}")]
    NumbersExhausted(&'static str),
    /// Rows that the consumer has not read were dropped from the outbox (O-8).
    #[error("outbox rows after {after} are gone, the first kept is {first}: rebuild from a snapshot")]
    Truncated {
        /// The consumer's offset.
        after: Seq,
        /// The first row that is kept.
        first: Seq,
    },
    /// An offset past the last outbox row would skip future rows.
    #[error("offset {offset} lies beyond the last outbox row {head}")]
    OffsetAhead {
        /// The offset.
        offset: Seq,
        /// The highest outbox sequence.
        head: Seq,
    },
    /// Another instance holds the consumer's lease now.
    #[error("{0} is run by another instance now")]
    LeaseLost(String),
    /// The consumer's name does not fit a key of every store.
    #[error("a consumer's name has 1 to 200 bytes")]
    ConsumerName,
    /// The retention would let purged or deleted events come back (P-2, P-5).
    #[error(transparent)]
    Retention(#[from] RetentionError),
    /// A bug: a write panicked. Its transaction is rolled back; the store continues.
    #[error("a write to the store panicked; it was undone")]
    Panicked,
    /// A batch in the write-ahead log can't be read, but acknowledged batches behind it can. The store is left untouched.
    #[error(
        "{path}: the write-ahead log is damaged: {before} acknowledged events before the damage and {behind} behind it \
         are intact, those between them are lost. The store was left untouched. Put back an intact copy of this file if \
         you have one; otherwise `kukuri-node salvage` stores the intact events and keeps a copy of the damaged file"
    )]
    DamagedWal {
        /// The log file.
        path: PathBuf,
        /// Intact events before the damage.
        before: usize,
        /// Intact events behind it.
        behind: usize,
    },
    /// A query looks at more rows, or takes longer, than its budget allows (Y-2).
    #[error("the query looks at too many rows or takes too long")]
    TooCostly,
    /// A query waited at the gate until its deadline (Y-1).
    #[error("too many costly reads at the same time")]
    Busy,
    /// The store holds data that is invalid for its format.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The underlying database failed.
    #[error("the store failed: {0}")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}
