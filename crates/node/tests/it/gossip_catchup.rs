//! Catch-up: nodes that were partitioned, killed or frozen converge to one effective set by themselves (G-7, D-10).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::support::namespace;
use crate::support::{
    Node, TOPIC,
    events::{deletion, note, topic},
    mesh::{configured, mesh},
};
use kukuri_testing::{Client, eventually, test_name, waiting::eventually_within};
use nostr_sdk::{Event, EventBuilder, Keys, Kind, Tag, Timestamp};
use rustix::process::Signal;
use serde_json::json;

/// Catch-up runs more often than by default, so that the tests do not wait.
const OFTEN: &str = "gossip.catch_up_every = \"3s\"\n";
/// Timeout of catch-up on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// The effective events of a node.
fn effective(node: &Node) -> BTreeSet<String> {
    let lines = node.run(&["export", "--all"]).ok();
    let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    lines.lines().map(id).collect()
}

/// Waits until all nodes have the same effective set, and returns it.
async fn the_same(nodes: &[Node], is_it: impl Fn(&BTreeSet<String>) -> bool) -> BTreeSet<String> {
    let all = || nodes.iter().map(effective).collect::<Vec<_>>();
    let is_same = || async {
        let all = all();
        all.iter().all(|one| *one == all[0]) && is_it(&all[0])
    };
    let figures = || {
        let caught_up =
            |node: &Node| (effective(node).len(), node.figure("kukuri_catchup_items_total", "in"), node.gossip());
        format!("{:?}", nodes.iter().map(caught_up).collect::<Vec<_>>())
    };
    eventually_within(LONG, is_same, figures).await;
    effective(&nodes[0])
}

fn has(set: &BTreeSet<String>, event: &Event) -> bool {
    set.contains(&event.id.to_hex())
}

async fn publish(node: &Node, events: &[&Event]) {
    let mut client = node.client().await;
    for event in events {
        assert_eq!(client.publish(event).await, (true, String::new()));
    }
}

