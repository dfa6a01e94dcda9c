//! `kukuri-node service` on a real node and without one, with the search index as the service.

use kukuri_testing::eventually;
use nostr_sdk::Keys;
use serde_json::{Value, json};

use crate::support::{Node, TOPIC, events::note};

fn status(node: &Node) -> Value {
    serde_json::from_str(&node.run(&["service", "status", "index-v1", "--json"]).ok()).unwrap()
}

async fn publish(node: &Node, text: &str) {
    let mut client = node.client().await;
    assert_eq!(client.publish(&note(&Keys::generate(), text)).await, (true, String::new()));
}

async fn found(node: &Node) -> usize {
    let filter = json!({ "#t": [TOPIC], "search": "lantern", "limit": 500 });
    node.client().await.request("r", &[filter]).await.len()
}

#[tokio::test]
async fn paused_service_stays_paused_across_restarts_and_loses_nothing() {
    // O-6, O-8
    let mut node = Node::start("required");
    publish(&node, "lantern 1").await;
    assert_eq!(node.run(&["service", "verify", "index-v1"]).ok(), "1 documents compared, 0 differences\n");
    let paused = node.run(&["service", "pause", "index-v1"]).ok();
    assert_eq!(paused, "index-v1 is paused; kukuri-node service resume index-v1 ends the pause\n");
    publish(&node, "lantern 2").await;
    let is_paused = |status: &Value, backlog: u64| {
        status["state"] == "paused" && status["backlog"] == backlog && status["figures"]["documents"] == 1
    };
    eventually("the backlog is reported", async || is_paused(&status(&node), 1)).await;
    assert!(node.http_text("/healthz").contains("paused"));

    node.kill();
    let at_rest = status(&node);
    assert_eq!((&at_rest["state"], &at_rest["backlog"]), (&json!("not_running"), &json!(1)));
    assert!(at_rest["paused_since"].is_u64(), "{at_rest}");
    node.start_again();
    publish(&node, "lantern 3").await;
    eventually("the service is still paused", async || is_paused(&status(&node), 2)).await;
    assert_eq!(found(&node).await, 3, "posts that are not indexed yet are found");
    let refused = node.run(&["service", "verify", "index-v1"]).refusal();
    assert!(refused.contains("index-v1 does not follow the outbox"), "{refused}");

    assert_eq!(node.run(&["service", "resume", "index-v1"]).ok(), "index-v1 is resumed\n");
    assert_eq!(node.run(&["service", "verify", "index-v1"]).ok(), "3 documents compared, 0 differences\n");
    let list = node.run(&["service", "list"]).ok();
    assert!(list.lines().any(|line| line.starts_with("index-v1  following")), "{list}");
    let list: Value = serde_json::from_str(&node.run(&["service", "list", "--json"]).ok()).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["paused_since"]), (&json!("index-v1"), &Value::Null));
}

#[tokio::test]
async fn service_commands_work_without_a_node() {
    let mut node = Node::start("required");
    publish(&node, "lantern 1").await;
    node.run(&["service", "verify", "index-v1"]).ok();
    node.kill();
    node.run(&["service", "pause", "index-v1"]).ok();
    let list = node.run(&["service", "list"]).ok();
    assert!(list.lines().any(|line| line.starts_with("index-v1  not running, paused")), "{list}");
    let offsets = node.run(&["outbox", "offsets"]).ok();
    assert_eq!(offsets.lines().count(), 2, "the pause flag is not a consumer: {offsets}");
    node.start_again();
    eventually("the service is paused", async || status(&node)["state"] == "paused").await;
    node.kill();
    node.run(&["service", "resume", "index-v1"]).ok();
    assert_eq!(status(&node)["paused_since"], Value::Null);
    node.run(&["service", "pause", "index-v1"]).ok();
    let rebuilt = node.run(&["service", "rebuild", "index-v1"]).ok();
    assert!(rebuilt.starts_with("index-v1 is rebuilt: documents 1, size "), "{rebuilt}");
    assert_eq!(status(&node)["paused_since"], Value::Null, "a rebuild ends a pause");
    assert_eq!(node.run(&["service", "verify", "index-v1"]).ok(), "1 documents compared, 0 differences\n");
}

#[tokio::test]
async fn unknown_service_is_refused_in_one_line_with_all_names() {
    let mut node = Node::start("required");
    for round in ["on a running node", "without one"] {
        for command in ["status", "pause", "resume", "rebuild", "verify"] {
            let refused = node.run(&["service", command, "index"]).refusal();
            assert_eq!(
                refused, "kukuri-node: no service is called `index`; the services are: index-v1\n",
                "{command} {round}"
            );
        }
        if round == "on a running node" {
            node.kill();
        }
    }
    std::fs::write(node.config_file(), "[search]\nindex = \"off\"\n").unwrap();
    let off = node.run(&["service", "pause", "index-v1"]).refusal();
    assert_eq!(off, "kukuri-node: index-v1 does not run: search.index is off\n");
}
