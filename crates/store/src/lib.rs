//! The port to event storage: what the node asks of a store, and how a store is known to be right.
//!
//! # Layout
//!
//! - [`port`]: the [`Store`] trait. It speaks in whole decisions; the rules are `kukuri_domain`'s.
//! - [`event`], [`ingest`], [`query`], [`outbox`], [`maintenance`], [`sharing`], [`report`]: the values that cross
//!   it, by what they are for.
//! - What stores hold and work out alike: [`repeats`], copies of known events; [`subscriptions`], topics that are taken in;
//!   [`counters`], how much is stored; [`preview`], what a purge would leave; [`lease`], who runs a consumer.
//! - [`archive`]: everything a store holds, to move it into another. [`error`]: what can go wrong.
//! - [`model`]: a store in memory, so simple that it is obviously right. Others are compared with it.
//! - `conformance` (a feature, for tests): the suite that every store passes.

pub mod archive;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod counters;
pub mod error;
pub mod event;
pub mod ingest;
pub mod lease;
pub mod maintenance;
pub mod model;
pub mod outbox;
pub mod port;
pub mod preview;
pub mod query;
pub mod repeats;
pub mod report;
pub mod sharing;
pub mod subscriptions;

pub use archive::{Archive, DumpCursor, DumpPage, Piece};
pub use error::{Result, StoreError};
pub use event::{BoundEvent, StoredEvent};
pub use ingest::{Ingested, Outcome, StageChange, StoreRules};
pub use lease::Holder;
pub use maintenance::{PurgeCursor, PurgeStep, Purged, Swept};
pub use outbox::{ConsumerOffset, Op, OutboxRow, Seq, SnapshotCursor, SnapshotPage};
pub use port::Store;
pub use query::{Answer, Count, Query, Rest};
pub use report::{AddressExplanation, CheckReport, Explanation, IdRecord, RowRecord, Standing, Stats, TopicStats};
pub use sharing::{HintOutcome, Item, Raised, Shared, SharedPage, SharedSet, Span};
