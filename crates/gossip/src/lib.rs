//! The bridge between a node and its peers: events that clients publish here are broadcast over iroh-gossip, events of peers
//! are submitted to the engine (G-1 to G-7).
//!
//! # Layout
//!
//! - [`bridge`]: start, status, stop. `supervisor`: runs the endpoint and replaces it. [`settings`], [`metrics`].
//! - `endpoint`: the iroh endpoint with its gossip. `connections`: access control. [`peer`], `peer_store`: known peers.
//! - `membership`: joins and leaves topics, receives messages. `topics`: the joined ones. `rejoin`: dials
//!   peers, and keeps enough neighbours.
//! - `inbox`: received messages, to the engine. `broadcast`: published events, to the peers. `wire`: the encoding of both.
//! - `protocol`: request protocols on the same endpoint. `large_events`: fetches events too large to broadcast.
//!   `peer_semaphore`: bounds concurrent requests.
//! - `catch_up`: reconciles topics with peers after losses (G-7).
//! - `watchdog`: timeouts for iroh-gossip.
//! - `fuzzing` (a feature): what must hold for any message of a peer.
//!
//! iroh-gossip loses messages, never rejoins a topic by itself, and can stop for good when a peer freezes or floods. So no
//! call into it is without a timeout, and an endpoint whose gossip is stuck is replaced as a whole.

pub mod bridge;
mod broadcast;
mod catch_up;
mod connections;
mod endpoint;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inbox;
mod large_events;
mod membership;
pub mod metrics;
pub mod peer;
mod peer_semaphore;
mod peer_store;
mod protocol;
mod rejoin;
pub mod settings;
mod supervisor;
mod topics;
mod watchdog;
mod wire;

pub use bridge::Bridge;
pub use error::GossipError;
pub use peer::{PeerAddress, PeerId};
pub use settings::{CatchUpSettings, GossipLimits, GossipSettings, PeerPolicy, Rate};
