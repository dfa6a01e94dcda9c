//! Gossip between nodes: an event published on one node is live on all nodes that share its topic, once.

use std::{collections::BTreeSet, time::Duration};

use crate::support::{
    Node, TOPIC,
    events::{note, topic},
    mesh::{configured, listener, mesh},
};
use kukuri_testing::{Client, eventually, waiting::eventually_within};
use nostr_sdk::{Event, EventBuilder, Keys, Kind};

const SENT: &str = "kukuri_gossip_sent_total";

/// Receives these live events, in any order, and panics on any other message.
async fn hear_all(client: &mut Client, events: &[Event]) {
    let mut missing: Vec<String> = events.iter().map(|event| event.id.to_hex()).collect();
    while !missing.is_empty() {
        let heard = client.hear().await;
        assert_eq!((heard[0].as_str(), heard[1].as_str()), (Some("EVENT"), Some("live")), "{heard}");
        let id = heard[2]["id"].as_str().unwrap();
        let place =
            missing.iter().position(|missing| missing == id).unwrap_or_else(|| panic!("again, or not ours: {heard}"));
        missing.remove(place);
    }
}

fn ephemeral(keys: &Keys, content: &str) -> Event {
    EventBuilder::new(Kind::from(20_001), content).tag(topic()).sign_with_keys(keys).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_published_on_one_node_is_live_on_all_and_broadcast_once() {
    // G-1, G-2, G-3, E-5
    let nodes: [Node; 3] = mesh("").await;
    let keys = Keys::generate();
    let mut listeners = Vec::new();
    for node in &nodes {
        listeners.push(listener(node, TOPIC).await);
    }
    for (number, node) in nodes.iter().enumerate() {
        let events = [note(&keys, &format!("from {number}")), ephemeral(&keys, &format!("from {number}"))];
        let mut client = node.client().await;
        for event in &events {
            assert_eq!(client.publish(event).await, (true, String::new()));
        }
        for listener in &mut listeners {
            hear_all(listener, &events).await;
        }
        // A duplicate is not broadcast again.
        assert!(client.publish(&events[0]).await.1.starts_with("duplicate:"));
    }
    for (number, node) in nodes.iter().enumerate() {
        // More than 4 if catch-up delivers an event before gossip does: both count it.
        let taken =
            || node.figure("kukuri_gossip_accepted_total", "") + node.figure("kukuri_catchup_items_total", "in");
        eventually("all of it was taken", || async { taken() >= 4 }).await;
        eventually("all of it was sent", || async { node.figure(SENT, "") >= 2 }).await;
        assert_eq!(node.figure(SENT, ""), 2, "node {number} broadcast its own events and nothing else");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_by_a_ticket_and_commands_list_peers_and_topics() {
    let node = Node::start("required");
    let ticket = node.run(&["gossip", "ticket"]).ok();
    let (ticket, address) = ticket.trim_end().split_once('\n').unwrap();
    assert_eq!(address, node.peer());
    assert_eq!(node.run(&["gossip", "peers"]).ok(), "no peer is known\n");
    let mut other = Node::start_with("required", &configured("", &[format!("{ticket:?}")]));
    node.topic("enable", TOPIC);
    other.topic("enable", TOPIC);
    node.joined(TOPIC, 1).await;
    other.joined(TOPIC, 1).await;
    // Includes the global topic.
    eventually("health shows them", || async {
        let health = node.gossip();
        health["state"] == "running" && health["topics"] == 2 && health["peers"] == 1
    })
    .await;
    eventually("the other is listed", || async {
        let met = node.run(&["gossip", "peers"]).ok();
        met.contains("met ") && met.contains(&other.peer())
    })
    .await;
    let named = other.run(&["gossip", "peers"]).ok();
    assert!(named.contains("configuration ") && named.contains(&node.peer()), "{named}");

    other.stop(rustix::process::Signal::TERM).await;
    node.joined(TOPIC, 0).await;
    assert!(other.run(&["gossip", "ticket"]).refusal().contains("no node runs in"));
    let off = Node::start_with("required", "gossip.enabled = \"off\"");
    assert!(off.announcement.contains("peers     none"), "{}", off.announcement);
    assert!(off.run(&["gossip", "topics"]).refusal().contains("gossip.enabled is off"));
    assert!(off.gossip().is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_has_left_one_topic_and_then_died_is_a_neighbour_in_none() {
    let [node, mut other]: [Node; 2] = mesh("").await;
    eventually("they share the global topic as well", || async { node.gossip()["topics_without_neighbours"] == 0 })
        .await;
    other.topic("disable", TOPIC);
    node.joined(TOPIC, 0).await;
    other.stop(rustix::process::Signal::KILL).await;
    // Without a check of its own, the node finds this out by a message of iroh-gossip that is sent once a minute.
    let soon = Duration::from_secs(30);
    let is_gone = || async { node.gossip()["topics_without_neighbours"] == 2 };
    eventually_within(soon, is_gone, || format!("the dead peer is gone: {}", node.gossip())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_go_to_configured_peers_only() {
    // Two nodes; strace shows that one of them sends UDP packets only to the other.
    let other = Node::start("required");
    other.topic("enable", TOPIC);
    let mut node = Node::place_for("required", &configured("", &[format!("{:?}", other.peer())]));
    let log = node.place("trace");
    // -D: the tracer is the child, so that signals reach the node.
    node.start_under(&["strace", "-D", "-f", "-qq", "-yy", "-e", "trace=%network", "-o", log.to_str().unwrap()]);
    node.start_again();
    node.topic("enable", TOPIC);
    node.joined(TOPIC, 1).await;
    let mut listener = listener(&other, TOPIC).await;
    let event = note(&Keys::generate(), "traced");
    assert!(node.client().await.publish(&event).await.0);
    hear_all(&mut listener, &[event]).await;
    node.stop(rustix::process::Signal::TERM).await;

    let trace = std::fs::read_to_string(&log).unwrap();
    let mut udp = BTreeSet::new();
    let leaves = |line: &&str| line.contains(" send") && (line.contains("<UDP") || line.contains("<TCP"));
    for line in trace.lines().filter(leaves) {
        let to: Vec<String> = destinations(line);
        assert!(to.iter().all(|to| to.starts_with("127.0.0.1:")), "sent elsewhere: {line}");
        if line.contains("<UDP") {
            udp.extend(to);
        }
    }
    let (_, known) = other.peer().split_once('@').map(|(id, address)| (id.to_owned(), address.to_owned())).unwrap();
    assert_eq!(udp, BTreeSet::from([known]), "all of it, and it was seen");
    let elsewhere = |line: &&str| line.contains(" connect(") && line.contains("<TCP") && !line.contains("127.0.0.1");
    assert_eq!(trace.lines().find(elsewhere), None);
}

/// The destination addresses of a traced system call.
fn destinations(line: &str) -> Vec<String> {
    // strace -yy describes the socket in angle brackets, with the remote address if it is connected.
    let connected = line.split_once("->").and_then(|(_, rest)| rest.split([']', '>']).next()).map(str::to_owned);
    let named = line.split("sin_port=htons(").skip(1).filter_map(|rest| {
        let (port, rest) = rest.split_once(')')?;
        let address = rest.split_once("inet_addr(\"")?.1.split('"').next()?;
        Some(format!("{address}:{port}"))
    });
    let six = line.contains("AF_INET6").then(|| line.to_owned());
    named.chain(connected).chain(six).collect()
}
