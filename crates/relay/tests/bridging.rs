//! What a bridge to other nodes is told, and what it may bring.
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

mod support;

use kukuri_domain::{
    Origin, Refusal, TopicId,
    subscription::{IngestPolicy, SubscriptionChange},
    topic::TopicsMode,
};
use kukuri_relay::{Refused, config::Disk};
use kukuri_store::Outcome;
use support::{TOPIC, TestRelay, as_json, draft, id_of, millis, note, topic};

fn id(topic: &str) -> TopicId {
    TopicId::trusted(topic)
}

fn from_peer() -> Origin {
    Origin::Gossip { peer: [7; 32], topic: id(TOPIC) }
}

#[tokio::test]
async fn new_events_of_clients_are_told_once_and_nothing_else_is() {
    // G-2, G-3, E-5
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut published = relay.relay.published().unwrap();
    assert!(relay.relay.published().is_none(), "only one passes them on");
    let mut client = relay.client().await;
    let (stored, ephemeral) = (note(1, "to all").sign(), draft(1, 20_001).tag(["t", TOPIC]).sign());
    for event in [&stored, &ephemeral, &stored, &ephemeral] {
        client.publish(event).await;
    }
    let bytes = |event| as_json(event).to_string().into_bytes();
    let foreign = note(2, "from a peer").sign();
    let answers = relay.relay.take_in(vec![(bytes(&foreign), from_peer()), (bytes(&foreign), from_peer())]).await;
    assert!(matches!(answers[..], [Ok(Outcome::Stored), Ok(Outcome::Duplicate)]), "{answers:?}");
    relay.relay.import(vec![bytes(&note(3, "from a file").sign())]).await;
    let last = note(1, "the last").sign();
    client.accepted(&last).await;
    for expected in [&stored, &ephemeral, &last] {
        assert_eq!(published.recv().await.unwrap().event().id.to_string(), id_of(expected));
    }
}

#[tokio::test]
async fn what_peers_bring_keeps_the_rules_for_peers() {
    // G-4, T-8, E-10
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.topics = kukuri_relay::config::TopicIntake::Closed;
    })
    .await;
    relay.relay.store().change_subscription(&id(TOPIC), SubscriptionChange::enable(), millis()).await.unwrap();
    relay.relay.read_topics().await.unwrap();
    let other = topic(2);
    let elsewhere = Origin::Gossip { peer: [7; 32], topic: id(&other) };
    let bytes = |event| as_json(event).to_string().into_bytes();
    let both = note(1, "both").tag(["t", &other]).sign();
    let not_here = draft(1, 1).tag(["t", &other]).sign();
    let protected = note(1, "protected").tag(["-"]).sign();
    let answers = relay
        .relay
        .take_in(vec![
            (bytes(&both), from_peer()),
            (bytes(&not_here), elsewhere.clone()),
            (bytes(&not_here), from_peer()),
            (bytes(&protected), from_peer()),
        ])
        .await;
    let refusals: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(outcome) => Ok(outcome.clone()),
            Err(Refused::Rule(refusal)) => Err(refusal.clone()),
            Err(other) => panic!("{other}"),
        })
        .collect();
    let expected =
        [Ok(Outcome::Stored), Err(Refusal::TopicNotEnabled), Err(Refusal::WrongTopic), Err(Refusal::Protected)];
    assert_eq!(refusals, expected);
}

#[tokio::test]
async fn topics_that_are_disabled_or_shed_are_not_carried() {
    // G-1, P-6
    let relay = TestRelay::start(TopicsMode::Required).await;
    let (high, low, off) = (id(&topic(1)), id(&topic(2)), id(&topic(3)));
    let policy = IngestPolicy { priority: 0, ..IngestPolicy::default() };
    let store = relay.relay.store();
    let first_to_go = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
    store.change_subscription(&high, SubscriptionChange::enable(), millis()).await.unwrap();
    store.change_subscription(&low, first_to_go, millis()).await.unwrap();
    store.change_subscription(&off, SubscriptionChange::disable(), millis()).await.unwrap();
    let carried = async || -> Vec<TopicId> {
        relay.relay.carried_topics().await.unwrap().into_iter().map(|one| one.topic).collect()
    };
    assert_eq!(carried().await, [high.clone(), low, TopicId::global()]);
    let disk = Disk { path: std::env::temp_dir(), live_only: u64::MAX, shedding: u64::MAX, full: 0 };
    relay.reconfigure(|config| config.disk = Some(disk));
    assert_eq!(carried().await, [high, TopicId::global()], "room is short: the lowest priority goes first");
}
