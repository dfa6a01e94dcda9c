//! The bridge between a node and its peers: what clients publish here goes out over iroh-gossip, what peers publish comes
//! in through the relay's one pipeline (G-1 to G-7).
//!
//! # Layout
//!
//! - [`bridge`]: starting, asking, stopping. `supervising`: one endpoint after the other. [`settings`]: what an operator sets.
//!   [`status`]: what is told.
//! - `net`: one endpoint with its gossip. `door`: who may connect. [`peer`], `book`: who is known, and where.
//! - `following`: topics joined and left. `swarm`: those that are joined. `rejoining`: when neighbours are too
//!   few. `dialling`: reaching them.
//! - `inbox`: what comes in. `sending`: what goes out. `wire`: how it is written. `pace`: how fast it may be.
//! - `protocol`: other protocols over the same endpoint. `fetching`: for events too large to broadcast. `places`: how many
//!   requests there may be at a time.
//! - `catching_up`: what gossip has lost, reconciled with peers (G-7).
//! - `watchdog`: whether gossip still moves. `figures`: for collectors. `clock`: the time.
//!
//! The library loses messages, never rejoins by itself, and can stop for good when a peer freezes or floods. Nothing here
//! waits for it without a time-out, and a gossip that does not move is replaced as a whole.

mod book;
pub mod bridge;
mod catching_up;
mod clock;
mod dialling;
mod door;
mod error;
mod fetching;
mod figures;
mod following;
mod inbox;
mod net;
mod pace;
pub mod peer;
mod places;
mod protocol;
mod rejoining;
mod sending;
pub mod settings;
pub mod status;
mod supervising;
mod swarm;
mod watchdog;
mod wire;

pub use bridge::Bridge;
pub use error::GossipError;
pub use peer::{PeerAddress, PeerId};
pub use settings::{CatchUp, GossipLimits, GossipSettings, PeerPolicy, Rate};
