//! What the node tells of itself: signed events, on the relay and in the lists over HTTP (B-1 to B-5).

use std::fs;

use kukuri_testing::eventually;
use nostr_sdk::{Event, JsonUtil, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{database::Database, support::Node};

const NODES: &str = "/v1/bootstrap/nodes";
const COMMUNITY_NODE: &str = "/.well-known/kukuri/community-node.json";

fn configuration(name: &str, bootstrap: &str) -> String {
    format!(
        "public_url = 'wss://node.example'\n[relay]\nname = '{name}'\n[operator]\njurisdiction = 'JP'\n\
         [topics]\nopen = false\n[bootstrap]\n{bootstrap}\n"
    )
}

fn services(topic: &str) -> String {
    format!("/v1/bootstrap/topics/{topic}/services")
}

/// The events in a list, verified by another library.
fn events(node: &Node, path: &str) -> Vec<Event> {
    let (status, list) = node.get(path);
    assert_eq!(status, 200, "{list}");
    let read = |item: &Value| {
        let event = Event::from_json(item.to_string()).unwrap();
        event.verify().unwrap();
        event
    };
    list["items"].as_array().unwrap().iter().map(read).collect()
}

fn ids(node: &Node, path: &str) -> Vec<String> {
    let mut ids: Vec<_> = events(node, path).iter().map(|event| event.id.to_hex()).collect();
    ids.sort();
    ids
}

/// What a REQ for events of this kind in a topic finds.
async fn on_the_relay(node: &Node, kind: u16, topic: &str) -> Vec<String> {
    let mut found = node.client().await.request("r", &[json!({ "kinds": [kind], "#t": [topic] })]).await;
    found.sort();
    found
}

async fn reload(node: &Node, configuration: &str) {
    fs::write(node.config_file(), configuration).unwrap();
    node.signal(Signal::HUP);
}

/// Enables a topic, and waits until the node says that it serves it.
async fn enable(node: &Node, name: &str) {
    node.run(&["topic", "enable", name]).ok();
    eventually("the services of a topic", async || events(node, &services(name)).len() == 3).await;
}

#[tokio::test]
async fn node_tells_clients_of_itself_and_its_topics() {
    // B-1 to B-4
    let mut node = Node::start_with("required", &configuration("first", ""));
    eventually("the descriptor", async || events(&node, NODES).len() == 1).await;
    let descriptor = events(&node, NODES).remove(0);
    let content: Value = serde_json::from_str(&descriptor.content).unwrap();
    assert_eq!((&content["name"], &content["roles"]), (&json!("first"), &json!(["bootstrap", "relay", "index"])));
    assert_eq!(content["endpoints"], json!({ "http": "https://node.example", "ws": "wss://node.example" }));
    let (_, document) = node.get(COMMUNITY_NODE);
    assert_eq!(document["node_id"], descriptor.pubkey.to_hex());
    assert_eq!(document["capabilities"], json!(["bootstrap", "relay", "index", "gossip"]));
    assert_eq!(node.information()["self"], descriptor.pubkey.to_hex());
    assert_eq!(on_the_relay(&node, 39000, "kukuri:global").await, ids(&node, NODES));

    enable(&node, "tea").await;
    let tea = node.run(&["topic", "id", "tea"]).ok().trim().to_owned();
    let told = ids(&node, &services(&tea));
    assert_eq!((ids(&node, &services("TEA")), on_the_relay(&node, 39001, &tea).await), (told.clone(), told.clone()));

    let first = node.http_with(NODES, "");
    let etag = first.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_else(|| panic!("{first}"));
    let again = node.http_with(NODES, &format!("if-none-match: W/{etag}\r\n"));
    assert!(again.starts_with("HTTP/1.1 304 ") && again.ends_with("\r\n\r\n"), "{again}");
    assert!(again.contains(etag) && again.contains("cache-control: public, max-age=300"), "{again}");

    let before = ids(&node, NODES);
    node.stop(Signal::TERM).await;
    node.start_again();
    // What is looked at later is there, so all of it was looked at.
    enable(&node, "coffee").await;
    assert_eq!((ids(&node, NODES), ids(&node, &services("tea"))), (before.clone(), told.clone()), "after a restart");

    reload(&node, &configuration("second", "")).await;
    eventually("another descriptor", async || ids(&node, NODES) != before).await;
    assert!(events(&node, NODES)[0].content.contains("second"));
    assert_eq!(ids(&node, &services("tea")), told, "they say the same as before");

    node.run(&["topic", "disable", "tea"]).ok();
    eventually("the services are gone", async || events(&node, &services("tea")).is_empty()).await;
    let filter = json!({ "kinds": [39001], "#t": [tea] });
    let mut client = node.client().await;
    client.say(json!(["REQ", "r", filter])).await;
    let withdrawn = client.hear().await;
    let withdrawn = Event::from_json(withdrawn[2].to_string()).unwrap();
    let end = withdrawn.tags.expiration().copied().unwrap();
    assert!(end <= Timestamp::now() + 61, "{withdrawn:?}");
    node.run(&["topic", "enable", "tea"]).ok();
    eventually("the services are back", async || events(&node, &services("tea")).len() == 3).await;
}

#[tokio::test]
async fn node_takes_back_what_it_told_and_knows_other_nodes() {
    // B-1, B-3, B-5
    let node = Node::start_with("required", &configuration("first", ""));
    let other = Node::start_with("required", &configuration("other", ""));
    for one in [&node, &other] {
        eventually("the descriptor", async || events(one, NODES).len() == 1).await;
    }
    let descriptor = events(&other, NODES).remove(0);
    let file = node.place("other.jsonl");
    fs::write(&file, format!("{}\n", descriptor.as_json())).unwrap();
    node.run(&["import", file.to_str().unwrap()]).ok();
    assert_eq!(events(&node, NODES).len(), 1, "it is not listed");
    let known = format!("known = ['{}']", descriptor.pubkey.to_hex());
    reload(&node, &configuration("first", &known)).await;
    eventually("the other node", async || ids(&node, NODES).contains(&descriptor.id.to_hex())).await;
    assert_eq!(events(&node, NODES).len(), 2);

    reload(&node, &configuration("first", &format!("{known}\nauth = 'required'"))).await;
    eventually("the list is closed", async || events(&node, NODES).len() == 1).await;
    assert_ne!(ids(&node, NODES), [descriptor.id.to_hex()], "this node is shown");
    assert_eq!(node.get(&services("kukuri:global")).0, 401);
    assert_eq!(node.get(COMMUNITY_NODE).0, 200);

    reload(&node, &configuration("first", "publish = 'off'")).await;
    eventually("all is taken back", async || events(&node, NODES).is_empty()).await;
    eventually("the services too", async || events(&node, &services("kukuri:global")).is_empty()).await;
}

#[tokio::test]
async fn nodes_with_one_key_on_one_database_do_not_issue_in_turns() {
    // B-1
    let database = Database::new().await;
    let on_database = |name: &str| format!("store = '{}'\n{}", database.url(), configuration(name, ""));
    let first = Node::start_with("required", &on_database("first"));
    eventually("the descriptor", async || events(&first, NODES).len() == 1).await;
    enable(&first, "tea").await;
    let told = ids(&first, &services("tea"));
    let mut second = Node::place_for("required", &on_database("second"));
    fs::create_dir(second.place("data")).unwrap();
    fs::copy(first.place("data/node.key"), second.place("data/node.key")).unwrap();
    second.start_again();
    eventually("its descriptor", async || events(&first, NODES)[0].content.contains("second")).await;
    let descriptor = ids(&second, NODES);
    // What is looked at later is there, so all of it was looked at, by both.
    for (node, topic) in [(&first, "coffee"), (&second, "milk")] {
        enable(node, topic).await;
    }
    for node in [&first, &second] {
        assert_eq!((ids(node, NODES), ids(node, &services("tea"))), (descriptor.clone(), told.clone()));
    }
}
