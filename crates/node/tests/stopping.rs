//! The node is stopped, or killed, while clients publish: what was acknowledged is there when it starts again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{SinkExt, StreamExt};
use nostr_sdk::{Event, EventBuilder, Keys, Tag};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Node, PATIENCE, TOPIC, until};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

const PUBLISHERS: usize = 4;
const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 5;
/// A stop may take this long, however much is going on.
const STOP: Duration = Duration::from_secs(20);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What a publisher was told before its connection ended.
#[derive(Default)]
struct Told {
    accepted: Vec<String>,
    refused: Vec<String>,
    close: Option<CloseFrame>,
}

async fn connect(node: &Node) -> Socket {
    tokio_tungstenite::connect_async(node.url()).await.unwrap().0
}

fn note(keys: &Keys, content: &str) -> Event {
    EventBuilder::text_note(content).tag(Tag::hashtag(TOPIC)).sign_with_keys(keys).unwrap()
}

/// Publishes without a pause until the connection ends. The number of accepted events grows meanwhile.
async fn publish(mut socket: Socket, accepted: Arc<AtomicUsize>) -> Told {
    let keys = Keys::generate();
    let mut told = Told::default();
    let (mut waiting, mut open) = (0, true);
    loop {
        while open && waiting < IN_FLIGHT {
            let text = json!(["EVENT", note(&keys, "under load")]).to_string();
            // When it fails, what the relay said before it left can still be read.
            open = socket.send(Message::text(text)).await.is_ok();
            waiting += 1;
        }
        let heard = tokio::time::timeout(PATIENCE, socket.next()).await.expect("an answer or an end");
        match heard {
            Some(Ok(Message::Text(text))) => {
                let message: Value = serde_json::from_str(&text).unwrap();
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
            Some(Ok(Message::Close(frame))) => (told.close, open) = (frame, false),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return told,
        }
    }
}

/// Publishers at work, once each has surely been heard.
async fn under_load(node: &Node, least: usize) -> Vec<JoinHandle<Told>> {
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut publishers = Vec::new();
    for _ in 0..PUBLISHERS {
        publishers.push(tokio::spawn(publish(connect(node).await, Arc::clone(&accepted))));
    }
    until("events are accepted", async || accepted.load(Ordering::Relaxed) >= least).await;
    publishers
}

/// Those of the ids that the node does not have.
async fn missing(node: &Node, ids: &[String]) -> Vec<String> {
    let mut socket = connect(node).await;
    let mut found = HashSet::new();
    for some in ids.chunks(200) {
        let request = json!(["REQ", "all", { "#t": [TOPIC], "ids": some }]);
        socket.send(Message::text(request.to_string())).await.unwrap();
        loop {
            let heard = tokio::time::timeout(PATIENCE, socket.next()).await.expect("an answer").unwrap().unwrap();
            let Message::Text(text) = heard else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            match message[0].as_str().unwrap() {
                "EVENT" => found.insert(message[2]["id"].as_str().unwrap().to_owned()),
                "EOSE" => break,
                "AUTH" => continue,
                _ => panic!("{message}"),
            };
        }
    }
    ids.iter().filter(|id| !found.contains(*id)).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_asked_to_stop_under_load_says_so_and_keeps_what_it_accepted() {
    let mut node = Node::start("required");
    for signal in [Signal::TERM, Signal::INT] {
        let mut idle = connect(&node).await;
        idle.send(Message::text(json!(["REQ", "live", { "#t": [TOPIC], "limit": 0 }]).to_string())).await.unwrap();
        let idle = tokio::spawn(async move {
            // It hears live events, and goes on until the end.
            let mut close = None;
            while let Some(Ok(message)) = idle.next().await {
                if let Message::Close(frame) = message {
                    close = frame;
                }
            }
            close
        });
        let publishers = under_load(&node, 200).await;
        let (status, took) = node.stop(signal).await;
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(took < STOP, "{signal:?}: {took:?}");

        let mut accepted = Vec::new();
        for publisher in publishers {
            let told = publisher.await.unwrap();
            assert_eq!(told.refused, [""; 0], "nothing is refused for a stop");
            assert_leave(told.close);
            accepted.extend(told.accepted);
        }
        assert_leave(idle.await.unwrap());
        node.start_again();
        assert_eq!(missing(&node, &accepted).await, [""; 0], "of {} after {signal:?}", accepted.len());
    }
}

fn assert_leave(close: Option<CloseFrame>) {
    let close = close.expect("a close frame");
    assert_eq!((close.code, close.reason.as_str()), (CloseCode::Away, "the relay is stopping"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_under_load_has_everything_it_acknowledged() {
    let mut node = Node::start("required");
    let mut accepted = Vec::new();
    for round in 0..ROUNDS {
        // A little further in each time, so that the kill meets different moments.
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
