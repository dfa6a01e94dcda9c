//! Nodes that come and go, die, freeze: the others go on, and whoever comes back is one of them again without help.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::time::{Duration, Instant};

use nostr_sdk::{Event, EventBuilder, Keys, Tag};
use rustix::process::Signal;
use support::{
    Node, PATIENCE, TOPIC,
    client::{Client, note},
    mesh::{A_WHILE, configured, listener, mesh},
    until,
};

const OTHER_TOPIC: &str = "kukuri:0202020202020202020202020202020202020202020202020202020202020202";

/// Publishes new events on one node until one of them is heard on another: gossip promises no more.
async fn heard_from(from: &Node, to: &Node) {
    let keys = Keys::generate();
    let (mut client, mut listener) = (Client::connect(from).await, listener(to, TOPIC).await);
    let end = Instant::now() + PATIENCE;
    loop {
        let event = note(&keys, &format!("{:?}", Instant::now()));
        assert!(client.publish(&event).await.0);
        let heard = async { while listener.hear().await[2]["id"] != event.id.to_hex() {} };
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
    let mut client = Client::connect(&nodes[0]).await;
    let mut listener = listener(&nodes[1], TOPIC).await;
    let both = in_both(&keys, "one of its topics is enabled there");
    assert!(client.publish(&both).await.0);
    let heard = listener.hear().await;
    assert_eq!(heard[2]["id"], both.id.to_hex(), "a peer's event needs one enabled topic");

    nodes[1].topic("enable", OTHER_TOPIC);
    nodes[0].joined(OTHER_TOPIC, 1).await;
    let mut reader = Client::connect(&nodes[1]).await;
    let stored = reader.request(serde_json::json!({ "#t": [OTHER_TOPIC] })).await;
    assert_eq!(stored, [both.id.to_hex()], "it is bound to all of its topics");

    nodes[1].topic("disable", TOPIC);
    nodes[0].joined(TOPIC, 0).await;
    assert_eq!(nodes[1].neighbours(TOPIC), None);
    let missed = note(&keys, "nobody there listens");
    assert!(client.publish(&missed).await.0);
    let last = EventBuilder::text_note("last").tag(Tag::hashtag(OTHER_TOPIC)).sign_with_keys(&keys).unwrap();
    assert!(client.publish(&last).await.0);
    until("it hears the topic it has", || async {
        let mut reader = Client::connect(&nodes[1]).await;
        reader.request(serde_json::json!({ "#t": [OTHER_TOPIC] })).await.contains(&last.id.to_hex())
    })
    .await;
    assert!(!reader.request(serde_json::json!({ "#t": [TOPIC] })).await.contains(&missed.id.to_hex()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_or_dies_is_back_after_its_restart() {
    let mut nodes: [Node; 3] = mesh("").await;
    // The first knows the others only because it met them.
    nodes[0].stop(Signal::TERM).await;
    heard_from(&nodes[1], &nodes[2]).await;
    nodes[0].start_again();
    all_hear_each_other(&nodes).await;
    // Its port is another one now: it has to find the others.
    for number in [0, 2] {
        nodes[number].kill();
        nodes[number].start_again();
        all_hear_each_other(&nodes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_dies_and_is_back_before_it_is_missed_is_heard() {
    // The second was told of the first, and asked it; the first remembers where the second is.
    let mut nodes: [Node; 2] = mesh("").await;
    let remembered = nodes[0].place("data/peers.json");
    until("who was met is kept", || async { remembered.exists() }).await;
    for _ in 0..2 {
        nodes[0].kill();
        nodes[0].start_again();
        all_hear_each_other(&nodes).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_freezes_under_load_holds_nobody_up_for_long() {
    let nodes: [Node; 3] = mesh("").await;
    let keys = Keys::generate();
    nodes[2].signal(Signal::STOP);
    let (mut first, mut second) = (Client::connect(&nodes[0]).await, Client::connect(&nodes[1]).await);
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
async fn a_thousand_topics_are_shared_by_two_nodes() {
    let topics: Vec<String> = (0..1_000).map(|number| format!("kukuri:{number:064x}")).collect();
    let mut first = Node::place_for("required", "topics.max = 2000");
    first.start_again();
    first.enable_all(&topics);
    let peers = [format!("{:?}", first.peer())];
    let second = Node::start_with("required", &configured("topics.max = 2000", &peers));
    let started = Instant::now();
    second.enable_all(&topics);
    // The global topic too.
    let count = topics.len() as u64 + 1;
    let is_joined = |node: &Node| node.gossip()["topics"] == count && node.gossip()["topics_alone"] == 0;
    until("all are joined", || async { is_joined(&first) && is_joined(&second) }).await;
    println!("1,000 topics joined in {:?}; memory {} KiB, {} KiB", started.elapsed(), first.memory(), second.memory());
    let keys = Keys::generate();
    let (mut client, mut listener) = (Client::connect(&first).await, listener(&second, &topics[999]).await);
    let event = EventBuilder::text_note("x").tag(Tag::hashtag(&topics[999])).sign_with_keys(&keys).unwrap();
    assert!(client.publish(&event).await.0);
    assert_eq!(listener.hear().await[2]["id"], event.id.to_hex());
}
