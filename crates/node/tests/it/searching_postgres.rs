//! Search on Postgres: one index for all nodes on a database; one node at a time runs the index service.

use std::collections::BTreeSet;

use crate::database;
use crate::support::{
    Node, TOPIC,
    events::{deletion, note},
};
use kukuri_testing::eventually;
use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::json;

async fn found(node: &Node, words: &str) -> BTreeSet<String> {
    let mut client = node.client().await;
    client.request("r", &[json!({ "#t": [TOPIC], "search": words, "limit": 500 })]).await.into_iter().collect()
}

async fn publish(node: &Node, keys: &Keys, text: &str) -> nostr_sdk::Event {
    let event = note(keys, text);
    assert_eq!(node.client().await.publish(&event).await, (true, String::new()));
    event
}

fn runs_index(node: &Node) -> bool {
    node.run(&["--config", node.config_file().to_str().unwrap(), "index", "status"]).ok().contains("following")
}

fn index(node: &Node, command: &str) -> crate::support::Answer {
    node.run(&["--config", node.config_file().to_str().unwrap(), "index", command])
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_of_one_node_are_found_on_the_other_whichever_runs_the_index_service() {
    // C-1, O-6
    let database = database::Database::new().await;
    let configuration = format!("store = {:?}\n", database.url());
    let mut one = Node::start_with("required", &configuration);
    let mut other = Node::start_with("required", &configuration);
    let keys = Keys::generate();
    let first = publish(&one, &keys, "東京の朝").await;
    let second = publish(&other, &keys, "朝の市場").await;
    let both = BTreeSet::from([first.id.to_hex(), second.id.to_hex()]);
    for node in [&one, &other] {
        eventually("both are found", async || found(node, "朝").await == both).await;
    }
    assert!(runs_index(&one) && !runs_index(&other), "one of them runs it");
    for node in [&one, &other] {
        assert_eq!(index(node, "verify").ok(), "2 documents compared, 0 differences\n");
    }

    // The node that runs the service stops: the other takes over.
    one.stop(Signal::TERM).await;
    eventually("the other runs it", async || runs_index(&other)).await;
    assert!(other.client().await.publish(&deletion(&keys, &first)).await.0);
    let third = publish(&other, &keys, "朝のラーメン").await;
    let left = BTreeSet::from([second.id.to_hex(), third.id.to_hex()]);
    eventually("the deleted post is gone", async || found(&other, "朝").await == left).await;
    one.start_again();
    assert_eq!(found(&one, "朝").await, left);
    assert!(index(&other, "rebuild").ok().contains("index-v1 is rebuilt: documents 2"));
    for node in [&one, &other] {
        assert_eq!(index(node, "verify").ok(), "2 documents compared, 0 differences\n");
        assert_eq!(found(node, "朝").await, left, "each once, none missing");
    }
    let refused = index(&one, "rebuild").refusal();
    assert!(refused.contains("another node on this database runs index-v1"), "{refused}");

    // The database holds another store now: search never shows the old documents.
    for node in [&mut one, &mut other] {
        node.stop(Signal::TERM).await;
    }
    database::run(&database.url(), "DROP SCHEMA cn_relay CASCADE").await.unwrap();
    one.start_again();
    let new = publish(&one, &keys, "新しい朝").await;
    eventually("the new post is found", async || found(&one, "朝").await == BTreeSet::from([new.id.to_hex()])).await;
    assert_eq!(index(&one, "verify").ok(), "1 documents compared, 0 differences\n");
}

#[tokio::test]
async fn missing_index_tables_are_reported_in_one_line() {
    let database = database::Database::new().await;
    let on = format!("store = {:?}\n", database.url());
    let node = Node::place_for("required", &format!("{on}[search]\nindex = \"off\"\n"));
    let config = node.config_file();
    let config = config.to_str().unwrap();
    node.run(&["--config", config, "migrate"]).ok();
    std::fs::write(config, format!("{on}[postgres]\nmigrate = \"off\"\n")).unwrap();
    let refused = node.run(&["--config", config, "--listen", "127.0.0.1:0"]).refusal();
    assert!(refused.contains("can't open the search index") && refused.lines().count() == 1, "{refused}");
    let migrated = node.run(&["--config", config, "migrate"]).ok();
    assert!(migrated.contains("search: tables made, version 1"), "{migrated}");
}
