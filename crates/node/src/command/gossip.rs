//! `gossip`: how others reach this node, who is known, which topics are carried.

use anyhow::bail;
use clap::Subcommand;

use super::table::{moment, table};
use crate::{
    config::{Settings, Switch},
    control::{Reply, Request, gossip::GossipRequest, link::Link},
    output,
};

/// What can be seen of gossip. The node must run.
#[derive(Subcommand)]
pub(crate) enum Gossip {
    /// Prints what others need to connect with this node: a ticket, and the same as id@address.
    Ticket,
    /// Prints the peers that are known.
    Peers,
    /// Prints the topics that are carried to and from peers.
    Topics,
}

/// Runs the command.
pub(crate) async fn run(settings: &Settings, command: Gossip) -> anyhow::Result<()> {
    if settings.gossip.enabled == Switch::Off {
        bail!("this node talks to no peers: gossip.enabled is off");
    }
    let request = match command {
        Gossip::Ticket => GossipRequest::Ticket,
        Gossip::Peers => GossipRequest::Peers,
        Gossip::Topics => GossipRequest::Topics,
    };
    let reply = Link::to_node(settings).await?.ask(Request::Gossip(request)).await?;
    let text = match reply {
        Reply::Ticket(report) => format!("{}\n{}\n", report.ticket, report.address),
        Reply::Peers(peers) if peers.is_empty() => "no peer is known\n".to_owned(),
        Reply::Peers(peers) => {
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
        Reply::GossipTopics(topics) => {
            let rows: Vec<Vec<String>> = topics
                .into_iter()
                .map(|topic| vec![topic.neighbours.len().to_string(), topic.received.to_string(), topic.topic])
                .collect();
            table(&["neighbours", "received", "topic"], &rows)
        }
        _ => bail!("the node answers something else"),
    };
    Ok(output::print(&text)?)
}
