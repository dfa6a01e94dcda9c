//! The status of the bridge, its peers and its topics.

use kukuri_domain::TopicId;

use crate::peer::{PeerAddress, PeerId};

/// The state of the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndpointState {
    #[default]
    Running,
    Replacing,
}

impl EndpointState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Replacing => "being replaced",
        }
    }
}

/// A known peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The public key of the peer.
    pub id: PeerId,
    /// `None`: no address is known.
    pub address: Option<PeerAddress>,
    /// Whether the operator has configured the peer.
    pub is_configured: bool,
    /// The number of topics in which the peer is a neighbour.
    pub topics: usize,
    /// When the peer last became a neighbour, in Unix seconds; 0: never.
    pub seen: u64,
}

/// A joined topic.
#[derive(Clone, Debug)]
pub struct TopicStatus {
    /// The topic.
    pub topic: TopicId,
    /// Peers directly connected in this topic.
    pub neighbours: Vec<PeerId>,
    /// Messages received since the topic was joined.
    pub received: u64,
}
