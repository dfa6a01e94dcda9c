//! The relay: the NIP-01 family on WebSocket, in front of the engine.
//!
//! # Layout
//!
//! - [`relay`]: what all connections share. `metrics`: what is counted. [`nip11`]: the information document.
//! - `session`: one connection. `message`: what clients and the relay say; `head`: its first word, read before the rest.
//!   `closed`: why a request is refused.
//! - [`allowance`]: a least rate for clients that read. `auth`: NIP-42. `negentropy`: NIP-77.
//! - `counting` (a feature, for `cargo xtask counts`): single steps, to count their instructions.
//! - `fuzzing` (a feature): what must hold for any bytes of a client.

pub mod allowance;
mod auth;
mod closed;
#[cfg(feature = "counting")]
pub mod counting;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod head;
mod message;
mod metrics;
mod negentropy;
pub mod nip11;
pub mod relay;
mod session;

pub use metrics::RelayMetrics;
pub use nip11::Info;
pub use relay::Relay;
