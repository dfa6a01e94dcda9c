//! Following the outbox: named consumers over any store, and the services that they feed.
//!
//! # Layout
//!
//! - [`sink`]: the effect of a consumer, by batches of changes. [`consumer`]: applies rows to a sink. `rebuild`: fills a
//!   new copy. `lease`: one instance at a time. `waiting`: waits for rows and commands.
//! - [`handle`]: control of a running consumer. [`status`]: its state. [`pause`]: the pause flag in the store.
//! - [`service`]: a sink with a name, figures and a verification; the list of all services.
//!
//! See the crate's README for how to write a service, and for the guarantees.

pub mod consumer;
pub mod handle;
mod lease;
pub mod pause;
mod rebuild;
pub mod service;
pub mod sink;
pub mod status;
mod waiting;

pub use consumer::{Consumer, ConsumerSettings};
pub use handle::Handle;
pub use service::{Figure, RunningService, Service, ServiceError, ServiceInfo, Services, Verification};
pub use sink::{Batch, Change, Reached, Sink, SinkError, Target};
pub use status::{State, Status};
