//! What the bridge tells of itself.

use kukuri_domain::TopicId;

use crate::peer::{PeerAddress, PeerId};

/// What it is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs.
    #[default]
    Running,
    /// Gossip did not move; its endpoint is being replaced.
    Replacing,
}

impl State {
    /// In a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Replacing => "being replaced",
        }
    }
}

/// A peer that is known.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Who it is.
    pub id: PeerId,
    /// Where it is; `None`: no address is known.
    pub address: Option<PeerAddress>,
    /// Whether the operator names it.
    pub is_named: bool,
    /// In how many topics it is a neighbour.
    pub topics: usize,
    /// When it was last met, in Unix seconds; 0: never.
    pub seen: u64,
}

/// A topic that is joined.
#[derive(Clone, Debug)]
pub struct TopicStatus {
    /// Which one.
    pub topic: TopicId,
    /// Who its neighbours are.
    pub neighbours: Vec<PeerId>,
    /// The messages that came over it since it was joined.
    pub received: u64,
}
