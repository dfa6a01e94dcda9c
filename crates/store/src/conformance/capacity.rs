//! Capacity stages (P-6, P-8).

use kukuri_domain::{
    DeletionMode, Event, Origin, Reason, TopicId,
    capacity::{Capacity, Stage, Usage},
    retention::{Retention, RetentionClass},
    subscription::IngestPolicy,
};

use super::{
    build::{BOB, NOW, OTHER_TOPIC, admitted_from, bare, deletion, event, later, note, other_topic, profile, topic},
    probe::{TIMELESS, effective, rows_after},
    story::{DUPLICATE, EPHEMERAL, FULL, LIVE_ONLY, PURGED, SHED, STORED},
    subject::{Harness, Subject},
};
use crate::{
    ingest::{Outcome, StageChange, StoreRules},
    outbox::Op,
    port::Store,
    report::total,
};

fn node_of(max_events: u64) -> StoreRules {
    StoreRules { capacity: Capacity { max_events: Some(max_events), max_bytes: None }, ..StoreRules::default() }
}

fn notes(count: usize) -> Vec<Event> {
    (0..count).map(|number| note(&format!("note {number:03}")).build()).collect()
}

async fn from(store: &dyn Store, origin: Origin, event: &Event) -> Outcome {
    store.ingest(vec![admitted_from(event, origin)], NOW).await.expect("a batch").outcomes.remove(0)
}

async fn stage(store: &dyn Store, topic: Option<&TopicId>) -> Stage {
    let stats = store.stats().await.expect("figures");
    match topic {
        None => stats.stage,
        Some(topic) => {
            stats.topics.iter().find(|stats| stats.topic == *topic).map(|stats| stats.stage).expect("a topic")
        }
    }
}

/// P-6: stages of the node and of a topic.
pub(super) async fn stages_are_entered_at_their_thresholds_and_told<H: Harness>(harness: &H) {
    let of_topic = IngestPolicy { max_events: Some(10), ..IngestPolicy::default() };
    for (why, rules, policy, place) in [
        ("the node", node_of(10), IngestPolicy::default(), None),
        ("a topic", StoreRules::default(), of_topic, Some(topic())),
    ] {
        let mut store = Subject::open(harness, rules).await;
        store.subscribe(&topic(), policy).await;
        let events = notes(11);
        let change = |from, to| vec![StageChange { topic: place.clone(), from, to }];
        for (index, event) in events.iter().enumerate() {
            let expected = match index + 1 {
                8 => change(Stage::Open, Stage::LiveOnly),
                9 => change(Stage::LiveOnly, Stage::Shedding),
                10 => change(Stage::Shedding, Stage::Purging),
                _ => Vec::new(),
            };
            let ingested = store.send(&[event]).await;
            assert_eq!(ingested.stages, expected, "{why}, event {}", index + 1);
            assert_eq!(ingested.outcomes, [STORED], "{why}, event {}: live events go on", index + 1);
        }
        store.reopen().await;
        assert_eq!(stage(&*store, place.as_ref()).await, Stage::Purging, "{why}, after a restart");
        let purged = store.purge(&Retention::default(), later(1)).await.expect("a purge");
        assert_eq!(purged.by_capacity, 2, "{why}: 9 of 10 are not over 95 %");
        assert_eq!(purged.stages, change(Stage::Purging, Stage::Shedding), "{why}");
    }
}

/// P-6, stage 1.
pub(super) async fn history_is_refused_while_room_is_short<H: Harness>(harness: &H) {
    let store = Subject::open(harness, node_of(10)).await;
    let events = notes(12);
    store.send(&events[..7].iter().collect::<Vec<_>>()).await;
    let peer = [7; 32];
    assert_eq!(from(&*store, Origin::Sync { peer }, &events[7]).await, STORED, "not short yet");
    assert_eq!(from(&*store, Origin::Sync { peer }, &events[8]).await, LIVE_ONLY);
    assert_eq!(from(&*store, Origin::Import, &events[8]).await, LIVE_ONLY);
    assert_eq!(from(&*store, Origin::Import, &events[7]).await, DUPLICATE, "what is known is known");
    assert_eq!(store.explain(&events[8].id).await.expect("an explanation").record, None, "E-9: not known by a refusal");
    assert_eq!(from(&*store, Origin::Gossip { peer, topic: topic() }, &events[8]).await, STORED);
    assert_eq!(from(&*store, Origin::unauthenticated_client(), &events[9]).await, STORED);
    let request = deletion().of(&events[0]).at(1).build();
    assert_eq!(from(&*store, Origin::Sync { peer }, &request).await, STORED, "requests always pass");
}

