//! A real node read over HTTP: search, the changes of a topic, and by whose leave.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    io::{BufRead, BufReader},
    time::Duration,
};

use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::json;
use support::{
    Node, PATIENCE, TOPIC,
    client::{Client, deletion, note},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_are_searched_and_a_topic_is_followed_over_http() {
    // C-1, W-8
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = Client::connect(&node).await;
    let (tokyo, gone) = (note(&keys, "東京タワー & tea"), note(&keys, "東京駅"));
    for event in [&tokyo, &gone, &deletion(&keys, &gone)] {
        assert!(client.publish(event).await.0);
    }
    let topic = TOPIC.replace(':', "%3A");
    // 東京
    let (status, answer) = node.get(&format!("/v1/search?topic={topic}&q=%E6%9D%B1%E4%BA%AC"));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["hits"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["hits"][0]["event"]["id"], tokyo.id.to_hex());
    assert!(answer["hits"][0]["snippet"]["html"].as_str().unwrap().starts_with("<mark>東京</mark>タワー &amp;"));
    assert_eq!(node.get(&format!("/v1/search?topic={topic}&q=!!")).0, 400);
    assert_eq!(node.get("/v1/openapi.json").0, 200);

    let (status, changes) = node.get(&format!("/v1/topics/{topic}/changes?after=0"));
    assert_eq!(status, 200, "{changes}");
    let ops: Vec<_> = changes["changes"].as_array().unwrap().iter().map(|change| change["op"].clone()).collect();
    assert_eq!(ops, [json!("upsert"), json!("delete"), json!("upsert")], "what is gone is told as gone: {changes}");

    // A stream goes on with what comes, and does not keep a node from stopping.
    let head = changes["head"].as_u64().unwrap();
    let stream = node.ask(&format!("/v1/topics/{topic}/changes?after={head}"), "text/event-stream");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let later = note(&keys, "later");
    assert!(client.publish(&later).await.0);
    let mut lines = BufReader::new(stream).lines();
    let found = lines.find(|line| line.as_ref().unwrap().contains(&later.id.to_hex()));
    assert!(found.is_some());
    let (status, took) = node.stop(Signal::TERM).await;
    assert!(status.code() == Some(0) && took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_clients_must_authenticate_nothing_is_read_over_http() {
    // W-7
    let node = Node::start_with("required", "[auth]\nmode = \"required\"\n");
    let topic = TOPIC.replace(':', "%3A");
    for path in [format!("/v1/search?topic={topic}&q=tea"), format!("/v1/topics/{topic}/changes")] {
        let (status, answer) = node.get(&path);
        assert_eq!(status, 401, "{answer}");
    }
    assert_eq!(node.get("/v1/openapi.json").0, 200);
}
