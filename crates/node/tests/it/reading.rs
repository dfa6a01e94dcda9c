//! A real node over HTTP: search, changes of a topic, authentication.

use std::{
    io::{BufRead, BufReader},
    time::Duration,
};

use crate::support::{
    Node, TOPIC,
    events::{deletion, note},
};
use kukuri_testing::TIMEOUT;
use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_are_searched_and_a_topic_is_followed_over_http() {
    // C-1, W-8
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let (tokyo, gone) = (note(&keys, "東京タワー & tea"), note(&keys, "東京駅"));
    for event in [&tokyo, &gone, &deletion(&keys, &gone)] {
        assert!(client.publish(event).await.0);
    }
    let topic = TOPIC.replace(':', "%3A");
    // 東京
    let (status, answer) = node.get(&format!("/v1/search?topic={topic}&q=%E6%9D%B1%E4%BA%AC"));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["items"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["items"][0]["event"]["id"], tokyo.id.to_hex());
    assert!(answer["items"][0]["snippet"]["html"].as_str().unwrap().starts_with("<mark>東京</mark>タワー &amp;"));
    assert_eq!(node.get(&format!("/v1/search?topic={topic}&q=!!")).0, 400);
    assert_eq!(node.get("/v1/openapi.json").0, 200);

    let (status, changes) = node.get(&format!("/v1/topics/{topic}/changes?after=0"));
    assert_eq!(status, 200, "{changes}");
    let ops: Vec<_> = changes["items"].as_array().unwrap().iter().map(|change| change["op"].clone()).collect();
    assert_eq!(ops, [json!("upsert"), json!("delete"), json!("upsert")], "what is gone is told as gone: {changes}");

    // A stream delivers new events, and does not keep the node from stopping.
    let head = changes["head"].as_str().unwrap();
    let stream = node.ask(&format!("/v1/topics/{topic}/changes?after={head}"), "text/event-stream");
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let later = note(&keys, "later");
    assert!(client.publish(&later).await.0);
    let mut lines = BufReader::new(stream).lines();
    let found = lines.find(|line| line.as_ref().unwrap().contains(&later.id.to_hex()));
    assert!(found.is_some());
    let (status, took) = node.stop(Signal::TERM).await;
    assert!(status.code() == Some(0) && took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn required_authentication_closes_the_http_api() {
    // W-7
    let node = Node::start_with("required", "[auth]\nmode = \"required\"\n");
    let topic = TOPIC.replace(':', "%3A");
    for path in [format!("/v1/search?topic={topic}&q=tea"), format!("/v1/topics/{topic}/changes")] {
        let (status, answer) = node.get(&path);
        assert_eq!(status, 401, "{answer}");
    }
    assert_eq!(node.get("/v1/openapi.json").0, 200);
}
