//! A peer may say anything: it gets one clear end, nothing that the topic's set does not hold, and no panic.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use kukuri_catchup::{End, Report, Settings, initiate, respond};
use kukuri_domain::Event;
use kukuri_store::conformance::build::{OTHER_TOPIC, bare, note, topic};
use proptest::{
    collection::vec,
    prelude::any,
    test_runner::{Config, TestRunner},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use support::{PEER, SMALL, TestNode};

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PART: u8 = 3;
const CUT: u8 = 4;
const COMPARE: u8 = 5;
const OFFER: u8 = 6;
const WANT: u8 = 7;
const ITEMS: u8 = 8;
const GIVEN: u8 = 9;

/// The other end, by hand.
struct Hand(DuplexStream);

impl Hand {
    async fn say(&mut self, kind: u8, fields: &[&[u8]]) {
        let body = fields.concat();
        // Whoever has had enough may hang up.
        let _ = self.0.write_all(&(body.len() as u32 + 1).to_be_bytes()).await;
        let _ = self.0.write_all(&[kind]).await;
        let _ = self.0.write_all(&body).await;
    }

    /// The kind of the next message and the rest of it; `None` at the end.
    async fn hear(&mut self) -> Option<(u8, Vec<u8>)> {
        let length = self.0.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.0.read_exact(&mut frame).await.ok()?;
        Some((frame[0], frame[1..].to_vec()))
    }

    async fn greet(&mut self) {
        let topic = topic();
        self.say(HELLO, &[b"kukuri-catchup", &[1], &0u64.to_be_bytes(), topic.as_str().as_bytes()]).await;
        assert_eq!(self.hear().await.unwrap().0, WELCOME);
    }

    async fn welcome(&mut self) {
        assert_eq!(self.hear().await.unwrap().0, HELLO);
        self.say(WELCOME, &[&[1], &0u64.to_be_bytes()]).await;
    }
}

async fn node(events: &[&Event]) -> TestNode {
    let node = TestNode::new([topic()]);
    node.hear(events).await;
    node
}

/// A node that is asked by hand.
async fn asked(node: &TestNode, by: impl AsyncFnOnce(Hand)) -> Report {
    let (here, there) = duplex(1 << 20);
    tokio::join!(respond(there, PEER, node, &SMALL), by(Hand(here))).0
}

/// A node that asks, answered by hand.
async fn asking(node: &TestNode, by: impl AsyncFnOnce(Hand)) -> Report {
    let (here, there) = duplex(1 << 20);
    let topic = topic();
    tokio::join!(initiate(there, PEER, &topic, node, &SMALL), by(Hand(here))).0
}

fn misbehaved(report: &Report, why: &str) {
    assert!(matches!(report.end, End::Misbehaved(said) if said.contains(why)), "{why}: {:?}", report.end);
}

#[test]
fn random_bytes_end_a_session_and_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let node = runtime.block_on(node(&[&note("one").build()]));
    let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
    let frames = vec((any::<u8>(), vec(any::<u8>(), 0..200)), 0..6);
    TestRunner::new(config)
        .run(&(any::<bool>(), any::<bool>(), frames), |(asks, greets, frames)| {
            runtime.block_on(async {
                let talk = async |mut hand: Hand| {
                    match (greets, asks) {
                        (true, true) => hand.welcome().await,
                        (true, false) => hand.greet().await,
                        (false, _) => {}
                    }
                    for (kind, body) in &frames {
                        // Mostly messages that there are, with anything in them.
                        hand.say(if *kind < 200 { kind % 11 } else { *kind }, &[body]).await;
                    }
                    let _ = hand.0.shutdown().await;
                    while hand.hear().await.is_some() {}
                };
                let report = if asks { asking(&node, talk).await } else { asked(&node, talk).await };
                assert!(!matches!(report.end, End::Store(_)), "{:?}", report.end);
            });
            Ok(())
        })
        .unwrap();
    assert!(node.taken.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_huge_length_is_refused_before_it_is_read() {
    let node = node(&[]).await;
    let report = asked(&node, async |mut hand| {
        hand.0.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
        while hand.hear().await.is_some() {}
    })
    .await;
    misbehaved(&report, "a frame is too long");
}

#[tokio::test]
async fn another_version_or_greeting_is_told_apart() {
    let node = node(&[]).await;
    let report = asked(&node, async |mut hand| {
        hand.say(HELLO, &[b"kukuri-catchup", &[2], &[0; 8]]).await;
        assert!(hand.hear().await.is_some(), "it is told");
    })
    .await;
    assert!(matches!(report.end, End::OtherVersion(2)), "{:?}", report.end);
    let report = asked(&node, async |mut hand| hand.say(HELLO, &[b"GET / HTTP/1.1 and so on"]).await).await;
    misbehaved(&report, "greeting");
}

#[tokio::test]
async fn only_what_is_in_the_set_is_given() {
    let shared = note("shared").build();
    let protected = bare(4).tag(["t", OTHER_TOPIC]).build();
    let elsewhere = bare(1).tag(["t", OTHER_TOPIC]).build();
    let node = node(&[&shared, &protected, &elsewhere]).await;
    asked(&node, async |mut hand| {
        hand.greet().await;
        let ids = [&shared, &protected, &elsewhere].map(|event| *event.id.as_bytes()).concat();
        hand.say(WANT, &[&[0], &ids, &[7; 32]]).await;
        let (kind, items) = hand.hear().await.unwrap();
        assert_eq!(kind, ITEMS);
        assert_eq!(items.len(), 37 + shared.to_json().len(), "one item");
        assert_eq!(items[37..], shared.to_json());
        assert_eq!(hand.hear().await.unwrap().0, GIVEN);
    })
    .await;
}

/// Answers a part with ids that the node lacks, then its question for them with these items.
async fn lure(node: &TestNode, lacking: &Event, items: Vec<(&[u8; 32], Vec<u8>)>) -> Report {
    asking(node, async |mut hand| {
        hand.welcome().await;
        assert_eq!(hand.hear().await.unwrap().0, PART);
        // Version, to the end of time, a list of one id.
        hand.say(COMPARE, &[&[0x61, 0, 0, 2, 1], lacking.id.as_bytes()]).await;
        if hand.hear().await.is_none_or(|(kind, _)| kind != WANT) {
            return;
        }
        let items: Vec<Vec<u8>> = items
            .iter()
            .map(|(id, json)| [&[0][..], &id[..], &(json.len() as u32).to_be_bytes(), json].concat())
            .collect();
        hand.say(ITEMS, &[&items.concat()]).await;
        hand.say(GIVEN, &[]).await;
        while hand.hear().await.is_some() {}
    })
    .await
}

#[tokio::test]
async fn events_that_were_not_asked_for_or_are_not_of_the_topic_end_the_session() {
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
        misbehaved(&lure(&node, lacking, items).await, why);
        assert!(node.taken.lock().unwrap().is_empty(), "{why}: nothing was taken");
    }
    // That nobody signed it shows when it is verified.
    let node = node(&[]).await;
    let report = lure(&node, &wanted, vec![(wanted.id.as_bytes(), forged(&"0".repeat(128), &"1".repeat(128)))]).await;
    misbehaved(&report, "not signed");
    assert_eq!(report.refused.get("invalid"), Some(&1));
}

#[tokio::test]
async fn an_event_is_taken_in_as_it_is_spelled_here() {
    let (wanted, node) = (note("wanted").build(), node(&[]).await);
    let padded = [&wanted.to_json()[..], &[b' '; 1_000]].concat();
    let report = lure(&node, &wanted, vec![(wanted.id.as_bytes(), padded)]).await;
    assert_eq!(report.events_in, 1, "{report:?}");
    assert_eq!(node.longest.load(Relaxed), wanted.to_json().len());
}

#[tokio::test]
async fn a_comparison_without_end_and_parts_that_go_back_are_noticed() {
    let empty = node(&[]).await;
    let report = asking(&empty, async |mut hand| {
        hand.welcome().await;
        while let Some((kind, _)) = hand.hear().await {
            if kind == PART || kind == COMPARE {
                // Something is different, it says, for ever.
                hand.say(COMPARE, &[&[0x61, 0, 0, 1], &[7; 16]]).await;
            }
        }
    })
    .await;
    misbehaved(&report, "no end");

    let report = asking(&empty, async |mut hand| {
        hand.welcome().await;
        for _ in 0..2 {
            assert_eq!(hand.hear().await.unwrap().0, PART);
            hand.say(CUT, &[&5u64.to_be_bytes(), &[7; 32]]).await;
        }
        while hand.hear().await.is_some() {}
    })
    .await;
    misbehaved(&report, "a comparison is going on");

    let report = asked(&empty, async |mut hand| {
        hand.greet().await;
        for _ in 0..2 {
            hand.say(PART, &[&[0, 0], &[0x61, 0, 0, 2, 0]]).await;
            assert!(hand.hear().await.is_some());
        }
    })
    .await;
    misbehaved(&report, "told already");
}

#[tokio::test]
async fn too_much_at_a_time_is_refused() {
    let node = node(&[]).await;
    for kind in [WANT, OFFER] {
        let settings = Settings { frame_bytes: 1 << 20, ..SMALL };
        let (here, there) = duplex(1 << 20);
        let mut hand = Hand(here);
        let many = async {
            hand.greet().await;
            let ids = vec![3; 32 * 4_097];
            hand.say(kind, &[if kind == WANT { &[0][..] } else { &[] }, &ids]).await;
            while hand.hear().await.is_some() {}
        };
        let (report, ()) = tokio::join!(respond(there, PEER, &node, &settings), many);
        misbehaved(&report, "too many ids");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_and_dripping_bytes_end_a_session_in_time() {
    let node = node(&[]).await;
    let begun = tokio::time::Instant::now();
    let report = asked(&node, async |mut hand| {
        hand.greet().await;
        tokio::time::sleep(Duration::from_secs(300)).await;
    })
    .await;
    assert!(matches!(report.end, End::Silent), "{:?}", report.end);
    let report = asked(&node, async |mut hand| {
        hand.greet().await;
        // A frame of a thousand bytes, one in five seconds.
        let _ = hand.0.write_all(&1_000u32.to_be_bytes()).await;
        while hand.0.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    })
    .await;
    assert!(matches!(report.end, End::Silent), "{:?}", report.end);
    assert!(begun.elapsed() < Duration::from_secs(400));
}
