//! Sessions between two nodes that share a topic: they converge, whatever breaks meanwhile (G-7).

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use kukuri_catchup::{SessionEnd, Settings};
use kukuri_domain::{Event, Timestamp};
use kukuri_store::{
    StoreRules,
    conformance::{
        build::{NOW, OTHER_TOPIC, admitted, article, at, bare, deletion, note, other_topic, topic},
        partial_sets::{PartialSets, partial_sets, shown},
    },
    port::*,
};
use kukuri_store_lmdb::{Durability, LmdbOptions, LmdbStore};
use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    sample::Index,
    test_runner::{Config, TestRunner},
};

use crate::support;
use crate::support::{SMALL, TestNode, break_off, catch_up, is_finished};

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

/// A sets, and the number of bytes after which each of the first sessions breaks.
fn cases() -> impl Strategy<Value = (PartialSets, Vec<(Index, Index, usize)>)> {
    (partial_sets(), vec((any::<Index>(), any::<Index>(), 0..4_000usize), 0..6))
}

#[test]
fn nodes_converge_however_often_streams_break() {
    let config = Config { cases: kukuri_testing::long::scaled(300), failure_persistence: None, ..Config::default() };
    let property = |(sets, broken): (PartialSets, Vec<(Index, Index, usize)>)| {
        block_on(async {
            let nodes: Vec<TestNode> = (0..sets.nodes()).map(|node| TestNode::new(sets.topics(node))).collect();
            for (index, node) in nodes.iter().enumerate() {
                for event in sets.received(index) {
                    node.store_events(&[&event]).await;
                }
            }
            for (one, other, after) in broken {
                let (one, other) = (one.index(nodes.len()), other.index(nodes.len()));
                for topic in sets.topics(one).intersection(&sets.topics(other)).filter(|_| one != other) {
                    let (here, _) = break_off(&nodes[one], &nodes[other], topic, after).await;
                    assert!(matches!(here.end, SessionEnd::Finished | SessionEnd::StreamBroken(_)), "{:?}", here.end);
                }
            }
            catch_up_until_converged(&sets, &nodes).await;
            for (index, one) in nodes.iter().enumerate() {
                let others = (index + 1..nodes.len()).filter(|other| sets.topics(*other) == sets.topics(index));
                for other in others {
                    for topic in sets.topics(index) {
                        let (here, there) = (&*one.store, &*nodes[other].store);
                        assert_eq!(shown(here, &topic).await, shown(there, &topic).await, "in {topic}");
                    }
                }
                let mut taken = one.submitted.lock().unwrap().clone();
                let count = taken.len();
                taken.sort_unstable();
                taken.dedup();
                assert_eq!(taken.len(), count, "nothing that is known was asked for again");
            }
        });
        Ok(())
    };
    TestRunner::new(config).run(&cases(), property).unwrap();
}

async fn catch_up_until_converged(sets: &PartialSets, nodes: &[TestNode]) {
    loop {
        let mut moved = 0;
        for one in 0..nodes.len() {
            for other in (0..nodes.len()).filter(|other| *other != one) {
                for topic in sets.topics(one).intersection(&sets.topics(other)) {
                    let (here, there) = catch_up(&nodes[one], &nodes[other], topic, &SMALL).await;
                    assert!(is_finished(&here) && is_finished(&there), "{here:?}\n{there:?}");
                    let received = |report: &kukuri_catchup::Report| {
                        report.events_in + report.hints_in + report.refused.values().sum::<u64>()
                    };
                    moved += received(&here) + received(&there);
                    assert_eq!(here.bytes_in, there.bytes_out, "what one wrote the other read");
                }
            }
        }
        if moved == 0 {
            return;
        }
    }
}

#[tokio::test]
async fn one_session_serves_both_sides_and_carries_floor_hints() {
    let (mine, theirs) = (note("mine").at(3).build(), note("theirs").at(4).build());
    let (first, second) = (article("a", "first").at(1).build(), article("a", "second").at(2).build());
    // Of the same second as its target, and stored on both sides: only the hint carries the floor.
    let request = bare(5).tag(["t", OTHER_TOPIC]).of(&second).at(2).build();
    let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    one.store_events(&[&mine, &first, &request]).await;
    other.store_events(&[&theirs, &second, &request]).await;
    let (here, there) = catch_up(&one, &other, &topic(), &SMALL).await;
    assert!(is_finished(&here) && is_finished(&there), "{here:?}\n{there:?}");
    assert_eq!((here.events_in, here.hints_in, here.events_out, here.hints_out), (1, 1, 1, 0));
    assert_eq!((there.events_in, there.events_out, there.hints_out), (1, 1, 1));
    assert_eq!(shown(&*one.store, &topic()).await, [mine.id, theirs.id].into());
    assert_eq!(shown(&*other.store, &topic()).await, [mine.id, theirs.id].into());
}

