//! Hostile peers: whatever a peer sends, the session ends with a clear reason, without a panic, and reveals only the set.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use kukuri_catchup::{Report, SessionEnd, Settings, initiate, respond};
use kukuri_domain::Event;
use kukuri_store::conformance::build::{OTHER_TOPIC, bare, note, topic};
use proptest::{
    collection::vec,
    prelude::any,
    test_runner::{Config, TestRunner},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::support::{PEER, SMALL, TestNode};

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PART: u8 = 3;
const CUT: u8 = 4;
const COMPARE: u8 = 5;
const OFFER: u8 = 6;
const WANT: u8 = 7;
const ITEMS: u8 = 8;
const ITEMS_END: u8 = 9;

/// A peer whose frames the test writes.
struct ManualPeer(DuplexStream);

impl ManualPeer {
    async fn send(&mut self, kind: u8, fields: &[&[u8]]) {
        let body = fields.concat();
        // The node may have closed the stream.
        let _ = self.0.write_all(&(body.len() as u32 + 1).to_be_bytes()).await;
        let _ = self.0.write_all(&[kind]).await;
        let _ = self.0.write_all(&body).await;
    }

    /// The type and the fields of the next message; `None` at the end.
    async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let length = self.0.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.0.read_exact(&mut frame).await.ok()?;
        Some((frame[0], frame[1..].to_vec()))
    }

    async fn say_hello(&mut self) {
        let topic = topic();
        self.send(HELLO, &[b"kukuri-catchup", &[1], &0u64.to_be_bytes(), topic.as_str().as_bytes()]).await;
        assert_eq!(self.receive().await.unwrap().0, WELCOME);
    }

    async fn answer_hello(&mut self) {
        assert_eq!(self.receive().await.unwrap().0, HELLO);
        self.send(WELCOME, &[&[1], &0u64.to_be_bytes()]).await;
    }
}

async fn node(events: &[&Event]) -> TestNode {
    let node = TestNode::new([topic()]);
    node.store_events(events).await;
    node
}

/// The node responds to a session that the test initiates.
async fn respond_to(node: &TestNode, by: impl AsyncFnOnce(ManualPeer)) -> Report {
    let (here, there) = duplex(1 << 20);
    tokio::join!(respond(there, PEER, node, &SMALL), by(ManualPeer(here))).0
}

/// The node initiates a session that the test answers.
async fn initiate_with(node: &TestNode, by: impl AsyncFnOnce(ManualPeer)) -> Report {
    let (here, there) = duplex(1 << 20);
    let topic = topic();
    tokio::join!(initiate(there, PEER, &topic, node, &SMALL), by(ManualPeer(here))).0
}

fn assert_misbehaved(report: &Report, why: &str) {
    assert!(matches!(report.end, SessionEnd::Misbehaved(said) if said.contains(why)), "{why}: {:?}", report.end);
}

