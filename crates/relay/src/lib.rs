//! The relay: events in, queries and live events out, over WebSocket (NIP-01).
//!
//! # Layout
//!
//! - [`relay`]: what all connections share. [`config`]: what an operator sets. `topics`: which are taken in.
//! - [`server`]: accepting connections; `door`: who is let in; `rates`: how fast they may ask.
//! - [`http`]: the one port; `information`: NIP-11; `page`: for people; `metrics`: for machines.
//! - `session`: one client. `message`: what is said. `auth`: who says it (NIP-42). `sync`: reconciliation (NIP-77).
//! - `intake`: the cheap checks of an event. `pipeline`: the one writer. `recent`: ephemeral events that passed.
//! - `hub`: live subscriptions; `live`: what they are told of. `queue`: what waits for a client.
//! - [`upkeep`]: what runs by itself. `disk`: its free space. `consumers`: how far those are behind who
//!   follow the outbox. `clock`: the time.
//! - `bridging`: for a bridge to other nodes. `parts`: what else of the node reports here.
//! - `counting` (a feature, for `cargo xtask counts`): single steps, to see what they cost.

mod auth;
mod bridging;
mod clock;
pub mod config;
mod consumers;
#[cfg(feature = "counting")]
pub mod counting;
mod disk;
mod door;
pub mod http;
mod hub;
mod information;
mod intake;
mod live;
mod message;
mod metrics;
mod page;
mod parts;
mod pipeline;
mod queue;
mod rates;
mod recent;
pub mod relay;
pub mod server;
mod session;
mod sync;
mod topics;
pub mod upkeep;

pub use config::RelayConfig;
pub use intake::Refused;
pub use relay::Relay;