/// P-6, stage 2.
pub(super) async fn topics_of_the_lowest_priority_are_shed<H: Harness>(harness: &H) {
    let store = Subject::open(harness, node_of(10)).await;
    store.subscribe(&topic(), IngestPolicy { priority: 0, ..IngestPolicy::default() }).await;
    store.subscribe(&other_topic(), IngestPolicy { priority: 1, ..IngestPolicy::default() }).await;
    let events = notes(9);
    store.send(&events[..8].iter().collect::<Vec<_>>()).await;
    assert_eq!(from(&*store, Origin::unauthenticated_client(), &events[8]).await, STORED, "not shed yet");
    for (why, event, expected) in [
        ("the first to go", note("low").build(), SHED),
        ("a topic above it", bare(1).tag(["t", OTHER_TOPIC]).build(), STORED),
        ("one of its topics is above", note("both").tag(["t", OTHER_TOPIC]).build(), STORED),
        ("requests always pass", deletion().build(), STORED),
    ] {
        assert_eq!(from(&*store, Origin::unauthenticated_client(), &event).await, expected, "{why}");
    }
    store.subscribe(&other_topic(), IngestPolicy { priority: 0, ..IngestPolicy::default() }).await;
    let equal = note("equal").build();
    assert_eq!(
        from(&*store, Origin::unauthenticated_client(), &equal).await,
        STORED,
        "where all are alike none is shed"
    );
}

/// P-6, stage 3; P-8.
pub(super) async fn a_purge_for_room_takes_the_oldest_and_never_what_must_stay<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    store.subscribe(&topic(), IngestPolicy { max_events: Some(20), ..IngestPolicy::default() }).await;
    let request = deletion().build();
    let [old, current] = [profile("old").at(1).build(), profile("current").at(2).build()];
    let events = notes(17);
    let elsewhere = bare(1).tag(["t", OTHER_TOPIC]).build();
    store.send(&[&elsewhere, &request, &old, &current]).await;
    let head = store.send(&events.iter().collect::<Vec<_>>()).await.head;
    assert_eq!(stage(&*store, Some(&topic())).await, Stage::Purging);

    let purged = store.purge(&Retention::default(), later(1)).await.expect("a purge");
    assert_eq!((purged.by_capacity, purged.by_retention), (1, 0), "19 of 20 are 95 %: {purged:?}");
    assert_eq!(store.explain(&old.id).await.expect("an explanation").row, None, "history is the oldest here");
    assert_eq!(rows_after(&*store, head).await, [], "P-8: a hidden row goes silently");

    let more: Vec<_> = (0..3).map(|number| note(&format!("more {number}")).build()).collect();
    let head = store.send(&more.iter().collect::<Vec<_>>()).await.head;
    let purged = store.purge(&Retention::default(), later(2)).await.expect("a purge");
    assert_eq!(purged.by_capacity, 3);
    let rows = rows_after(&*store, head).await;
    let told: Vec<_> = rows.iter().map(|row| (row.event_id, row.op)).collect();
    let oldest = [&events[0], &events[1], &events[2]];
    assert_eq!(told, oldest.map(|event| (event.id, Op::Delete(Reason::Capacity))), "the oldest, by arrival");
    assert_eq!(from(&*store, Origin::unauthenticated_client(), &events[0]).await, PURGED);
    let left = effective(&*store, TIMELESS).await;
    assert!([&elsewhere, &request, &current, &events[3]].iter().all(|event| left.contains(&event.id)));
}

