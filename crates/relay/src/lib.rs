//! The relay: events in, queries and live events out, over WebSocket (NIP-01).
//!
//! # Layout
//!
//! - [`relay`]: what all connections share; the cheap checks of an event.
//! - [`http`]: the one port. `session`: one client. `message`: what is said. `auth`: who says it (NIP-42).
//! - `pipeline`: the one writer. `hub`: live subscriptions. `queue`: what waits for a client.
//! - [`upkeep`]: what runs by itself. [`config`]: what an operator sets. `clock`: the time.

mod auth;
mod clock;
pub mod config;
pub mod http;
mod hub;
mod message;
mod pipeline;
mod queue;
pub mod relay;
mod session;
pub mod upkeep;

pub use config::RelayConfig;
pub use relay::Relay;
