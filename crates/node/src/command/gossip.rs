//! `gossip`: the node's ticket, its known peers, and the topics that it shares with them.

use anyhow::bail;
use clap::Subcommand;
use kukuri_domain::Timestamp;
use kukuri_gossip::Bridge;
use serde::{Deserialize, Serialize};

use super::table::{moment, table};
use crate::{
    admin_socket::{AdminRequest, client::AdminClient},
    config::{Settings, Switch},
    output,
};

/// Commands about gossip. The node must run.
#[derive(Debug, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Gossip {
    /// Prints what others need to connect with this node: a ticket, and the same as id@address.
    Ticket,
    /// Prints the peers that are known.
    Peers,
    /// Prints the topics that are shared with peers.
    Topics,
}

pub(crate) async fn run(settings: &Settings, command: Gossip) -> anyhow::Result<()> {
    if settings.gossip.enabled == Switch::Off {
        bail!("gossip.enabled is off");
    }
    let mut client = AdminClient::require_running_node(settings).await?;
    output::print(&client.ask::<String>(AdminRequest::Gossip(command)).await?)
}

/// The text that a running node answers with.
pub(crate) fn answer(bridge: &Bridge, command: Gossip) -> anyhow::Result<String> {
    Ok(match command {
        Gossip::Ticket => {
            let address = bridge.address()?;
            format!("{}\n{address}\n", address.ticket())
        }
        Gossip::Peers => {
            let peers = bridge.peers();
            if peers.is_empty() {
                return Ok("no peer is known\n".to_owned());
            }
            let rows = peers.into_iter().map(|peer| {
                let from = if peer.is_configured { "configuration" } else { "met" };
                let seen = if peer.seen == 0 { "never".to_owned() } else { moment(Timestamp(peer.seen)) };
                let name = peer.address.map_or_else(|| peer.id.to_string(), |address| address.to_string());
                [from.to_owned(), peer.topics.to_string(), seen, name]
            });
            table(["known by", "topics", "last met", "peer"], rows)
        }
        Gossip::Topics => {
            let topics = bridge.topics().into_iter();
            let rows =
                topics.map(|one| [one.neighbours.len().to_string(), one.received.to_string(), one.topic.to_string()]);
            table(["neighbours", "received", "topic"], rows)
        }
    })
}