#[test]
fn random_bytes_end_only_the_session() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let node = runtime.block_on(node(&[&note("one").build()]));
    let config = Config { cases: kukuri_testing::long::scaled(500), failure_persistence: None, ..Config::default() };
    let frames = vec((any::<u8>(), vec(any::<u8>(), 0..200)), 0..6);
    TestRunner::new(config)
        .run(&(any::<bool>(), any::<bool>(), frames), |(asks, greets, frames)| {
            runtime.block_on(async {
                let talk = async |mut peer: ManualPeer| {
                    match (greets, asks) {
                        (true, true) => peer.answer_hello().await,
                        (true, false) => peer.say_hello().await,
                        (false, _) => {}
                    }
                    for (kind, body) in &frames {
                        // Mostly known types, with random fields.
                        peer.send(if *kind < 200 { kind % 11 } else { *kind }, &[body]).await;
                    }
                    let _ = peer.0.shutdown().await;
                    while peer.receive().await.is_some() {}
                };
                let report = if asks { initiate_with(&node, talk).await } else { respond_to(&node, talk).await };
                assert!(!matches!(report.end, SessionEnd::Store(_)), "{:?}", report.end);
            });
            Ok(())
        })
        .unwrap();
    assert!(node.submitted.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_too_long_frame_is_refused_before_it_is_read() {
    let node = node(&[]).await;
    let report = respond_to(&node, async |mut peer| {
        peer.0.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
        while peer.receive().await.is_some() {}
    })
    .await;
    assert_misbehaved(&report, "a frame is too long");
}

#[tokio::test]
async fn wrong_version_or_magic_ends_the_session() {
    let node = node(&[]).await;
    let report = respond_to(&node, async |mut peer| {
        peer.send(HELLO, &[b"kukuri-catchup", &[2], &[0; 8]]).await;
        assert!(peer.receive().await.is_some(), "it answers with Bye");
    })
    .await;
    assert!(matches!(report.end, SessionEnd::OtherVersion(2)), "{:?}", report.end);
    let report = respond_to(&node, async |mut peer| peer.send(HELLO, &[b"GET / HTTP/1.1 and so on"]).await).await;
    assert_misbehaved(&report, "begin with a Hello");
}

#[tokio::test]
async fn only_items_of_the_set_are_sent() {
    let shared = note("shared").build();
    let protected = bare(4).tag(["t", OTHER_TOPIC]).build();
    let elsewhere = bare(1).tag(["t", OTHER_TOPIC]).build();
    let node = node(&[&shared, &protected, &elsewhere]).await;
    respond_to(&node, async |mut peer| {
        peer.say_hello().await;
        let ids = [&shared, &protected, &elsewhere].map(|event| *event.id.as_bytes()).concat();
        peer.send(WANT, &[&[0], &ids, &[7; 32]]).await;
        let (kind, items) = peer.receive().await.unwrap();
        assert_eq!(kind, ITEMS);
        assert_eq!(items.len(), 37 + shared.to_json().len(), "one item");
        assert_eq!(items[37..], shared.to_json());
        assert_eq!(peer.receive().await.unwrap().0, ITEMS_END);
    })
    .await;
}

/// Answers the first part with the id of `lacking`, and the Want that follows with these items.
async fn answer_want_with(node: &TestNode, lacking: &Event, items: Vec<(&[u8; 32], Vec<u8>)>) -> Report {
    initiate_with(node, async |mut peer| {
        peer.answer_hello().await;
        assert_eq!(peer.receive().await.unwrap().0, PART);
        // Version, to the end of time, a list of one id.
        peer.send(COMPARE, &[&[0x61, 0, 0, 2, 1], lacking.id.as_bytes()]).await;
        if peer.receive().await.is_none_or(|(kind, _)| kind != WANT) {
            return;
        }
        let items: Vec<Vec<u8>> = items
            .iter()
            .map(|(id, json)| [&[0][..], &id[..], &(json.len() as u32).to_be_bytes(), json].concat())
            .collect();
        peer.send(ITEMS, &[&items.concat()]).await;
        peer.send(ITEMS_END, &[]).await;
        while peer.receive().await.is_some() {}
    })
    .await
}

#[tokio::test]
async fn unwanted_events_and_events_of_other_topics_end_the_session() {
    let (wanted, other) = (note("wanted").build(), note("other").build());
    let elsewhere = bare(1).tag(["t", OTHER_TOPIC]).build();
    let json = |event: &Event| event.to_json().to_vec();
    let forged = |part: &str, other: &str| String::from_utf8(json(&wanted)).unwrap().replace(part, other).into_bytes();
    for (why, lacking, items) in [
        ("not asked for", &wanted, vec![(other.id.as_bytes(), json(&other))]),
        ("not asked for", &wanted, vec![(wanted.id.as_bytes(), json(&wanted)), (wanted.id.as_bytes(), json(&wanted))]),
        ("another event", &wanted, vec![(wanted.id.as_bytes(), json(&other))]),
        ("another event", &wanted, vec![(wanted.id.as_bytes(), forged("wanted", "forged"))]),
        ("no event", &wanted, vec![(wanted.id.as_bytes(), b"{}".to_vec())]),
        ("not of this topic", &elsewhere, vec![(elsewhere.id.as_bytes(), json(&elsewhere))]),
    ] {
        let node = node(&[]).await;
        assert_misbehaved(&answer_want_with(&node, lacking, items).await, why);
        assert!(node.submitted.lock().unwrap().is_empty(), "{why}: nothing was taken");
    }
    // A wrong signature is found by the node, not by the session.
    let node = node(&[]).await;
    let report =
        answer_want_with(&node, &wanted, vec![(wanted.id.as_bytes(), forged(&"0".repeat(128), &"1".repeat(128)))])
            .await;
    assert_misbehaved(&report, "not signed");
    assert_eq!(report.refused.get("invalid"), Some(&1));
}

#[tokio::test]
async fn an_event_is_submitted_as_this_node_writes_it() {
    let (wanted, node) = (note("wanted").build(), node(&[]).await);
    let padded = [&wanted.to_json()[..], &[b' '; 1_000]].concat();
    let report = answer_want_with(&node, &wanted, vec![(wanted.id.as_bytes(), padded)]).await;
    assert_eq!(report.events_in, 1, "{report:?}");
    assert_eq!(node.max_json_len.load(Relaxed), wanted.to_json().len());
}

#[tokio::test]
async fn an_endless_comparison_or_a_repeated_part_ends_the_session() {
    let empty = node(&[]).await;
    let report = initiate_with(&empty, async |mut peer| {
        peer.answer_hello().await;
        while let Some((kind, _)) = peer.receive().await {
            if kind == PART || kind == COMPARE {
                // Claims a difference in every answer.
                peer.send(COMPARE, &[&[0x61, 0, 0, 1], &[7; 16]]).await;
            }
        }
    })
    .await;
    assert_misbehaved(&report, "does not end");

    let report = initiate_with(&empty, async |mut peer| {
        peer.answer_hello().await;
        for _ in 0..2 {
            assert_eq!(peer.receive().await.unwrap().0, PART);
            peer.send(CUT, &[&5u64.to_be_bytes(), &[7; 32]]).await;
        }
        while peer.receive().await.is_some() {}
    })
    .await;
    assert_misbehaved(&report, "no answer to a comparison");

    let report = respond_to(&empty, async |mut peer| {
        peer.say_hello().await;
        for _ in 0..2 {
            peer.send(PART, &[&[0, 0], &[0x61, 0, 0, 2, 0]]).await;
            assert!(peer.receive().await.is_some());
        }
    })
    .await;
    assert_misbehaved(&report, "compared before");
}

#[tokio::test]
async fn too_many_ids_end_the_session() {
    let node = node(&[]).await;
    for kind in [WANT, OFFER] {
        let settings = Settings { max_frame_bytes: 1 << 20, ..SMALL };
        let (here, there) = duplex(1 << 20);
        let mut peer = ManualPeer(here);
        let many = async {
            peer.say_hello().await;
            let ids = vec![3; 32 * 4_097];
            peer.send(kind, &[if kind == WANT { &[0][..] } else { &[] }, &ids]).await;
            while peer.receive().await.is_some() {}
        };
        let (report, ()) = tokio::join!(respond(there, PEER, &node, &settings), many);
        assert_misbehaved(&report, "too many ids");
    }
}

#[tokio::test]
async fn hints_do_not_pile_up_in_a_part_that_never_ends() {
    let node = node(&[]).await;
    let report = respond_to(&node, async |mut peer| {
        peer.say_hello().await;
        for number in 0..100_u8 {
            let id = [number; 32];
            peer.send(OFFER, &[&id]).await;
            assert_eq!(peer.receive().await.unwrap().0, WANT);
            // A hint of 60 kB, for a version that no request has deleted.
            let key = format!("30023:{}:{}", "ab".repeat(32), "x".repeat(60_000));
            let length = (key.len() as u32).to_be_bytes();
            peer.send(ITEMS, &[&[1], &id, &7u64.to_be_bytes(), &[8; 32], &length, key.as_bytes()]).await;
            peer.send(ITEMS_END, &[]).await;
        }
    })
    .await;
    assert!(report.hints_refused > 50, "they were decided on before the session broke: {report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_or_dripping_peer_times_out() {
    let node = node(&[]).await;
    let begun = tokio::time::Instant::now();
    let report = respond_to(&node, async |mut peer| {
        peer.say_hello().await;
        tokio::time::sleep(Duration::from_secs(300)).await;
    })
    .await;
    assert!(matches!(report.end, SessionEnd::PeerTimeout), "{:?}", report.end);
    let report = respond_to(&node, async |mut peer| {
        peer.say_hello().await;
        // A frame of 1,000 bytes, one byte every 5 seconds.
        let _ = peer.0.write_all(&1_000u32.to_be_bytes()).await;
        while peer.0.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    })
    .await;
    assert!(matches!(report.end, SessionEnd::PeerTimeout), "{:?}", report.end);
    assert!(begun.elapsed() < Duration::from_secs(400));
}