/// P-6: rows that are never purged can fill a topic.
pub(super) async fn a_topic_that_is_full_of_what_must_stay_refuses_new_events<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    store.subscribe(&topic(), IngestPolicy { max_events: Some(3), ..IngestPolicy::default() }).await;
    let [mine, bobs] = [profile("Alice").build(), profile("Bob").by(BOB).build()];
    let [first, second] = [deletion().build(), deletion().at(1).build()];
    for (why, event, expected) in [
        ("a version", &mine, STORED),
        ("another", &bobs, STORED),
        ("a request fills it", &first, STORED),
        ("nothing can give way", &note("late").build(), FULL),
        ("not even for a version", &profile("newer").at(1).build(), FULL),
        ("nor for an event of two topics", &note("both").tag(["t", OTHER_TOPIC]).build(), FULL),
        ("other topics have room", &bare(1).tag(["t", OTHER_TOPIC]).build(), STORED),
        ("requests always pass", &second, STORED),
        ("ephemeral events take no room", &event(20_001).build(), EPHEMERAL),
        ("what is known is known", &mine, DUPLICATE),
    ] {
        assert_eq!(from(&*store, Origin::unauthenticated_client(), event).await, expected, "{why}");
    }
    let purged = store.purge(&Retention::default(), later(1)).await.expect("a purge");
    assert_eq!(purged.by_capacity, 0, "there is nothing to throw away");
    store.subscribe(&topic(), IngestPolicy { max_events: Some(30), ..IngestPolicy::default() }).await;
    assert_eq!(stage(&*store, Some(&topic())).await, Stage::Open, "a new policy counts at once");
    assert_eq!(from(&*store, Origin::unauthenticated_client(), &note("late").build()).await, STORED);
}

/// P-6: counters by class, of the node and of every topic that an event is bound to.
pub(super) async fn the_figures_follow_every_change<H: Harness>(harness: &H) {
    for deletion_mode in [DeletionMode::Soft, DeletionMode::Physical] {
        let mut store = Subject::open(harness, StoreRules { deletion: deletion_mode, ..StoreRules::default() }).await;
        let text = note("text").build();
        let both = note("both").tag(["t", OTHER_TOPIC]).build();
        let [old, new] = [profile("old").at(1).build(), profile("newer").at(2).build()];
        let request = deletion().of(&text).at(1).build();
        store.send(&[&text, &both, &old, &new, &request, &both, &old]).await;
        store.reopen().await;

        let sum = |events: &[&Event]| Usage {
            events: events.len() as u64,
            bytes: events.iter().map(|event| event.to_json().len() as u64).sum(),
        };
        let regular: &[&Event] = if deletion_mode == DeletionMode::Soft { &[&text, &both] } else { &[&both] };
        let expected = RetentionClass::ALL.map(|class| match class {
            RetentionClass::Regular => sum(regular),
            RetentionClass::Request => sum(&[&request]),
            RetentionClass::Current => sum(&[&new]),
            RetentionClass::History => sum(&[&old]),
        });
        let stats = store.stats().await.expect("figures");
        assert_eq!((stats.effective, stats.by_class), (3, expected), "{deletion_mode:?}: the node");
        assert_eq!((stats.ids, stats.failed, stats.head), (5, 0, ingested_rows()), "{deletion_mode:?}");
        let [here, there] = stats.topics.as_slice() else { panic!("two topics: {:?}", stats.topics) };
        assert_eq!((&here.topic, here.effective, here.by_class), (&topic(), 3, expected), "{deletion_mode:?}");
        assert_eq!((&there.topic, there.effective), (&other_topic(), 1), "{deletion_mode:?}");
        assert_eq!(total(&there.by_class), sum(&[&both]), "{deletion_mode:?}");
        assert_eq!(there.last_event_at, Some(NOW), "{deletion_mode:?}");
    }
}

/// The outbox sequence after ingest. Upserts: `text`, `both` (twice), `old`, `new`, `request`; deletes: `old`, `text`.
fn ingested_rows() -> crate::outbox::Seq {
    crate::outbox::Seq(8)
}