fn article(keys: &Keys, key: &str, version: u64) -> Event {
    let article = EventBuilder::new(Kind::LongFormTextNote, format!("version {version}"));
    let article = article.tags([topic(), Tag::identifier(key)]);
    article.custom_created_at(Timestamp::from(1_750_000_000 + version)).sign_with_keys(keys).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_converge_after_a_partition() {
    // G-7, D-6, D-9, D-10
    if !namespace::is_inside(test_name!(nodes_converge_after_a_partition)) {
        return;
    }
    const ADDRESSES: [&str; 4] = ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14"];
    let mut peers: Vec<String> = Vec::new();
    let nodes = ADDRESSES.map(|address| {
        let configuration = configured(OFTEN, &peers);
        let node = Node::start_with("required", &format!("gossip.listen = \"{address}:0\"\n{configuration}"));
        peers.push(format!("{:?}", node.peer()));
        node.topic("enable", TOPIC);
        node
    });
    for node in &nodes {
        node.joined(TOPIC, 3).await;
    }
    let keys = Keys::generate();
    let before: Vec<Event> = (0..20).map(|number| note(&keys, &format!("before {number}"))).collect();
    let first = article(&keys, "deleted by id", 1);
    publish(&nodes[0], &before.iter().chain([&first]).collect::<Vec<_>>()).await;
    the_same(&nodes, |set| set.len() == 21).await;

    namespace::cut(&ADDRESSES[..2], &ADDRESSES[2..]);
    let apart = Instant::now();
    // One half sees version 2 and its deletion by id; the other has version 1.
    let second = article(&keys, "deleted by id", 2);
    publish(&nodes[0], &[&second, &deletion(&keys, &second)]).await;
    // Each half deletes an event that both have, and an event that only the other half will have.
    let (here, there) = (note(&keys, "in the first half"), note(&keys, "in the second half"));
    publish(&nodes[1], &[&deletion(&keys, &before[0]), &deletion(&keys, &there), &here]).await;
    publish(&nodes[2], &[&deletion(&keys, &before[1]), &deletion(&keys, &here), &there]).await;
    // Competing versions of one key.
    let (low, high) = (article(&keys, "rivals", 5), article(&keys, "rivals", 6));
    publish(&nodes[0], &[&low]).await;
    publish(&nodes[3], &[&high]).await;
    // A node that was stopped meanwhile catches up, too.
    let mut nodes = nodes;
    nodes[3].kill();
    let mut live: Vec<Event> = Vec::new();
    for number in 0.. {
        let node = &nodes[number % 3];
        live.push(note(&keys, &format!("apart {number}")));
        publish(node, &[&live[number]]).await;
        if apart.elapsed() > Duration::from_secs(60) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_ne!(effective(&nodes[0]), effective(&nodes[2]), "they were apart");
    namespace::heal(&ADDRESSES[..2], &ADDRESSES[2..]);
    nodes[3].start_again();

    let is_gone = |set: &BTreeSet<String>| {
        [&first, &second, &before[0], &before[1], &here, &there, &low].iter().all(|event| !has(set, event))
    };
    let set = the_same(&nodes, is_gone).await;
    assert!(before[2..].iter().chain(&live).chain([&high]).all(|event| has(&set, event)), "nothing is lost");
    assert_eq!(set.len(), 18 + live.len() + 1 + 5, "and the requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_events_reach_all_nodes_though_one_is_killed() {
    // G-2, G-3, G-7
    const EACH: usize = 3_334;
    const PER_SECOND: f64 = 500.0 / 3.0;
    let mut nodes: [Node; 3] = mesh(OFTEN).await;
    let made: Vec<Vec<Event>> = (0..3)
        .map(|node| {
            let keys = Keys::generate();
            (0..EACH).map(|number| note(&keys, &format!("{node} {number}"))).collect()
        })
        .collect();
    let began = Instant::now();
    let publishing: Vec<_> = nodes
        .iter()
        .zip(&made)
        .map(|(node, events)| {
            let (url, events) = (node.url(), events.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(&url).await;
                for (number, event) in events.iter().enumerate() {
                    let due = Duration::from_secs_f64(number as f64 / PER_SECOND);
                    tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
                    assert_eq!(client.publish(event).await, (true, String::new()));
                }
            })
        })
        .collect();
    for one in publishing {
        one.await.unwrap();
    }
    println!("published in {:?}", began.elapsed());
    // The node may not have received everything when it is killed; it restarts from its disk.
    nodes[2].kill();
    nodes[2].start_again();
    let all: BTreeSet<String> = made.iter().flatten().map(|event| event.id.to_hex()).collect();
    the_same(&nodes, |set| *set == all).await;
    println!("everywhere after {:?}", began.elapsed());
    for node in &nodes[..2] {
        let sent = node.figure("kukuri_gossip_sent_total", "");
        assert!(sent <= EACH as u64, "each broadcasts its own, once: {sent}");
        println!("{sent} sent, {} by catch-up", node.figure("kukuri_catchup_items_total", "in"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_frozen_under_load_catches_up() {
    // G-6, G-7
    let nodes: [Node; 3] = mesh(OFTEN).await;
    let keys = Keys::generate();
    nodes[2].signal(Signal::STOP);
    let frozen = Instant::now();
    let (mut first, mut second) = (nodes[0].client().await, nodes[1].client().await);
    let mut all = BTreeSet::new();
    for number in 0.. {
        let large = "x".repeat(if number % 100 == 0 { 90_000 } else { 2_000 });
        let (one, other) = (note(&keys, &format!("{number} {large}")), note(&keys, &format!("{number} again")));
        assert!(first.publish(&one).await.0 && second.publish(&other).await.0);
        all.extend([one.id.to_hex(), other.id.to_hex()]);
        if frozen.elapsed() > Duration::from_secs(60) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    nodes[2].signal(Signal::CONT);
    the_same(&nodes, |set| *set == all).await;
    for node in &nodes {
        assert_eq!(node.gossip()["state"], "running", "{}", node.gossip());
        println!("{} events, {} KiB, {}", all.len(), node.memory(), node.gossip());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_enabled_again_catches_up_unless_backfill_is_off() {
    // G-7, T-4, S-1
    const OTHER_TOPIC: &str = "kukuri:0202020202020202020202020202020202020202020202020202020202020202";
    let nodes: [Node; 2] = mesh(&format!("topics.open = false\n{OFTEN}")).await;
    let keys = Keys::generate();
    nodes[0].topic("enable", OTHER_TOPIC);
    nodes[1].topic("enable", OTHER_TOPIC);
    nodes[1].run(&["topic", "set", OTHER_TOPIC, "--backfill", "off"]).ok();
    nodes[1].topic("disable", OTHER_TOPIC);
    nodes[1].topic("disable", TOPIC);
    nodes[0].joined(OTHER_TOPIC, 0).await;
    nodes[0].joined(TOPIC, 0).await;
    let both =
        EventBuilder::text_note("both").tags([TOPIC, OTHER_TOPIC].map(Tag::hashtag)).sign_with_keys(&keys).unwrap();
    let missed = note(&keys, "missed");
    publish(&nodes[0], &[&both, &missed]).await;
    let given_up = async || nodes[0].figure("kukuri_gossip_not_sent_total", "no_neighbour") == 3;
    eventually("nobody was there to hear it", given_up).await;
    assert_eq!(effective(&nodes[1]), BTreeSet::new());

    nodes[1].topic("enable", OTHER_TOPIC);
    nodes[1].joined(OTHER_TOPIC, 1).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(effective(&nodes[1]), BTreeSet::new(), "its history is not wanted");
    nodes[1].topic("enable", TOPIC);
    the_same(&nodes, |set| set.len() == 2).await;
    // An event received through one of its topics is visible in both.
    for topic in [TOPIC, OTHER_TOPIC] {
        let seen = nodes[1].client().await.request("r", &[json!({ "#t": [topic] })]).await;
        assert!(seen.contains(&both.id.to_hex()), "{topic}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanently_refused_event_is_asked_for_once() {
    // G-7: a refused event leaves no trace in the store, so every reconciliation finds it missing.
    let denied = Keys::generate();
    let first = Node::start_with("required", OFTEN);
    first.topic("enable", TOPIC);
    let kept = note(&Keys::generate(), "kept");
    publish(&first, &[&note(&denied, "not wanted there"), &kept]).await;
    let peers = [format!("{:?}", first.peer())];
    let deny = format!("{OFTEN}deny.pubkeys = [\"{}\"]", denied.public_key().to_hex());
    let second = Node::start_with("required", &configured(&deny, &peers));
    second.topic("enable", TOPIC);
    eventually("one is taken", async || effective(&second) == BTreeSet::from([kept.id.to_hex()])).await;
    let sessions = || second.figure("kukuri_catchup_sessions_total", "finished");
    let some_more = async || {
        let before = sessions();
        eventually("they are compared again", async || sessions() >= before + 4).await;
    };
    // Both nodes may have begun a session at the same time.
    some_more().await;
    let given = || first.figure("kukuri_catchup_items_total", "out");
    let before = given();
    some_more().await;
    assert_eq!(given(), before, "it is not asked for again");
    assert_eq!(effective(&second), BTreeSet::from([kept.id.to_hex()]));
}
