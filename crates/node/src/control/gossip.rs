//! What is asked of the node about its peers.

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{Reply, Running};

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GossipRequest {
    /// How others reach this node.
    Ticket,
    /// Who is known.
    Peers,
    /// Which topics are carried.
    Topics,
}

/// How others reach a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TicketReport {
    pub(crate) ticket: String,
    /// The same for people, if it can be told so.
    pub(crate) address: String,
}

/// A peer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PeerReport {
    pub(crate) peer: String,
    pub(crate) is_named: bool,
    /// In how many topics it is a neighbour.
    pub(crate) topics: usize,
    /// In Unix seconds; 0: never.
    pub(crate) seen: u64,
}

/// A topic that is carried.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TopicReport {
    pub(crate) topic: String,
    pub(crate) neighbours: Vec<String>,
    pub(crate) received: u64,
}

/// Does what is asked.
pub(super) fn answer(running: &Running, request: GossipRequest) -> anyhow::Result<Reply> {
    let bridge = running.bridge.as_deref().context("this node talks to no peers: gossip.enabled is off")?;
    Ok(match request {
        GossipRequest::Ticket => {
            let address = bridge.address()?;
            Reply::Ticket(TicketReport { ticket: address.ticket(), address: address.to_string() })
        }
        GossipRequest::Peers => {
            let peers = bridge.peers().into_iter().map(|peer| PeerReport {
                peer: peer.address.map_or_else(|| peer.id.to_string(), |address| address.to_string()),
                is_named: peer.is_named,
                topics: peer.topics,
                seen: peer.seen,
            });
            Reply::Peers(peers.collect())
        }
        GossipRequest::Topics => {
            let topics = bridge.topics().into_iter().map(|status| TopicReport {
                topic: status.topic.to_string(),
                neighbours: status.neighbours.iter().map(ToString::to_string).collect(),
                received: status.received,
            });
            Reply::GossipTopics(topics.collect())
        }
    })
}