#[tokio::test]
async fn a_withheld_event_stays_in_the_set_and_is_not_sent() {
    // M-5
    let (shown_event, withheld) = (note("shown").at(3).build(), note("withheld").at(4).build());
    let (one, mut other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    other.store_events(&[&shown_event, &withheld]).await;
    other.withheld = Some(withheld.id);
    let (here, there) = catch_up(&one, &other, &topic(), &SMALL).await;
    assert!(is_finished(&here) && is_finished(&there), "{here:?}\n{there:?}");
    assert_eq!(shown(&*one.store, &topic()).await, [shown_event.id].into());
    // A peer that has it already is not told that it lacks something.
    one.store_events(&[&withheld]).await;
    let (here, there) = catch_up(&one, &other, &topic(), &SMALL).await;
    assert_eq!((here.events_in, here.events_out, there.events_in), (0, 0, 0));
}

#[tokio::test]
async fn the_shorter_retention_of_the_two_nodes_counts() {
    let (old, new, profile) = (note("old").at(1).build(), note("new").at(5).build(), article("a", "").at(1).build());
    for (ours, theirs) in [(at(5), Timestamp(0)), (Timestamp(0), at(5))] {
        let (mut one, mut other) = (TestNode::new([topic()]), TestNode::new([topic()]));
        (one.since, other.since) = (ours, theirs);
        other.store_events(&[&old, &new, &profile]).await;
        let (here, _) = catch_up(&one, &other, &topic(), &SMALL).await;
        assert!(is_finished(&here));
        assert_eq!(shown(&*one.store, &topic()).await, [new.id, profile.id].into());
    }
}

#[tokio::test]
async fn a_topic_that_is_not_shared_is_refused() {
    let event = note("secret").build();
    for (here, there) in [(vec![topic()], vec![other_topic()]), (vec![other_topic()], vec![topic()])] {
        let (one, other) = (TestNode::new(here), TestNode::new(there));
        other.store_events(&[&event]).await;
        let (report, _) = catch_up(&one, &other, &topic(), &SMALL).await;
        assert!(matches!(report.end, SessionEnd::NotShared), "{:?}", report.end);
        assert!(shown(&*one.store, &topic()).await.is_empty());
    }
}

#[tokio::test]
async fn a_node_without_capacity_for_history_stops_asking_and_still_answers() {
    // P-6, stage 1; O-9
    let events: Vec<Event> = (0..20).map(|n| note(&n.to_string()).at(n).build()).collect();
    let all: Vec<&Event> = events.iter().collect();
    let mine = note("mine").build();
    for is_behind in [true, false] {
        let (full, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
        full.is_behind.store(is_behind, Relaxed);
        full.capacity.store(5, Relaxed);
        full.store_events(&[&mine]).await;
        other.store_events(&all).await;
        let (report, _) = catch_up(&full, &other, &topic(), &SMALL).await;
        assert!(matches!(report.end, SessionEnd::NoHistory), "it asked: {:?}", report.end);
        let taken = full.submitted.lock().unwrap().len();
        assert!(taken <= 5 + SMALL.batch_items, "it stopped: {taken}");

        let (asked, answered) = catch_up(&other, &full, &topic(), &SMALL).await;
        assert!(is_finished(&asked), "the other got what it lacked: {:?}", asked.end);
        assert!(matches!(answered.end, SessionEnd::NoHistory), "it was asked: {:?}", answered.end);
        assert!(shown(&*other.store, &topic()).await.contains(&mine.id));
        assert!(full.submitted.lock().unwrap().len() <= taken + SMALL.batch_items);
    }
}

#[tokio::test(start_paused = true)]
async fn items_and_bytes_are_rate_limited() {
    let events: Vec<Event> = (0..200).map(|n| note(&"x".repeat(500)).at(n).build()).collect();
    let bytes: usize = events.iter().map(|event| event.to_json().len()).sum();
    for (settings, seconds) in [
        (Settings { items_per_second: 10, ..Settings::default() }, 18..=21),
        (
            Settings { bytes_per_second: 10_000, ..Settings::default() },
            bytes as u64 / 10_000 - 2..=bytes as u64 / 10_000 + 3,
        ),
    ] {
        let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
        other.store_events(&events.iter().collect::<Vec<_>>()).await;
        // Paused time advances only while all tasks sleep.
        let begun = tokio::time::Instant::now();
        let (report, _) = catch_up(&one, &other, &topic(), &settings).await;
        assert!(is_finished(&report), "{:?}", report.end);
        assert!(seconds.contains(&begun.elapsed().as_secs()), "{:?} in {seconds:?}", begun.elapsed());
    }
    let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    other.store_events(&events.iter().collect::<Vec<_>>()).await;
    let short = Settings { items_per_second: 10, session_timeout: Duration::from_secs(5), ..Settings::default() };
    let (report, _) = catch_up(&one, &other, &topic(), &short).await;
    assert!(matches!(report.end, SessionEnd::LimitReached), "{:?}", report.end);
    let some = shown(&*one.store, &topic()).await.len();
    assert!((10..200).contains(&some), "{some} received before the session timeout");
}

/// An embedded store, for large sets.
fn embedded(dir: &tempfile::TempDir, name: &str) -> Arc<LmdbStore> {
    let rules = StoreRules::default();
    let options = LmdbOptions {
        durability: Durability::Unsynced,
        reserve: 1 << 20,
        map_size: 1 << 32,
        rules,
        ..LmdbOptions::default()
    };
    Arc::new(LmdbStore::open(dir.path().join(name), options).unwrap())
}

#[test]
fn an_empty_node_gets_everything_from_either_side() {
    // More than one part holds, and more ids than one message.
    let events: Vec<Event> = (0..9_000u64).map(|n| note(&n.to_string()).at(n / 500).build()).collect();
    let settings = Settings { items_per_second: u32::MAX, bytes_per_second: u32::MAX, ..Settings::default() };
    block_on(async {
        for asks in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (full, empty) = (embedded(&dir, "full"), embedded(&dir, "empty"));
            full.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
            let (full, empty) = (TestNode::on(full, [topic()]), TestNode::on(empty, [topic()]));
            let (one, other) = if asks { (&empty, &full) } else { (&full, &empty) };
            let (here, there) = catch_up(one, other, &topic(), &settings).await;
            assert!(is_finished(&here) && is_finished(&there), "{here:?}\n{there:?}");
            assert_eq!(here.parts, 2);
            assert_eq!(if asks { here.events_in } else { there.events_in }, 9_000);
            let sets = [&full, &empty].map(|node| Arc::clone(&node.store));
            assert_eq!(shown(&*sets[0], &topic()).await, shown(&*sets[1], &topic()).await);
        }
    });
}

#[test]
fn a_session_future_is_send() {
    fn is_send<T: Send>(_: &T) {}
    let node = TestNode::new([topic()]);
    let (here, there) = tokio::io::duplex(1);
    let topic = topic();
    is_send(&kukuri_catchup::initiate(here, support::PEER, &topic, &node, &SMALL));
    is_send(&kukuri_catchup::respond(there, support::PEER, &node, &SMALL));
}

#[test]
fn a_small_difference_of_large_sets_costs_few_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (embedded(&dir, "one"), embedded(&dir, "other"));
    let events: Vec<Event> = (0..100_000u64).map(|n| note(&n.to_string()).at(n / 200).build()).collect();
    block_on(async {
        for (index, some) in events.chunks(5_000).enumerate() {
            // Ten are lacking: five here, five there.
            let skip = |place: usize| move |(at, _): &(usize, &Event)| index % 4 != 0 || *at != place;
            for (store, place) in [(&one, 77), (&other, 4_000)] {
                let batch = some.iter().enumerate().filter(skip(place)).map(|(_, event)| admitted(event)).collect();
                store.ingest(batch, NOW).await.unwrap();
            }
        }
        let topics = || [topic()];
        let (one, other) = (TestNode::on(one, topics()), TestNode::on(other, topics()));
        let (here, there) = catch_up(&one, &other, &topic(), &Settings::default()).await;
        assert!(is_finished(&here) && is_finished(&there), "{here:?}\n{there:?}");
        assert_eq!((here.events_in, there.events_in), (5, 5));
        let bytes = here.bytes_in + here.bytes_out;
        assert!(bytes < 40_000, "{bytes} bytes for ten of 100,000 events");
        let (again, _) = catch_up(&one, &other, &topic(), &Settings::default()).await;
        let bytes = again.bytes_in + again.bytes_out;
        assert!(bytes < 20_000, "{bytes} bytes for nothing");
    });
}

#[tokio::test]
async fn a_deletion_on_one_side_takes_effect_on_the_other() {
    let event = note("gone").at(1).build();
    let request = deletion().of(&event).at(2).build();
    let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    one.store_events(&[&event]).await;
    other.store_events(&[&event, &request]).await;
    let (here, there) = catch_up(&one, &other, &topic(), &SMALL).await;
    assert!(is_finished(&here) && is_finished(&there));
    assert_eq!(shown(&*one.store, &topic()).await, [request.id].into());
    assert!(there.events_in == 0 && there.refused.is_empty(), "what it deleted was not even asked for: {there:?}");
}
