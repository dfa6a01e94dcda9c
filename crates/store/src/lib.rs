//! The storage port: the traits that every event store implements, and the conformance suite that tests a store.
//!
//! # Layout
//!
//! - [`port`]: the traits of a [`Store`]. A store applies whole decisions; the rules are in `kukuri_domain`.
//! - [`ingest`], [`query`], [`outbox`], [`maintenance`], [`sharing`], [`report`]: argument and return types of the port,
//!   one module per concern. [`budget`]: what a read may cost.
//! - Code shared by store implementations: [`repeats`] counts copies of known events; [`subscriptions`] holds the
//!   node-level subscriptions; [`counters`] counts stored rows and bytes; [`lease`] lets one instance at a time run a
//!   consumer.
//! - [`archive`]: dump and load of a whole store, to move it into another. [`error`]: the error enum of the port.
//! - For tests, with the feature `conformance`: `conformance`, the test suite that every store passes; `model`, the
//!   in-memory reference store, simple enough to be obviously right, with which it compares them.

pub mod archive;
pub mod budget;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod counters;
pub mod error;
pub mod ingest;
pub mod lease;
pub mod maintenance;
#[cfg(feature = "conformance")]
pub mod model;
pub mod outbox;
pub mod port;
pub mod query;
pub mod repeats;
pub mod report;
pub mod sharing;
pub mod subscriptions;

pub use archive::{Archive, DumpCursor, DumpPage, Piece};
pub use budget::{Budget, ReadGate, ReadPermit, ReadStage};
pub use error::{Result, StoreError};
pub use ingest::{Ingested, Outcome, StageChange, StoreRules};
pub use lease::Holder;
pub use maintenance::{DryRun, PurgeCursor, PurgeStep, Purged, Swept};
pub use outbox::{ConsumerOffset, Epoch, Op, OutboxRow, Seq, SnapshotCursor, SnapshotPage};
pub use port::{Events, Inspect, Outbox, Sharing, Store, Topics, Upkeep};
pub use query::{Answer, BoundEvent, Completeness, Count, Query, StoredEvent};
pub use report::{AddressExplanation, CheckReport, Explanation, IdRecord, RowRecord, Standing, Stats, TopicStats};
pub use sharing::{HintOutcome, Item, Raised, Shared, SharedPage, SharedSet, Span};
