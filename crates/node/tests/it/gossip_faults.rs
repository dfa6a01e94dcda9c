//! Gossip faults: nodes stop, are killed or freeze; the others continue, and a node that returns rejoins by itself.

use std::time::{Duration, Instant};

use crate::support::{
    Node, TOPIC,
    events::note,
    mesh::{A_WHILE, configured, listener, mesh},
};
use kukuri_testing::{TIMEOUT, eventually, waiting::eventually_within};
use nostr_sdk::{Event, EventBuilder, Keys, Tag};
use rustix::process::Signal;

const OTHER_TOPIC: &str = "kukuri:0202020202020202020202020202020202020202020202020202020202020202";

/// Publishes new events on one node until another node receives one of them: gossip may lose single events.
async fn heard_from(from: &Node, to: &Node) {
    let keys = Keys::generate();
    let (mut client, mut listener) = (from.client().await, listener(to, TOPIC).await);
    let (end, mut published) = (Instant::now() + TIMEOUT, Vec::new());
    loop {
        let event = note(&keys, &format!("{:?}", Instant::now()));
        assert!(client.publish(&event).await.0);
        published.push(event.id.to_hex());
        let heard = async {
            loop {
                let message = listener.hear().await;
                if published.iter().any(|id| message[2]["id"] == id.as_str()) {
                    break;
                }
            }
        };
        if tokio::time::timeout(A_WHILE * 2, heard).await.is_ok() {
            return;
        }
        assert!(Instant::now() < end, "nothing is heard: {} {}", from.gossip(), to.gossip());
    }
}

async fn all_hear_each_other(nodes: &[Node]) {
    for from in nodes {
        for to in nodes.iter().filter(|to| !std::ptr::eq(*to, from)) {
            heard_from(from, to).await;
        }
    }
}

fn in_both(keys: &Keys, content: &str) -> Event {
    let topics = [TOPIC, OTHER_TOPIC].map(Tag::hashtag);
    EventBuilder::text_note(content).tags(topics).sign_with_keys(keys).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_joined_and_left_while_nodes_run() {
    // G-1, T-4, T-8
    let nodes: [Node; 2] = mesh("topics.open = false").await;
    let keys = Keys::generate();
    assert_eq!(nodes[1].neighbours(OTHER_TOPIC), None);
    nodes[0].topic("enable", OTHER_TOPIC);
    let mut client = nodes[0].client().await;
    let mut listener = listener(&nodes[1], TOPIC).await;
    let both = in_both(&keys, "one of its topics is enabled there");
    assert!(client.publish(&both).await.0);
    let heard = listener.hear().await;
    assert_eq!(heard[2]["id"], both.id.to_hex(), "a peer's event needs one enabled topic");

    nodes[1].topic("enable", OTHER_TOPIC);
    nodes[0].joined(OTHER_TOPIC, 1).await;
    let mut reader = nodes[1].client().await;
    let stored = reader.request("r", &[serde_json::json!({ "#t": [OTHER_TOPIC] })]).await;
    assert_eq!(stored, [both.id.to_hex()], "it is bound to all of its topics");

    nodes[1].topic("disable", TOPIC);
    nodes[0].joined(TOPIC, 0).await;
    assert_eq!(nodes[1].neighbours(TOPIC), None);
    let missed = note(&keys, "nobody there listens");
    assert!(client.publish(&missed).await.0);
    let last = EventBuilder::text_note("last").tag(Tag::hashtag(OTHER_TOPIC)).sign_with_keys(&keys).unwrap();
    assert!(client.publish(&last).await.0);
    eventually("it hears the topic it has", || async {
        let mut reader = nodes[1].client().await;
        reader.request("r", &[serde_json::json!({ "#t": [OTHER_TOPIC] })]).await.contains(&last.id.to_hex())
    })
    .await;
    assert!(!reader.request("r", &[serde_json::json!({ "#t": [TOPIC] })]).await.contains(&missed.id.to_hex()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_or_killed_node_rejoins_after_its_restart() {
    let mut nodes: [Node; 3] = mesh("").await;
    // The first node knows the others only from their connections to it.
    nodes[0].stop(Signal::TERM).await;
    heard_from(&nodes[1], &nodes[2]).await;
    nodes[0].start_again();
    all_hear_each_other(&nodes).await;
    // The node has another port after its restart, so it has to connect to the others.
    for number in [0, 2] {
        nodes[number].kill();
        nodes[number].start_again();
        all_hear_each_other(&nodes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_before_its_connection_times_out_is_heard() {
    // The second node is configured with the first and connects to it; the first remembers the second's address.
    let mut nodes: [Node; 2] = mesh("").await;
    let remembered = nodes[0].place("data/peers.json");
    eventually("who was met is kept", || async { remembered.exists() }).await;
    for _ in 0..2 {
        nodes[0].kill();
        nodes[0].start_again();
        all_hear_each_other(&nodes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_frozen_under_load_does_not_block_others() {
    let nodes: [Node; 3] = mesh("").await;
    let keys = Keys::generate();
    nodes[2].signal(Signal::STOP);
    let (mut first, mut second) = (nodes[0].client().await, nodes[1].client().await);
    let end = Instant::now() + Duration::from_secs(8);
    let mut published = 0;
    while Instant::now() < end {
        let text = format!("{published} {}", "x".repeat(4_000));
        assert!(first.publish(&note(&keys, &text)).await.0);
        assert!(second.publish(&note(&keys, &format!("{text} again"))).await.0);
        published += 1;
    }
    heard_from(&nodes[0], &nodes[1]).await;
    heard_from(&nodes[1], &nodes[0]).await;
    nodes[2].signal(Signal::CONT);
    all_hear_each_other(&nodes).await;
    for node in &nodes {
        assert!(node.gossip()["queue"].as_u64().unwrap() < 8_192, "{}", node.gossip());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_a_thousand_topics() {
    let topics: Vec<String> = (0..1_000).map(|number| format!("kukuri:{number:064x}")).collect();
    let mut first = Node::place_for("required", "topics.max = 2000");
    first.start_again();
    first.enable_all(&topics);
    let peers = [format!("{:?}", first.peer())];
    let second = Node::start_with("required", &configured("topics.max = 2000", &peers));
    let started = Instant::now();
    second.enable_all(&topics);
    // Includes the global topic.
    let count = topics.len() as u64 + 1;
    let is_joined = |node: &Node| node.gossip()["topics"] == count && node.gossip()["topics_without_neighbours"] == 0;
    let are_joined = || async { is_joined(&first) && is_joined(&second) };
    eventually_within(TIMEOUT * 3, are_joined, || format!("{} {}", first.gossip(), second.gossip())).await;
    println!("1,000 topics joined in {:?}; memory {} KiB, {} KiB", started.elapsed(), first.memory(), second.memory());
    let keys = Keys::generate();
    let (mut client, mut listener) = (first.client().await, listener(&second, &topics[999]).await);
    let event = EventBuilder::text_note("x").tag(Tag::hashtag(&topics[999])).sign_with_keys(&keys).unwrap();
    assert!(client.publish(&event).await.0);
    assert_eq!(listener.hear().await[2]["id"], event.id.to_hex());
}
