//! Live delivery under load: nothing is missed, nothing comes twice, and a slow reader costs nobody else anything.
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{collections::BTreeMap, time::Duration};

use futures_util::StreamExt;
use kukuri_domain::topic::TopicsMode;
use serde_json::json;
use support::{Client, TOPIC, TestRelay, as_json, note};
use tokio_tungstenite::tungstenite::Message;

const EVENTS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_seam_between_stored_and_live_events_has_no_gap_and_no_repeat() {
    // W-2
    let relay = TestRelay::start(TopicsMode::Required).await;
    let events: Vec<_> = (0..EVENTS).map(|n| note(1, &format!("event {n}")).sign()).collect();
    let all: Vec<_> = events.iter().map(|event| event.id.to_string()).collect();
    let mut writer = relay.client().await;
    let writing = tokio::spawn(async move {
        for event in &events {
            writer.say(json!(["EVENT", as_json(event)])).await;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        for _ in &events {
            assert_eq!(writer.hear().await[2], true);
        }
    });
    let mut readers = Vec::new();
    for reader in 0..8u64 {
        let mut client = relay.client().await;
        readers.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(reader * 20)).await;
            // Subscriptions that were opened and closed before leave nothing behind.
            for _ in 0..reader {
                client.say(json!(["REQ", "s", {"#t": [TOPIC]}])).await;
                client.say(json!(["CLOSE", "s"])).await;
            }
            collect(client).await
        }));
    }
    writing.await.unwrap();
    for reader in readers {
        let seen = reader.await.unwrap();
        assert_eq!(seen.len(), EVENTS, "nothing is missing");
        assert!(seen.values().all(|times| *times == 1), "nothing came twice");
        assert!(all.iter().all(|id| seen.contains_key(id)));
    }
}

/// Subscribes anew and counts how often each event comes, until all have come.
async fn collect(mut client: Client) -> BTreeMap<String, usize> {
    client.say(json!(["REQ", "last", {"#t": [TOPIC], "limit": 500}])).await;
    let mut seen = BTreeMap::new();
    while seen.len() < EVENTS {
        let heard = client.hear().await;
        if heard[0] == "EVENT" && heard[1] == "last" {
            *seen.entry(heard[2]["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_closed_with_a_reason_and_the_others_receive_everything() {
    // W-5
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut slow = relay.client().await;
    slow.request("s", &[json!({"#t": [TOPIC]})]).await;
    let mut quick = relay.client().await;
    quick.request("s", &[json!({"#t": [TOPIC]})]).await;
    let mut writer = relay.client().await;
    let text = "x".repeat(60_000);
    let count = 300;
    let writing = tokio::spawn(async move {
        for n in 0..count {
            assert!(writer.publish(&note(1, &format!("{n} {text}")).sign()).await.0);
        }
    });
    for _ in 0..count {
        assert_eq!(quick.hear().await[0], "EVENT");
    }
    writing.await.unwrap();

    let mut reason = None;
    while let Some(Ok(message)) = slow.socket.next().await {
        if let Message::Close(frame) = message {
            reason = frame.map(|frame| frame.reason.to_string());
        }
    }
    assert!(reason.is_some_and(|reason| reason.starts_with("too slow")), "it is told why");
}
