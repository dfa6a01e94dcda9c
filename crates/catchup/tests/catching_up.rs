//! Two nodes that share a topic end with the same, whatever breaks meanwhile (G-7).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use kukuri_catchup::{End, Settings};
use kukuri_domain::{Event, Timestamp};
use kukuri_store::{
    Store, StoreRules,
    conformance::{
        build::{NOW, OTHER_TOPIC, admitted, article, at, bare, deletion, note, other_topic, topic},
        case_count,
        hearsay::{Hearsay, hearsay, shown},
    },
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore, Sync};
use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    sample::Index,
    test_runner::{Config, TestRunner},
};

use support::{SMALL, TestNode, break_off, catch_up};

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

/// A story, and after how many bytes each of the first sessions breaks.
fn cases() -> impl Strategy<Value = (Hearsay, Vec<(Index, Index, usize)>)> {
    (hearsay(), vec((any::<Index>(), any::<Index>(), 0..4_000usize), 0..6))
}

#[test]
fn nodes_end_with_the_same_however_often_streams_break() {
    let config = Config { cases: case_count().unwrap_or(300), failure_persistence: None, ..Config::default() };
    let property = |(story, broken): (Hearsay, Vec<(Index, Index, usize)>)| {
        block_on(async {
            let nodes: Vec<TestNode> = (0..story.nodes()).map(|node| TestNode::new(story.topics(node))).collect();
            for (index, node) in nodes.iter().enumerate() {
                for event in story.heard(index) {
                    node.hear(&[&event]).await;
                }
            }
            for (one, other, after) in broken {
                let (one, other) = (one.index(nodes.len()), other.index(nodes.len()));
                for topic in story.topics(one).intersection(&story.topics(other)).filter(|_| one != other) {
                    let (here, _) = break_off(&nodes[one], &nodes[other], topic, after).await;
                    assert!(matches!(here.end, End::Finished | End::Lost(_)), "{:?}", here.end);
                }
            }
            until_nothing_moves(&story, &nodes).await;
            for (index, one) in nodes.iter().enumerate() {
                let others = (index + 1..nodes.len()).filter(|other| story.topics(*other) == story.topics(index));
                for other in others {
                    for topic in story.topics(index) {
                        let (here, there) = (&*one.store, &*nodes[other].store);
                        assert_eq!(shown(here, &topic).await, shown(there, &topic).await, "in {topic}");
                    }
                }
                let mut taken = one.taken.lock().unwrap().clone();
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

async fn until_nothing_moves(story: &Hearsay, nodes: &[TestNode]) {
    loop {
        let mut moved = 0;
        for one in 0..nodes.len() {
            for other in (0..nodes.len()).filter(|other| *other != one) {
                for topic in story.topics(one).intersection(&story.topics(other)) {
                    let (here, there) = catch_up(&nodes[one], &nodes[other], topic, &SMALL).await;
                    assert!(here.is_finished() && there.is_finished(), "{here:?}\n{there:?}");
                    let came = |report: &kukuri_catchup::Report| {
                        report.events_in + report.hints_in + report.refused.values().sum::<u64>()
                    };
                    moved += came(&here) + came(&there);
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
async fn one_session_serves_both_sides_and_tells_of_floors() {
    let (mine, theirs) = (note("mine").at(3).build(), note("theirs").at(4).build());
    let (first, second) = (article("a", "first").at(1).build(), article("a", "second").at(2).build());
    // Of the same second as what it names, and held by both: nothing but the hint tells of the floor.
    let request = bare(5).tag(["t", OTHER_TOPIC]).of(&second).at(2).build();
    let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    one.hear(&[&mine, &first, &request]).await;
    other.hear(&[&theirs, &second, &request]).await;
    let (here, there) = catch_up(&one, &other, &topic(), &SMALL).await;
    assert!(here.is_finished() && there.is_finished(), "{here:?}\n{there:?}");
    assert_eq!((here.events_in, here.hints_in, here.events_out, here.hints_out), (1, 1, 1, 0));
    assert_eq!((there.events_in, there.events_out, there.hints_out), (1, 1, 1));
    assert_eq!(shown(&*one.store, &topic()).await, [mine.id, theirs.id].into());
    assert_eq!(shown(&*other.store, &topic()).await, [mine.id, theirs.id].into());
}

#[tokio::test]
async fn the_shorter_window_counts() {
    let (old, new, profile) = (note("old").at(1).build(), note("new").at(5).build(), article("a", "").at(1).build());
    for (ours, theirs) in [(at(5), Timestamp(0)), (Timestamp(0), at(5))] {
        let (mut one, mut other) = (TestNode::new([topic()]), TestNode::new([topic()]));
        (one.since, other.since) = (ours, theirs);
        other.hear(&[&old, &new, &profile]).await;
        let (here, _) = catch_up(&one, &other, &topic(), &SMALL).await;
        assert!(here.is_finished());
        assert_eq!(shown(&*one.store, &topic()).await, [new.id, profile.id].into());
    }
}

#[tokio::test]
async fn a_topic_that_is_not_shared_is_not_told_of() {
    let event = note("secret").build();
    for (here, there) in [(vec![topic()], vec![other_topic()]), (vec![other_topic()], vec![topic()])] {
        let (one, other) = (TestNode::new(here), TestNode::new(there));
        other.hear(&[&event]).await;
        let (report, _) = catch_up(&one, &other, &topic(), &SMALL).await;
        assert!(matches!(report.end, End::NotShared), "{:?}", report.end);
        assert!(shown(&*one.store, &topic()).await.is_empty());
    }
}

#[tokio::test]
async fn a_node_without_room_for_history_stops_and_still_gives() {
    // P-6, stage 1; O-9
    let events: Vec<Event> = (0..20).map(|n| note(&n.to_string()).at(n).build()).collect();
    let all: Vec<&Event> = events.iter().collect();
    let mine = note("mine").build();
    for is_behind in [true, false] {
        let (full, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
        full.is_behind.store(is_behind, Relaxed);
        full.room.store(5, Relaxed);
        full.hear(&[&mine]).await;
        other.hear(&all).await;
        let (report, _) = catch_up(&full, &other, &topic(), &SMALL).await;
        assert!(matches!(report.end, End::NoHistory), "it asked: {:?}", report.end);
        let taken = full.taken.lock().unwrap().len();
        assert!(taken <= 5 + SMALL.batch_items, "it stopped: {taken}");

        let (asked, answered) = catch_up(&other, &full, &topic(), &SMALL).await;
        assert!(asked.is_finished(), "the other got what it lacked: {:?}", asked.end);
        assert!(matches!(answered.end, End::NoHistory), "it was asked: {:?}", answered.end);
        assert!(shown(&*other.store, &topic()).await.contains(&mine.id));
        assert!(full.taken.lock().unwrap().len() <= taken + SMALL.batch_items);
    }
}

#[tokio::test(start_paused = true)]
async fn events_and_bytes_come_no_faster_than_they_may() {
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
        other.hear(&events.iter().collect::<Vec<_>>()).await;
        // The clock is the test's: it stands still while anybody works.
        let begun = tokio::time::Instant::now();
        let (report, _) = catch_up(&one, &other, &topic(), &settings).await;
        assert!(report.is_finished(), "{:?}", report.end);
        assert!(seconds.contains(&begun.elapsed().as_secs()), "{:?} in {seconds:?}", begun.elapsed());
    }
    let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    other.hear(&events.iter().collect::<Vec<_>>()).await;
    let short = Settings { items_per_second: 10, longest: Duration::from_secs(5), ..Settings::default() };
    let (report, _) = catch_up(&one, &other, &topic(), &short).await;
    assert!(matches!(report.end, End::Over), "{:?}", report.end);
    let some = shown(&*one.store, &topic()).await.len();
    assert!((10..200).contains(&some), "{some} came before its time was over");
}

/// A store that is fast with much.
fn embedded(dir: &tempfile::TempDir, name: &str) -> Arc<LmdbStore> {
    let rules = StoreRules::default();
    let options = LmdbOptions { sync: Sync::Off, reserve: 1 << 20, map_size: 1 << 32, rules, ..LmdbOptions::default() };
    Arc::new(LmdbStore::open(dir.path().join(name), options).unwrap())
}

#[test]
fn a_node_that_has_nothing_gets_all_whoever_asks() {
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
            assert!(here.is_finished() && there.is_finished(), "{here:?}\n{there:?}");
            assert_eq!(here.parts, 2);
            assert_eq!(if asks { here.events_in } else { there.events_in }, 9_000);
            let sets = [&full, &empty].map(|node| Arc::clone(&node.store));
            assert_eq!(shown(&*sets[0], &topic()).await, shown(&*sets[1], &topic()).await);
        }
    });
}

#[test]
fn a_session_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let node = TestNode::new([topic()]);
    let (here, there) = tokio::io::duplex(1);
    let topic = topic();
    is_send(&kukuri_catchup::initiate(here, support::PEER, &topic, &node, &SMALL));
    is_send(&kukuri_catchup::respond(there, support::PEER, &node, &SMALL));
}

#[test]
fn a_small_difference_of_large_sets_is_told_in_few_bytes() {
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
        assert!(here.is_finished() && there.is_finished(), "{here:?}\n{there:?}");
        assert_eq!((here.events_in, there.events_in), (5, 5));
        let bytes = here.bytes_in + here.bytes_out;
        assert!(bytes < 40_000, "{bytes} bytes for ten of 100,000 events");
        let (again, _) = catch_up(&one, &other, &topic(), &Settings::default()).await;
        let bytes = again.bytes_in + again.bytes_out;
        assert!(bytes < 20_000, "{bytes} bytes for nothing");
    });
}

#[tokio::test]
async fn what_is_deleted_on_one_side_goes_on_the_other() {
    let event = note("gone").at(1).build();
    let request = deletion().of(&event).at(2).build();
    let (one, other) = (TestNode::new([topic()]), TestNode::new([topic()]));
    one.hear(&[&event]).await;
    other.hear(&[&event, &request]).await;
    let (here, there) = catch_up(&one, &other, &topic(), &SMALL).await;
    assert!(here.is_finished() && there.is_finished());
    assert_eq!(shown(&*one.store, &topic()).await, [request.id].into());
    assert!(there.events_in == 0 && there.refused.is_empty(), "what it deleted was not even asked for: {there:?}");
}
