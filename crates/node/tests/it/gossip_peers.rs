//! Peers that misbehave: the node drops and counts refused messages, and serves other peers as before.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::support::raw::{NODES_TAKE, RawPeer};
use crate::support::{
    Node, TOPIC,
    events::{deletion, note, topic},
    mesh::{A_WHILE, configured, listener, mesh},
};
use kukuri_testing::{Client, TIMEOUT, eventually};
use nostr_sdk::{Event, EventBuilder, JsonUtil, Keys, Kind, Tag, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};

const REFUSED: &str = "kukuri_gossip_refused_connections_total";
const OTHER_TOPIC: &str = "kukuri:0202020202020202020202020202020202020202020202020202020202020202";

/// A single node with the topic enabled.
fn node_with(configuration: &str) -> Node {
    let node = Node::start_with("required", configuration);
    node.topic("enable", TOPIC);
    node
}

fn made(keys: &Keys, kind: u16, content: &str, tags: &[&[&str]]) -> Event {
    let tags = tags.iter().map(|tag| Tag::parse(tag.iter().copied()).unwrap());
    EventBuilder::new(Kind::from(kind), content).tag(topic()).tags(tags).sign_with_keys(keys).unwrap()
}

/// The JSON with a part of it changed.
fn forged(event: &Event, key: &str, value: Value) -> String {
    let mut json: Value = serde_json::from_str(&event.as_json()).unwrap();
    json[key] = value;
    json.to_string()
}

