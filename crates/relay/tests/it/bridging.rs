//! The interface of the gossip bridge: events that it receives for broadcast, and events that it submits from peers.

use crate::support::{TOPIC, TestRelay, as_json, draft, id_of, millis, note, topic};
use kukuri_domain::{
    Origin, Refusal, TopicId,
    subscription::{IngestPolicy, SubscriptionChange},
    topic::TopicsMode,
};
use kukuri_engine::{PublishRefused, config::Disk};
use kukuri_store::Outcome;

fn id(topic: &str) -> TopicId {
    TopicId::new_unchecked(topic)
}

fn from_peer() -> Origin {
    Origin::Gossip { peer: [7; 32], topic: id(TOPIC) }
}

#[tokio::test]
async fn bridge_receives_each_new_client_event_once_and_nothing_else() {
    // G-2, G-3, E-5
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut published = relay.engine.take_broadcast_receiver().unwrap();
    assert!(relay.engine.take_broadcast_receiver().is_none(), "only one passes them on");
    let mut client = relay.client().await;
    let (stored, ephemeral) = (note(1, "to all").sign(), draft(1, 20_001).tag(["t", TOPIC]).sign());
    for event in [&stored, &ephemeral, &stored, &ephemeral] {
        client.publish(event).await;
    }
    let bytes = |event| as_json(event).to_string().into_bytes();
    let foreign = note(2, "from a peer").sign();
    let answers =
        relay.engine.intake().submit_batch(vec![(bytes(&foreign), from_peer()), (bytes(&foreign), from_peer())]).await;
    assert!(matches!(answers[..], [Ok(Outcome::Stored), Ok(Outcome::Duplicate)]), "{answers:?}");
    relay.engine.import(vec![bytes(&note(3, "from a file").sign())]).await;
    let last = note(1, "the last").sign();
    client.accepted(&last).await;
    for expected in [&stored, &ephemeral, &last] {
        assert_eq!(published.recv().await.unwrap().event().id.to_string(), id_of(expected));
    }
}

#[tokio::test]
async fn events_from_peers_are_checked_by_the_rules_for_peers() {
    // G-4, T-8, E-10
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.topics = kukuri_engine::config::TopicIntake::Closed;
    })
    .await;
    relay.engine.store().change_subscription(&id(TOPIC), SubscriptionChange::enable(), millis()).await.unwrap();
    relay.engine.reload_topics().await.unwrap();
    let other = topic(2);
    let elsewhere = Origin::Gossip { peer: [7; 32], topic: id(&other) };
    let bytes = |event| as_json(event).to_string().into_bytes();
    let both = note(1, "both").tag(["t", &other]).sign();
    let not_here = draft(1, 1).tag(["t", &other]).sign();
    let protected = note(1, "protected").tag(["-"]).sign();
    let answers = relay
        .engine
        .intake()
        .submit_batch(vec![
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
            Err(PublishRefused::Rule(refusal)) => Err(refusal.clone()),
            Err(other) => panic!("{other}"),
        })
        .collect();
    let expected =
        [Ok(Outcome::Stored), Err(Refusal::TopicNotEnabled), Err(Refusal::WrongTopic), Err(Refusal::Protected)];
    assert_eq!(refusals, expected);
}

#[tokio::test]
async fn disabled_and_shed_topics_are_not_shared_with_peers() {
    // G-1, P-6
    let relay = TestRelay::start(TopicsMode::Required).await;
    let (high, low, off) = (id(&topic(1)), id(&topic(2)), id(&topic(3)));
    let policy = IngestPolicy { priority: 0, ..IngestPolicy::default() };
    let store = relay.engine.store();
    let shed_first = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
    store.change_subscription(&high, SubscriptionChange::enable(), millis()).await.unwrap();
    store.change_subscription(&low, shed_first, millis()).await.unwrap();
    store.change_subscription(&off, SubscriptionChange::disable(), millis()).await.unwrap();
    let carried = async || -> Vec<TopicId> {
        relay.engine.carried_topics().await.unwrap().into_iter().map(|one| one.topic).collect()
    };
    assert_eq!(carried().await, [high.clone(), low, TopicId::global()]);
    let disk = Disk { path: std::env::temp_dir(), live_only: u64::MAX, shedding: u64::MAX, full: 0 };
    relay.reconfigure(|config| config.disk = Some(disk));
    assert_eq!(carried().await, [high, TopicId::global()], "room is short: the lowest priority goes first");
}
