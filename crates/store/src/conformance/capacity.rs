//! Capacity stages (P-6, P-8).

use kukuri_domain::{
    DeletionMode, Event, Origin, PublicKey, Reason, TopicId,
    capacity::{Capacity, Stage, Usage},
    retention::{Retention, RetentionClass},
    subscription::IngestPolicy,
};

use super::{
    build::{
        ALICE, BOB, CAROL, NOW, OTHER_TOPIC, admitted_from, article, bare, deletion, event, later, note, other_topic,
        profile, topic, vanish,
    },
    probe::{TIMELESS, effective, rows_after, topics},
    story::{DUPLICATE, EPHEMERAL, FULL, LIVE_ONLY, PERMANENT_FULL, PURGED, SHED, STORED},
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
    match topic {
        None => store.stats().await.expect("figures").stage,
        Some(topic) => {
            let stats = store.topic_stats(std::slice::from_ref(topic)).await.expect("figures").pop().flatten();
            stats.expect("a topic").stage
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
pub(super) async fn a_topic_that_is_full_of_what_must_stay_refuses_more_of_it<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    store.subscribe(&topic(), IngestPolicy { max_events: Some(3), ..IngestPolicy::default() }).await;
    let [mine, bobs] = [profile("Alice").build(), profile("Bob").by(BOB).build()];
    let [first, second] = [deletion().build(), deletion().at(1).build()];
    for (why, event, expected) in [
        ("a version", &mine, STORED),
        ("another", &bobs, STORED),
        ("a request fills it", &first, STORED),
        ("nothing can give way", &profile("newer").at(1).build(), FULL),
        ("nor for a version of two topics", &article("both", "text").tag(["t", OTHER_TOPIC]).build(), FULL),
        ("a regular event gives way later", &note("late").build(), STORED),
        ("other topics have room", &bare(1).tag(["t", OTHER_TOPIC]).build(), STORED),
        ("requests always pass", &second, STORED),
        ("ephemeral events take no room", &event(20_001).build(), EPHEMERAL),
        ("what is known is known", &mine, DUPLICATE),
    ] {
        assert_eq!(from(&*store, Origin::unauthenticated_client(), event).await, expected, "{why}");
    }
    let purged = store.purge(&Retention::default(), later(1)).await.expect("a purge");
    assert_eq!(purged.by_capacity, 0, "there is room for a note beside the share of what must stay");
    store.subscribe(&topic(), IngestPolicy { max_events: Some(30), ..IngestPolicy::default() }).await;
    assert_eq!(stage(&*store, Some(&topic())).await, Stage::Open, "a new policy counts at once");
    let newer = profile("newer").at(1).build();
    assert_eq!(from(&*store, Origin::unauthenticated_client(), &newer).await, STORED);
}

/// An author that no other test event is from.
fn stranger(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

/// P-6: requests and new keys beyond the share of what must stay, in the node and in a topic, in any batches.
pub(super) async fn newcomers_add_to_what_must_stay_up_to_its_share_only<H: Harness>(harness: &H) {
    let of_topic = IngestPolicy { max_events: Some(10), ..IngestPolicy::default() };
    let by = |number| deletion().by(stranger(number)).build();
    let key = |number, identifier| article(identifier, "text").by(stranger(number)).build();
    let said = note("a stranger says something").by(stranger(9)).build();
    let arrivals = [
        ("a member", note("hello").build(), STORED),
        ("1 of 5", by(1), STORED),
        ("2", vanish().by(stranger(2)).build(), STORED),
        ("3", key(3, "a"), STORED),
        ("4", profile("a profile").by(stranger(4)).build(), STORED),
        ("5 of 5", key(5, "b"), STORED),
        ("a deletion request", by(6), PERMANENT_FULL),
        ("a vanish request", vanish().by(stranger(7)).build(), PERMANENT_FULL),
        ("a new key", key(8, "c"), PERMANENT_FULL),
        ("a profile", profile("another").by(stranger(8)).build(), PERMANENT_FULL),
        ("a new version", article("b", "longer").at(1).by(stranger(5)).build(), STORED),
        ("a regular event gives way later", said.clone(), STORED),
        ("its author is known from now on", deletion().of(&said).at(1).by(stranger(9)).build(), STORED),
        ("a member's new key", profile("a member").build(), STORED),
        ("an ephemeral event", event(20_001).by(stranger(6)).build(), EPHEMERAL),
    ];
    for (place, rules, policy) in
        [("the node", node_of(10), IngestPolicy::default()), ("a topic", StoreRules::default(), of_topic)]
    {
        for size in [1, arrivals.len()] {
            let mut store = Subject::open(harness, rules.clone()).await;
            store.subscribe(&topic(), policy).await;
            for batch in arrivals.chunks(size) {
                let outcomes = store.send(&batch.iter().map(|(_, event, _)| event).collect::<Vec<_>>()).await.outcomes;
                for ((why, _, expected), outcome) in batch.iter().zip(outcomes) {
                    assert_eq!(outcome, *expected, "{place}, batches of {size}: {why}");
                }
            }
            let refused = by(6);
            let explained = store.explain(&refused.id).await.expect("an explanation");
            assert_eq!(explained.record, None, "{place}: E-9: not known by a refusal");
            store.reopen().await;
            for (why, origin) in [
                ("a client", Origin::unauthenticated_client()),
                ("a peer", Origin::Gossip { peer: [7; 32], topic: topic() }),
            ] {
                assert_eq!(from(&*store, origin, &refused).await, PERMANENT_FULL, "{place}, after a restart: {why}");
            }
            assert_eq!(from(&*store, Origin::Node, &refused).await, STORED, "{place}: the node itself");
            let elsewhere = bare(5).by(stranger(10)).tag(["t", OTHER_TOPIC]).build();
            let expected = if place == "the node" { PERMANENT_FULL } else { STORED };
            assert_eq!(from(&*store, Origin::unauthenticated_client(), &elsewhere).await, expected, "{place}");
        }
    }
}

/// P-6: a request counts with its tombstones.
pub(super) async fn tombstones_count_with_the_request_that_leaves_them<H: Harness>(harness: &H) {
    let capacity = Capacity { max_events: None, max_bytes: Some(40_000) };
    let store = Subject::open(harness, StoreRules { capacity, ..StoreRules::default() }).await;
    let many = (0..50).fold(deletion(), |draft, target| draft.tag(["e", &format!("{target:064x}")])).build();
    assert!(many.to_json().len() < 5_000, "an eighth of the capacity");
    let refused = deletion().by(BOB).build();
    let mut outcomes = store.send(&[&many, &refused]).await.outcomes;
    outcomes.push(from(&*store, Origin::unauthenticated_client(), &refused).await);
    assert_eq!(outcomes, [STORED, PERMANENT_FULL, PERMANENT_FULL]);
    assert_eq!(stage(&*store, None).await, Stage::Open);
}

/// P-6, stage 3: what must stay counts up to its share.
pub(super) async fn nothing_gives_way_to_what_exceeds_its_share<H: Harness>(harness: &H) {
    let of_topic = IngestPolicy { max_events: Some(20), ..IngestPolicy::default() };
    for (place, rules, policy) in
        [("the node", node_of(20), IngestPolicy::default()), ("a topic", StoreRules::default(), of_topic)]
    {
        let store = Subject::open(harness, rules).await;
        store.subscribe(&topic(), policy).await;
        let notes = notes(9);
        store.send(&notes.iter().collect::<Vec<_>>()).await;
        for number in 0..19 {
            let request = deletion().at(number).build();
            assert_eq!(from(&*store, Origin::unauthenticated_client(), &request).await, STORED, "{place}: a member");
        }
        let purged = store.purge(&Retention::default(), later(1)).await.expect("a purge");
        assert_eq!(purged.by_capacity, 0, "{place}: 28 of 20 rows, 19 of them must stay");
        let late = note("the tenth").build();
        assert_eq!(from(&*store, Origin::unauthenticated_client(), &late).await, STORED, "{place}");
        let purged = store.purge(&Retention::default(), later(2)).await.expect("a purge");
        assert_eq!(purged.by_capacity, 1, "{place}: notes have the half that is left, down to 95 %");
        let left = effective(&*store, TIMELESS).await;
        assert!(notes[1..].iter().chain([&late]).all(|event| left.contains(&event.id)), "{place}");
    }
}

/// P-6, D-10: a gift wrap is deleted by its recipient, so its author has no event any more.
pub(super) async fn an_author_whose_last_event_goes_is_a_newcomer_again<H: Harness>(harness: &H) {
    let wrap = event(1059).by(CAROL).tag(["p", &BOB.to_string()]).build();
    let kept = event(1059).by(stranger(1)).tag(["p", &BOB.to_string()]).build();
    let other = note("not read with the batch").by(stranger(1)).build();
    let [of_carol, of_stranger] = [CAROL, stranger(1)].map(|author| profile("new").by(author).build());
    let unwrap = deletion().by(BOB).of(&wrap).of(&kept).at(1).build();
    for size in [1, 3] {
        let store = Subject::open(harness, node_of(8)).await;
        let filling: Vec<_> = (0..4).map(|number| deletion().by(ALICE).at(number).build()).collect();
        let of_bob = note("a member").by(BOB).build();
        store.send(&filling.iter().chain([&of_bob, &wrap, &kept, &other]).collect::<Vec<_>>()).await;
        let mut outcomes = Vec::new();
        for batch in [&unwrap, &of_carol, &of_stranger].chunks(size) {
            outcomes.extend(store.send(batch).await.outcomes);
        }
        assert_eq!(outcomes, [STORED, PERMANENT_FULL, STORED], "batches of {size}");
    }
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
        let listed = topics(&*store).await;
        let [here, there] = listed.as_slice() else { panic!("two topics: {listed:?}") };
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
