//! Settings of the bridge.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use kukuri_pacing::Rate;

use crate::peer::PeerAddress;

/// Settings of the bridge.
#[derive(Clone, Debug)]
pub struct GossipSettings {
    /// The UDP address to listen on. Port 0: any free one.
    pub listen: SocketAddr,
    /// Further addresses at which peers can reach this node.
    pub addresses: Vec<SocketAddr>,
    /// Which peers may connect.
    pub peers: PeerPolicy,
    /// Peers that the operator has configured.
    pub known: Vec<PeerAddress>,
    /// URLs of relay servers. Empty: none are used.
    pub relays: Vec<String>,
    /// Holds the file of seen peers.
    pub directory: PathBuf,
    /// Bounds of traffic.
    pub limits: GossipLimits,
    /// Catch-up with peers.
    pub catch_up: CatchUpSettings,
}

/// Which peers may connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerPolicy {
    /// Only peers that the operator has configured.
    Known,
    /// Any peer.
    #[default]
    Open,
}

/// Bounds of traffic (G-6).
#[derive(Clone, Debug)]
pub struct GossipLimits {
    /// Maximum number of joined topics.
    pub max_topics: usize,
    /// Maximum number of connected peers; configured peers are not refused.
    pub max_peers: usize,
    /// Received from one peer.
    pub peer: Rate,
    /// Received from all peers together.
    pub received: Rate,
    /// Sent to one topic.
    pub topic: Rate,
    /// Sent to all topics together.
    pub sent: Rate,
}

/// Settings of catch-up with peers (G-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUpSettings {
    /// The time between two sessions of a topic, with jitter.
    pub interval: Duration,
    /// Events per second in one session.
    pub events_per_second: u32,
    /// Bytes per second in one session.
    pub bytes_per_second: u64,
}

impl Default for CatchUpSettings {
    fn default() -> Self {
        Self { interval: Duration::from_secs(60), events_per_second: 500, bytes_per_second: 2 << 20 }
    }
}

impl Default for GossipLimits {
    fn default() -> Self {
        Self {
            max_topics: 4_000,
            max_peers: 128,
            peer: Rate { messages: 2_000, bytes: 8 << 20 },
            received: Rate { messages: 5_000, bytes: 32 << 20 },
            topic: Rate { messages: 1_000, bytes: 2 << 20 },
            sent: Rate { messages: 2_000, bytes: 4 << 20 },
        }
    }
}
