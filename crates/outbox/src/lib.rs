//! Following the outbox: a named consumer over any store, and whatever it feeds.
//!
//! # Layout
//!
//! - [`sink`]: what is fed. [`consumer`]: the one who feeds it. `batch`: rows as what became of events.
//! - [`handle`]: what can be asked of a consumer that runs. [`status`]: what it is at.
//!
//! See the crate's README for how to write a sink, and for what is promised.

mod batch;
pub mod consumer;
pub mod handle;
pub mod sink;
pub mod status;

pub use consumer::{Consumer, ConsumerSettings};
pub use handle::Handle;
pub use sink::{Batch, Change, Reached, Sink, SinkError, Target};
pub use status::{State, Status};
