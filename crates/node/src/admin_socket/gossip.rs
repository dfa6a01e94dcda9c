//! Requests about gossip.

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{AdminContext, AdminReply};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GossipRequest {
    /// The ticket and address that other nodes connect to.
    Ticket,
    /// The known peers.
    Peers,
    /// The topics that are shared with peers.
    Topics,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TicketReport {
    pub(crate) ticket: String,
    /// The ticket's content as `id@address`.
    pub(crate) address: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PeerReport {
    pub(crate) peer: String,
    pub(crate) is_named: bool,
    /// Number of topics in which the peer is a neighbour.
    pub(crate) topics: usize,
    /// Unix seconds of the last contact; 0: never.
    pub(crate) seen: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TopicReport {
    pub(crate) topic: String,
    pub(crate) neighbours: Vec<String>,
    pub(crate) received: u64,
}

pub(super) fn answer(context: &AdminContext, request: GossipRequest) -> anyhow::Result<AdminReply> {
    let bridge = context.bridge.as_deref().context("gossip.enabled is off")?;
    Ok(match request {
        GossipRequest::Ticket => {
            let address = bridge.address()?;
            AdminReply::Ticket(TicketReport { ticket: address.ticket(), address: address.to_string() })
        }
        GossipRequest::Peers => {
            let peers = bridge.peers().into_iter().map(|peer| PeerReport {
                peer: peer.address.map_or_else(|| peer.id.to_string(), |address| address.to_string()),
                is_named: peer.is_configured,
                topics: peer.topics,
                seen: peer.seen,
            });
            AdminReply::Peers(peers.collect())
        }
        GossipRequest::Topics => {
            let topics = bridge.topics().into_iter().map(|status| TopicReport {
                topic: status.topic.to_string(),
                neighbours: status.neighbours.iter().map(ToString::to_string).collect(),
                received: status.received,
            });
            AdminReply::GossipTopics(topics.collect())
        }
    })
}