async fn next_id(client: &mut Client) -> String {
    let heard = client.hear().await;
    assert_eq!(heard[0], "EVENT", "{heard}");
    heard[2]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_messages_are_dropped_and_counted_and_others_are_live() {
    // G-4, E-1, E-6, E-8, E-10
    let node = node_with("[limits]\nevent_bytes = \"8KiB\"");
    let mut client = listener(&node, TOPIC).await;
    let peer = RawPeer::new(&node.peer(), NODES_TAKE).await;
    let topic = peer.join(TOPIC).await;
    let keys = Keys::generate();
    let elsewhere = EventBuilder::text_note("x").tag(Tag::hashtag(OTHER_TOPIC)).sign_with_keys(&keys).unwrap();
    let nowhere = EventBuilder::text_note("x").sign_with_keys(&keys).unwrap();
    let good = note(&keys, "good");
    let signature = Value::from("0".repeat(128));
    for (reason, messages) in [
        ("wrong_topic", vec![elsewhere.as_json(), nowhere.as_json()]),
        ("p2p_only", [39_020, 39_021, 39_022].map(|kind| made(&keys, kind, "", &[&["d", "x"]]).as_json()).to_vec()),
        ("protected", vec![made(&keys, 1, "", &[&["-"]]).as_json()]),
        ("private", [4, 1_059, 21_059].map(|kind| made(&keys, kind, "", &[]).as_json()).to_vec()),
        ("oversize", vec![note(&keys, &"x".repeat(10_000)).as_json()]),
        ("signature", vec![forged(&good, "sig", signature), forged(&good, "content", "bad".into())]),
        ("malformed", vec!["{".to_owned(), "{\"id\":1}".to_owned(), "\u{1}short".to_owned()]),
        ("version", vec!["\u{9}anything".to_owned(), "[\"EVENT\"]".to_owned()]),
    ] {
        let before = node.dropped();
        for message in &messages {
            topic.say(message.clone()).await;
        }
        let mut expected: BTreeMap<String, u64> = before;
        *expected.entry(reason.to_owned()).or_default() += messages.len() as u64;
        eventually(&format!("{expected:?}"), || async { node.dropped() == expected }).await;
    }
    topic.say(good.as_json()).await;
    assert_eq!(next_id(&mut client).await, good.id.to_hex(), "nothing came before it");
    // Other bytes of the same event.
    topic.say(good.as_json().replacen('{', "{ ", 1)).await;
    eventually("a repeat", || async { node.dropped().get("repeat") == Some(&1) }).await;
    assert_eq!(node.figure("kukuri_gossip_sent_total", ""), 0, "nothing that came over gossip is broadcast");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_events_are_broadcast_as_bare_json_unless_private_or_protected() {
    // G-2, E-5, E-10
    let node = node_with("");
    let peer = RawPeer::new(&node.peer(), NODES_TAKE).await;
    let mut topic = peer.join(TOPIC).await;
    node.joined(TOPIC, 1).await;
    let keys = Keys::generate();
    let mut client = node.client().await;
    let imported = node.place("import.jsonl");
    std::fs::write(&imported, format!("{}\n", note(&keys, "from a file").as_json())).unwrap();
    node.run(&["import", imported.to_str().unwrap()]).ok();
    let private = made(&keys, 4, "", &[&["p", &keys.public_key().to_hex()]]);
    let (regular, ephemeral) = (note(&keys, "to all"), made(&keys, 20_001, "", &[]));
    for event in [&private, &regular, &ephemeral] {
        assert!(client.publish(event).await.0);
    }
    let heard = [topic.hear().await, topic.hear().await].map(|json| Event::from_json(&json).unwrap().id);
    assert!(heard.contains(&regular.id) && heard.contains(&ephemeral.id), "{heard:?}");
    eventually("both are counted", || async { node.figure("kukuri_gossip_sent_total", "") >= 2 }).await;
    assert_eq!(node.figure("kukuri_gossip_sent_total", ""), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_too_large_to_broadcast_is_announced_and_fetched() {
    // G-2, G-3, E-5
    let nodes: [Node; 3] = mesh("").await;
    let keys = Keys::generate();
    let mut listeners = Vec::new();
    for node in &nodes[1..] {
        listeners.push(listener(node, TOPIC).await);
    }
    let mut client = nodes[0].client().await;
    let text = "x".repeat(90_000);
    for large in [note(&keys, &text), made(&keys, 20_001, &text, &[])] {
        assert!(client.publish(&large).await.0);
        for listener in &mut listeners {
            assert_eq!(next_id(listener).await, large.id.to_hex());
        }
    }
    let announced = || nodes[0].figure("kukuri_gossip_sent_total", "announcement");
    eventually("both are counted", || async { announced() >= 2 }).await;
    assert_eq!(announced(), 2);
    // A peer announces an event that it does not have: the fetch fails.
    let peer = RawPeer::new(&nodes[1].peer(), NODES_TAKE).await;
    peer.join(TOPIC).await.say([&[1; 1][..], &[7; 32]].concat()).await;
    eventually("it could not be fetched", || async { nodes[1].dropped().contains_key("not_fetched") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_announced_event_is_neither_stored_nor_served() {
    // G-3, E-1, D-10
    let node = node_with("");
    node.topic("enable", OTHER_TOPIC);
    let mut listener = listener(&node, OTHER_TOPIC).await;
    let peer = RawPeer::new(&node.peer(), NODES_TAKE).await;
    // Gossip delivers identical messages once per topic.
    let (first, second) = (peer.join(TOPIC).await, peer.join(OTHER_TOPIC).await);
    let keys = Keys::generate();
    let event = made(&keys, 1, "true", &[&["t", OTHER_TOPIC]]);
    let announcement = [&[1][..], event.id.as_bytes()].concat();
    peer.gives.set(forged(&event, "content", "forged".into()));
    first.say(announcement.clone()).await;
    eventually("it is found out", || async { node.dropped().get("signature") == Some(&1) }).await;
    assert_eq!(peer.fetch(event.id.as_bytes()).await, b"");
    peer.gives.set(event.as_json());
    second.say(announcement).await;
    assert_eq!(next_id(&mut listener).await, event.id.to_hex(), "it is asked for again");
    let given = peer.fetch(event.id.as_bytes()).await;
    assert_eq!(Event::from_json(&given).unwrap(), event);
    assert!(node.client().await.publish(&deletion(&keys, &event)).await.0);
    assert_eq!(peer.fetch(event.id.as_bytes()).await, b"", "it is given to nobody when it is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_event_does_not_block_the_true_one() {
    // G-7, D-10
    let node = node_with("limits.created_at_ahead = \"5s\"");
    let peer = RawPeer::new(&node.peer(), NODES_TAKE).await;
    let keys = Keys::generate();
    let (kept, gone) = (note(&keys, "kept"), note(&keys, "gone"));
    let mut client = node.client().await;
    assert!(client.publish(&gone).await.0);
    let request = deletion(&keys, &gone);
    let forgeries = [
        ("sig", Value::from("1".repeat(128))),
        ("content", "forged".into()),
        ("tags", json!([["t", TOPIC], ["e", gone.id.to_hex()], ["expiration", "1"]])),
    ];
    for event in [&kept, &request] {
        for (key, value) in &forgeries {
            let mut session = peer.catch_up(TOPIC).await;
            assert!(session.offer(event.id.as_bytes()).await, "{key}");
            assert!(!session.give(event.id.as_bytes(), &forged(event, key, value.clone())).await, "{key}");
        }
        let mut session = peer.catch_up(TOPIC).await;
        assert!(session.offer(event.id.as_bytes()).await, "it is asked for again");
        assert!(session.give(event.id.as_bytes(), &event.as_json()).await);
    }
    let stored = client.request("r", &[json!({ "#t": [TOPIC] })]).await;
    assert!(stored.contains(&kept.id.to_hex()) && stored.contains(&request.id.to_hex()), "{stored:?}");
    assert!(!stored.contains(&gone.id.to_hex()));
    let misbehaved = || node.figure("kukuri_catchup_sessions_total", "misbehaved");
    eventually("each forgery is counted", || async { misbehaved() == 6 }).await;

    // An event too far in the future is accepted once its time has come.
    let early = EventBuilder::text_note("early").tag(topic()).custom_created_at(Timestamp::now() + 15);
    let early = early.sign_with_keys(&keys).unwrap();
    eventually("it is taken", || async {
        let mut session = peer.catch_up(TOPIC).await;
        if session.offer(early.id.as_bytes()).await {
            assert!(session.give(early.id.as_bytes(), &early.as_json()).await, "nobody has misbehaved");
        }
        node.client().await.request("r", &[json!({ "#t": [TOPIC] })]).await.contains(&early.id.to_hex())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_with_many_open_requests_leaves_permits_for_others() {
    // G-6
    let node = node_with("");
    let event = note(&Keys::generate(), "asked for");
    assert!(node.client().await.publish(&event).await.0);
    let (slow, other) = (RawPeer::new(&node.peer(), NODES_TAKE).await, RawPeer::new(&node.peer(), NODES_TAKE).await);
    let held = slow.begin_fetching(96).await;
    let given = other.fetch(event.id.as_bytes()).await;
    assert_eq!(Event::from_json(&given).unwrap(), event);
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_left_during_a_slow_catch_up_session() {
    // G-1
    let node = node_with("");
    let peer = RawPeer::new(&node.peer(), NODES_TAKE).await;
    peer.draws_out.begin();
    let mut topic = peer.join(TOPIC).await;
    eventually("it is compared", || async { peer.draws_out.begun() > 0 }).await;
    node.topic("disable", TOPIC);
    topic.is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooding_peer_is_rate_limited_and_others_are_served() {
    // G-6
    let node = node_with("[gossip]\npeer_messages_per_second = 50\n");
    node.topic("enable", OTHER_TOPIC);
    let mut client = listener(&node, OTHER_TOPIC).await;
    let (flooder, other) = (RawPeer::new(&node.peer(), NODES_TAKE).await, RawPeer::new(&node.peer(), NODES_TAKE).await);
    // Two topics: in one, the flooder might forward the other peer's messages, which would count as the flooder's.
    let (flood, topic) = (flooder.join(TOPIC).await, other.join(OTHER_TOPIC).await);
    let flooding = tokio::spawn(async move {
        for number in 0..5_000 {
            flood.say(format!("{{\"nonsense\":{number}}}")).await;
            if number % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        flood
    });
    let keys = Keys::generate();
    for number in 0..10 {
        let text = number.to_string();
        let event = EventBuilder::text_note(text).tag(Tag::hashtag(OTHER_TOPIC)).sign_with_keys(&keys).unwrap();
        topic.say(event.as_json()).await;
        assert_eq!(next_id(&mut client).await, event.id.to_hex());
    }
    let _flood = flooding.await.unwrap();
    eventually("most of it is dropped", || async {
        node.dropped().get("rate").is_some_and(|dropped| *dropped > 1_000)
    })
    .await;
    assert!(node.dropped().get("malformed").is_none_or(|taken| *taken < 2_000), "{:?}", node.dropped());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_policy_known_other_peers_are_refused() {
    // W-7: if clients must authenticate, peers must be known.
    let required = "auth.mode = \"required\"";
    let node = node_with(required);
    let other = Node::start_with("required", &configured(required, &[format!("{:?}", node.peer())]));
    other.topic("enable", TOPIC);
    eventually("it is refused and counted", || async { node.figure(REFUSED, "") > 0 }).await;
    assert_eq!(node.neighbours(TOPIC), Some(0));

    std::fs::write(node.config_file(), configured(required, &[format!("{:?}", other.peer())])).unwrap();
    node.signal(Signal::HUP);
    node.joined(TOPIC, 1).await;
    assert_eq!(node.gossip()["rebuilds"], 0, "a reload does not count as a stuck endpoint");
    let stranger = RawPeer::new(&node.peer(), NODES_TAKE).await;
    let before = node.figure(REFUSED, "");
    assert!(!stranger.is_let_in(TOPIC, A_WHILE * 12).await);
    eventually("the stranger is counted", || async { node.figure(REFUSED, "") > before }).await;
    assert_eq!(node.neighbours(TOPIC), Some(1), "the one that is known stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_node_backs_off() {
    let node = node_with("auth.mode = \"required\"");
    let other = Node::start_with("required", &configured("", &[format!("{:?}", node.peer())]));
    other.topic("enable", TOPIC);
    eventually("it is refused", || async { node.figure(REFUSED, "") > 0 }).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let refused = node.figure(REFUSED, "");
    println!("{refused} times in 15 s");
    assert!(refused < 9, "{refused} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_gossip_endpoint_is_replaced() {
    // A peer whose message limit is below ours makes iroh-gossip stop sending to that peer, and then to all peers.
    let node = node_with("");
    let other = Node::start_with("required", &configured("", &[format!("{:?}", node.peer())]));
    other.topic("enable", TOPIC);
    node.joined(TOPIC, 1).await;
    let narrow = RawPeer::new(&node.peer(), 4_096).await;
    let topic = narrow.join(TOPIC).await;
    node.joined(TOPIC, 2).await;
    let keys = Keys::generate();
    let mut client = node.client().await;
    let mut rebuilt = false;
    for number in 0..100 {
        for part in 0..20 {
            assert!(client.publish(&note(&keys, &format!("{number} {part} {}", "x".repeat(8_000)))).await.0);
        }
        rebuilt = node.gossip()["rebuilds"].as_u64().unwrap() > 0;
        if rebuilt {
            break;
        }
        tokio::time::sleep(A_WHILE).await;
    }
    assert!(rebuilt, "{}", node.gossip());
    drop(topic);
    narrow.leave().await;
    eventually("it runs again", || async { node.gossip()["state"] == "running" }).await;
    let peer_before = node.peer();
    assert!(node.run(&["gossip", "ticket"]).ok().contains(&peer_before), "the same key on the same port");
    let mut listener = listener(&other, TOPIC).await;
    let (end, mut published) = (Instant::now() + TIMEOUT, Vec::new());
    loop {
        let event = note(&keys, &format!("after {:?}", Instant::now()));
        assert!(client.publish(&event).await.0);
        published.push(event.id.to_hex());
        // Events published meanwhile may still arrive.
        let heard = async { while !published.contains(&next_id(&mut listener).await) {} };
        if tokio::time::timeout(A_WHILE * 4, heard).await.is_ok() {
            break;
        }
        assert!(Instant::now() < end, "it is heard again");
    }
}
