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
//! - Clients: [`networks`], addresses that count as one, and what each may hold · `permits`, turns of costly reads · `answers`,
//!   memory of answers that wait to be read.
//! - State of the node: `topics`, which are enabled · `disk`, free space · [`permanent`], events that are never purged ·
//!   `backlog`, how far outbox consumers are behind · `cached`, what many ask for and few read ·
//!   [`metrics`], the table of metrics · [`upkeep`], what runs by itself · [`clock`], the time.

mod answers;
pub mod backlog;
mod broadcast_queue;
pub mod cached;
pub mod clock;
pub mod config;
pub mod disk;
pub mod engine;
pub mod intake;
pub mod live;
pub mod metrics;
pub mod networks;
pub mod permanent;
mod permits;
pub mod policies;
pub mod reads;
pub mod recent;
pub mod refused;
mod topics;
pub mod upkeep;
mod writer;

pub use cached::StoreUnavailable;
pub use config::EngineConfig;
pub use engine::{Engine, EngineParts, Health, SharedVisibility, Signal};
pub use policies::{Client, ReadKind};
pub use refused::{ClientRefused, ConnectRefused, PublishRefused, ReadRefused, TooFast};
