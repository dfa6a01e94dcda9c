//! Search on Postgres: one index for all nodes on a database, kept by one of them at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[path = "../../store-postgres/tests/support/mod.rs"]
mod database;
mod support;

use std::collections::BTreeSet;

use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::json;
use support::{
    Node, TOPIC,
    client::{Client, deletion, note},
    until,
};

async fn found(node: &Node, words: &str) -> BTreeSet<String> {
    let mut client = Client::connect(node).await;
    client.request(json!({ "#t": [TOPIC], "search": words, "limit": 500 })).await.into_iter().collect()
}

async fn publish(node: &Node, keys: &Keys, text: &str) -> nostr_sdk::Event {
    let event = note(keys, text);
    assert_eq!(Client::connect(node).await.publish(&event).await, (true, String::new()));
    event
}

fn is_kept_here(node: &Node) -> bool {
    node.run(&["--config", node.config_file().to_str().unwrap(), "index", "status"]).ok().contains("following")
}

fn index(node: &Node, command: &str) -> support::Answer {
    node.run(&["--config", node.config_file().to_str().unwrap(), "index", command])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_posted_on_one_node_is_found_on_the_other_whichever_of_them_keeps_the_index() {
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
        until("both are found", async || found(node, "朝").await == both).await;
    }
    assert!(is_kept_here(&one) && !is_kept_here(&other), "one of them keeps it");
    for node in [&one, &other] {
        assert_eq!(index(node, "verify").ok(), "2 documents compared, 0 differences\n");
    }

    // The one that keeps it stops: the other takes over.
    one.stop(Signal::TERM).await;
    until("the other keeps it", async || is_kept_here(&other)).await;
    assert!(Client::connect(&other).await.publish(&deletion(&keys, &first)).await.0);
    let third = publish(&other, &keys, "朝のラーメン").await;
    let left = BTreeSet::from([second.id.to_hex(), third.id.to_hex()]);
    until("what was deleted is gone", async || found(&other, "朝").await == left).await;
    one.start_again();
    assert_eq!(found(&one, "朝").await, left);
    assert!(index(&other, "rebuild").ok().contains("built anew: 2 documents"));
    for node in [&one, &other] {
        assert_eq!(index(node, "verify").ok(), "2 documents compared, 0 differences\n");
        assert_eq!(found(node, "朝").await, left, "nothing twice, nothing missing");
    }
    let refused = index(&one, "rebuild").refusal();
    assert!(refused.contains("another node on this database keeps the index"), "{refused}");

    // The events are of another store now: what is left of the index is of no use, and is not shown.
    for node in [&mut one, &mut other] {
        node.stop(Signal::TERM).await;
    }
    database::run(&database.url(), "DROP SCHEMA cn_relay CASCADE").await.unwrap();
    one.start_again();
    let anew = publish(&one, &keys, "新しい朝").await;
    until("what is new is found", async || found(&one, "朝").await == BTreeSet::from([anew.id.to_hex()])).await;
    assert_eq!(index(&one, "verify").ok(), "1 documents compared, 0 differences\n");
}

#[tokio::test]
async fn an_index_whose_tables_are_missing_is_told_in_one_line() {
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
