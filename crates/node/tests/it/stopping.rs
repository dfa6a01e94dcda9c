//! The node is stopped, or killed, while clients publish: acknowledged events are there after the restart.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{Node, TOPIC, events::note};
use kukuri_testing::{Client, ConnectionError, TIMEOUT, eventually};
use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const PUBLISHERS: usize = 4;
const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 5;
/// Bound of a shutdown under any load.
const STOP: Duration = Duration::from_secs(20);

/// The answers that a publisher received until its connection ended.
#[derive(Default)]
struct Told {
    accepted: Vec<String>,
    refused: Vec<String>,
    close: Option<(u16, String)>,
}

/// Publishes without a pause until the connection ends, and counts accepted events.
async fn publish(mut client: Client, accepted: Arc<AtomicUsize>) -> Told {
    let keys = Keys::generate();
    let mut told = Told::default();
    let (mut waiting, mut open) = (0, true);
    loop {
        while open && waiting < IN_FLIGHT {
            let text = json!(["EVENT", note(&keys, "under load")]).to_string();
            // After a failure, answers that arrived before it can still be read.
            open = client.connection.send_text(&text).await.is_ok();
            waiting += 1;
        }
        match tokio::time::timeout(TIMEOUT, client.connection.receive()).await.expect("an answer or an end") {
            Ok(text) => {
                let message: Value = serde_json::from_slice(text).unwrap();
                if message[0] == "OK" {
                    waiting -= 1;
                    let id = message[1].as_str().unwrap().to_owned();
                    if message[2] == true {
                        told.accepted.push(id);
                        accepted.fetch_add(1, Ordering::Relaxed);
                    } else {
                        told.refused.push(message.to_string());
                    }
                }
            }
            Err(ConnectionError::Closed { code, reason, .. }) => (told.close, open) = (Some((code, reason)), false),
            Err(_) => return told,
        }
    }
}

/// Starts publishers, and waits until each has had events accepted.
async fn under_load(node: &Node, least: usize) -> Vec<JoinHandle<Told>> {
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut publishers = Vec::new();
    for _ in 0..PUBLISHERS {
        publishers.push(tokio::spawn(publish(node.client().await, Arc::clone(&accepted))));
    }
    eventually("events are accepted", async || accepted.load(Ordering::Relaxed) >= least).await;
    publishers
}

/// The ids that the node does not have.
async fn missing(node: &Node, ids: &[String]) -> Vec<String> {
    let mut client = node.client().await;
    let mut found = HashSet::new();
    for some in ids.chunks(200) {
        found.extend(client.request("all", &[json!({ "#t": [TOPIC], "ids": some })]).await);
    }
    ids.iter().filter(|id| !found.contains(*id)).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stopped_under_load_closes_connections_with_a_reason_and_keeps_accepted_events() {
    let mut node = Node::start("required");
    for signal in [Signal::TERM, Signal::INT] {
        let mut idle = node.client().await;
        idle.say(json!(["REQ", "live", { "#t": [TOPIC], "limit": 0 }])).await;
        // Receives live events until the connection ends.
        let idle = tokio::spawn(async move { idle.ended().await });
        let publishers = under_load(&node, 200).await;
        let (status, took) = node.stop(signal).await;
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(took < STOP, "{signal:?}: {took:?}");

        let mut accepted = Vec::new();
        for publisher in publishers {
            let told = publisher.await.unwrap();
            assert_eq!(told.refused, [""; 0], "nothing is refused for a stop");
            assert_closed_with_reason(told.close);
            accepted.extend(told.accepted);
        }
        let ended = idle.await.unwrap();
        assert_closed_with_reason(Some((ended.code, ended.reason)));
        node.start_again();
        assert_eq!(missing(&node, &accepted).await, [""; 0], "of {} after {signal:?}", accepted.len());
    }
}

fn assert_closed_with_reason(close: Option<(u16, String)>) {
    assert_eq!(close, Some((1001, "the relay is stopping".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_under_load_has_every_acknowledged_event() {
    let mut node = Node::start("required");
    let mut accepted = Vec::new();
    for round in 0..ROUNDS {
        // Later each time, so that the kill hits different steps.
        let publishers = under_load(&node, 100 + 150 * round).await;
        node.kill();
        for publisher in publishers {
            let told = publisher.await.unwrap();
            assert_eq!(told.refused, [""; 0]);
            accepted.extend(told.accepted);
        }
        node.start_again();
        assert_eq!(missing(&node, &accepted).await, [""; 0], "of {} in round {round}", accepted.len());
    }
}
