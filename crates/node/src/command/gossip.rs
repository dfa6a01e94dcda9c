//! `gossip`: the node's ticket, its known peers, and the topics that it shares with them.

use anyhow::bail;
use clap::Subcommand;

use super::table::{moment, table};
use crate::{
    admin_socket::{AdminReply, AdminRequest, UNEXPECTED_REPLY, client::AdminClient, gossip::GossipRequest},
    config::{Settings, Switch},
    output,
};

/// Commands about gossip. The node must run.
#[derive(Subcommand)]
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
    let request = match command {
        Gossip::Ticket => GossipRequest::Ticket,
        Gossip::Peers => GossipRequest::Peers,
        Gossip::Topics => GossipRequest::Topics,
    };
    let reply = AdminClient::require_running_node(settings).await?.ask(AdminRequest::Gossip(request)).await?;
    let text = match reply {
        AdminReply::Ticket(report) => format!("{}\n{}\n", report.ticket, report.address),
        AdminReply::Peers(peers) if peers.is_empty() => "no peer is known\n".to_owned(),
        AdminReply::Peers(peers) => {
            let rows: Vec<Vec<String>> = peers
                .into_iter()
                .map(|peer| {
                    let from = if peer.is_named { "configuration" } else { "met" };
                    let seen = if peer.seen == 0 { "never".to_owned() } else { moment(peer.seen) };
                    vec![from.to_owned(), peer.topics.to_string(), seen, peer.peer]
                })
                .collect();
            table(&["known by", "topics", "last met", "peer"], &rows)
        }
        AdminReply::GossipTopics(topics) => {
            let rows: Vec<Vec<String>> = topics
                .into_iter()
                .map(|topic| vec![topic.neighbours.len().to_string(), topic.received.to_string(), topic.topic])
                .collect();
            table(&["neighbours", "received", "topic"], &rows)
        }
        _ => bail!(UNEXPECTED_REPLY),
    };
    Ok(output::print(&text)?)
}
