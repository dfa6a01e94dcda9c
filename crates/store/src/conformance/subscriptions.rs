//! Node-level subscriptions (S-1).

use kukuri_domain::{
    TopicId,
    retention::{Keep, TopicRetention},
    subscription::{IngestPolicy, Keeper, NodeSubscription, SubscriptionChange},
};

use super::{
    build::{NOW, later, note, other_topic, topic},
    probe::effective,
    subject::{Harness, Subject},
};
use crate::ingest::StoreRules;

/// S-1.
pub(super) async fn subscriptions_are_changed_kept_and_listed_by_topic<H: Harness>(harness: &H) {
    let policy = IngestPolicy {
        retention: TopicRetention { regular: Some(Keep::days(3)), current: Some(Keep::Forever), replaced: None },
        max_events: Some(1_000),
        max_bytes: None,
        priority: 7,
        backfill: false,
        max_delay: Some(std::time::Duration::from_secs(90)),
    };
    let mut store = Subject::open(harness, StoreRules::default()).await;
    assert_eq!(store.subscriptions().await.expect("subscriptions"), [], "a new store has none");

    let mut expected = NodeSubscription {
        topic: other_topic(),
        enabled: false,
        keeper: Keeper::Operator,
        ref_count: 0,
        policy: IngestPolicy::default(),
        created_at: NOW,
        updated_at: NOW,
    };
    let steps = [
        ("made by its first change", SubscriptionChange { ref_count: Some(2), ..SubscriptionChange::default() }),
        ("enabled", SubscriptionChange::enable()),
        ("a new policy", SubscriptionChange { policy: Some(policy), ..SubscriptionChange::default() }),
        ("a member leaves", SubscriptionChange { ref_count: Some(1), ..SubscriptionChange::default() }),
        ("the last leaves", SubscriptionChange { ref_count: Some(0), ..SubscriptionChange::default() }),
        ("disabled", SubscriptionChange::disable()),
        ("opened by its use", SubscriptionChange::open()),
        ("closed when it is idle", SubscriptionChange::close_idle()),
        ("enabled by an operator", SubscriptionChange::enable()),
    ];
    let after = [(2, false), (2, true), (2, true), (1, true), (0, true), (0, false), (0, true), (0, false), (0, true)];
    for (seconds, ((why, change), (ref_count, enabled))) in (0..).zip(steps.into_iter().zip(after)) {
        expected = NodeSubscription { ref_count, enabled, updated_at: later(seconds), ..expected };
        expected.keeper = change.keeper.unwrap_or(expected.keeper);
        expected.policy = change.policy.unwrap_or(expected.policy);
        let changed = store.change_subscription(&other_topic(), change, later(seconds)).await.expect("a change");
        assert_eq!(changed, expected, "{why}");
        store.reopen().await;
        assert_eq!(store.subscriptions().await.expect("subscriptions"), [expected.clone()], "{why}, after a restart");
    }

    for topic in [TopicId::global(), topic()] {
        store.change_subscription(&topic, SubscriptionChange::enable(), NOW).await.expect("a change");
    }
    let listed: Vec<_> = store.subscriptions().await.expect("subscriptions").into_iter().map(|one| one.topic).collect();
    assert_eq!(listed, [topic(), other_topic(), TopicId::global()]);
}

/// S-1: with change notification.
pub(super) async fn watchers_of_subscriptions_are_told_of_a_change<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    let mut watch = store.watch_subscriptions();
    let before = *watch.borrow_and_update();
    store.send(&[&note("text").build()]).await;
    assert!(!watch.has_changed().expect("a store"), "events change no subscription");
    store.change_subscription(&topic(), SubscriptionChange::enable(), NOW).await.expect("a change");
    assert!(watch.has_changed().expect("a store"));
    assert_ne!(*watch.borrow_and_update(), before);
}

/// T-8: a store keeps the events of a disabled topic.
pub(super) async fn a_disabled_topic_stays_readable<H: Harness>(harness: &H) {
    let text = note("text").build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.change_subscription(&topic(), SubscriptionChange::enable(), NOW).await.expect("a change");
    store.send(&[&text]).await;
    store.change_subscription(&topic(), SubscriptionChange::disable(), NOW).await.expect("a change");
    assert_eq!(effective(&*store, NOW).await, [text.id].into());
}
