//! What an operator sets for the bridge.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::peer::PeerAddress;

/// How a node meets others.
#[derive(Clone, Debug)]
pub struct GossipSettings {
    /// Where it listens, over UDP. Port 0: any free one.
    pub listen: SocketAddr,
    /// Further addresses that others may reach it by.
    pub addresses: Vec<SocketAddr>,
    /// Who is talked to.
    pub policy: PeerPolicy,
    /// Peers that are known from the start.
    pub known: Vec<PeerAddress>,
    /// URLs of relay servers. Empty: none are used.
    pub relays: Vec<String>,
    /// Where peers that were met are kept.
    pub directory: PathBuf,
    /// How much is taken and given.
    pub limits: GossipLimits,
    /// How what was lost is made up for.
    pub catch_up: CatchUp,
}

/// Who is talked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerPolicy {
    /// Those whom the operator names.
    Known,
    /// Everybody.
    #[default]
    Open,
}

/// How much is taken and given (G-6).
#[derive(Clone, Debug)]
pub struct GossipLimits {
    /// Topics that are joined at a time.
    pub topics: usize,
    /// Peers that are connected at a time.
    pub peers: usize,
    /// What one peer may send.
    pub from_peer: Rate,
    /// What all peers together may send.
    pub from_all: Rate,
    /// What is sent to one topic.
    pub to_topic: Rate,
    /// What is sent to all topics together.
    pub to_all: Rate,
}

/// How nodes make up for what was lost (G-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// Every topic is compared with one of its neighbours about this often.
    pub every: Duration,
    /// Events a second, in one session.
    pub events_per_second: u32,
    /// Bytes of them.
    pub bytes_per_second: u64,
}

impl Default for CatchUp {
    fn default() -> Self {
        Self { every: Duration::from_secs(60), events_per_second: 500, bytes_per_second: 2 << 20 }
    }
}

/// So much a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Messages.
    pub messages: u32,
    /// Their bytes.
    pub bytes: u64,
}

impl Default for GossipLimits {
    fn default() -> Self {
        Self {
            topics: 4_000,
            peers: 128,
            from_peer: Rate { messages: 2_000, bytes: 8 << 20 },
            from_all: Rate { messages: 5_000, bytes: 32 << 20 },
            to_topic: Rate { messages: 1_000, bytes: 2 << 20 },
            to_all: Rate { messages: 2_000, bytes: 4 << 20 },
        }
    }
}
