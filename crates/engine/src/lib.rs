//! The engine of a node: what happens to events and readers, whatever the protocol. It knows no WebSocket, no HTTP, no
//! index and no exporter of metrics.
//!
//! # Layout
//!
//! - [`engine`]: the parts, put together. [`config`]: what an operator sets.
//! - Events in: [`intake`], the one sequence of checks for every origin · [`policies`], the checks an operator can set, one
//!   file each · [`refused`], the reasons · `writer`, the one task that commits · [`recent`], the latest ids.
//! - Events out: [`reads`], stored events · [`live`], live events · `broadcast_queue`, events for the gossip
//!   bridge.
//! - State of the node: `topics`, which are enabled · `disk`, free space · `backlog`, how far outbox consumers are behind ·
//!   [`metrics`], the table of metrics · [`upkeep`], what runs by itself · [`clock`], the time.

pub mod backlog;
mod broadcast_queue;
pub mod clock;
pub mod config;
pub mod disk;
pub mod engine;
pub mod intake;
pub mod live;
pub mod metrics;
pub mod policies;
pub mod reads;
pub mod recent;
pub mod refused;
mod topics;
pub mod upkeep;
mod writer;

pub use config::EngineConfig;
pub use engine::{Engine, EngineParts, Health, SharedVisibility, Signal};
pub use policies::{Client, ReadKind, rates::network_of};
pub use refused::{ConnectRefused, PublishRefused, ReadRefused};
