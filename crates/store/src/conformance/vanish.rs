//! Requests to vanish (D-12).

use std::collections::BTreeSet;

use kukuri_domain::{Reason, Refusal, State, sharing::Window, vanish::VanishMark};

use super::{
    build::{ALICE, BOB, NOW, at, bare, deletion, note, profile, topic, vanish},
    partial_sets::items,
    probe::{effective, rows_after},
    story::{DELETED, DUPLICATE, STORED, Story, VANISHED, all_come_true},
    subject::{Harness, Subject},
};
use crate::{
    ingest::{Outcome, StoreRules},
    outbox::{Op, Seq},
    sharing::SharedSet,
};

/// D-12, D-10.
pub(super) async fn a_vanish_request_takes_everything_up_to_its_time_in_any_order<H: Harness>(harness: &H) {
    let [before, same, after] = [1, 2, 3].map(|second| note("text").at(second).build());
    let bobs = note("Bob's").by(BOB).at(1).build();
    let farewell = vanish().at(2).build();
    let everywhere = bare(62).tag(["relay", "ALL_RELAYS"]).at(2).build();
    let elsewhere = bare(62).tag(["relay", "wss://elsewhere.example.com"]).at(2).build();
    let several = bare(62).tag(["relay", "wss://elsewhere.example.com"]).tag(["relay", "ALL_RELAYS"]).at(2).build();
    let earlier = vanish().at(1).build();
    let to_alice = bare(1059).tag(["p", &ALICE.to_string()]).by(BOB).at(1).build();
    let mention = note("hello Alice").tag(["p", &ALICE.to_string()]).by(BOB).at(1).build();
    let request = deletion().of(&after).at(1).build();

    all_come_true(
        harness,
        vec![
            Story {
                why: "what is there goes, what is newer or another's stays",
                arrivals: vec![
                    (&before, STORED),
                    (&same, STORED),
                    (&after, STORED),
                    (&bobs, STORED),
                    (&farewell, STORED),
                    (&before, VANISHED),
                ],
                effective: vec![&after, &bobs, &farewell],
            },
            Story {
                why: "what comes later is kept out, what is newer is not",
                arrivals: vec![(&farewell, STORED), (&before, VANISHED), (&same, VANISHED), (&after, STORED)],
                effective: vec![&farewell, &after],
            },
            Story {
                why: "a request to all relays is one to this",
                arrivals: vec![(&before, STORED), (&everywhere, STORED)],
                effective: vec![&everywhere],
            },
            Story {
                why: "one of several relays is enough",
                arrivals: vec![(&before, STORED), (&several, STORED)],
                effective: vec![&several],
            },
            Story {
                why: "a request to another relay is an event like others",
                arrivals: vec![(&before, STORED), (&elsewhere, STORED), (&elsewhere, DUPLICATE), (&same, STORED)],
                effective: vec![&before, &elsewhere, &same],
            },
            Story {
                why: "vanish requests do not take each other",
                arrivals: vec![(&earlier, STORED), (&farewell, STORED), (&elsewhere, STORED)],
                effective: vec![&earlier, &farewell, &elsewhere],
            },
            Story {
                why: "an earlier request does not take back a later one",
                arrivals: vec![(&farewell, STORED), (&earlier, STORED), (&same, VANISHED)],
                effective: vec![&earlier, &farewell],
            },
            Story {
                why: "a gift wrap goes with its recipient, a mention does not",
                arrivals: vec![(&to_alice, STORED), (&mention, STORED), (&farewell, STORED)],
                effective: vec![&mention, &farewell],
            },
            Story {
                why: "a gift wrap to someone who vanished is kept out",
                arrivals: vec![(&farewell, STORED), (&to_alice, VANISHED)],
                effective: vec![&farewell],
            },
            Story {
                why: "a deletion request that is refused as vanished still takes its target",
                arrivals: vec![(&after, STORED), (&farewell, STORED), (&request, VANISHED), (&after, DELETED)],
                effective: vec![&farewell],
            },
            Story {
                why: "a deletion request that is refused as vanished still waits for its target",
                arrivals: vec![(&farewell, STORED), (&request, VANISHED), (&after, DELETED)],
                effective: vec![&farewell],
            },
            Story {
                why: "a deletion request that vanishes leaves its tombstone",
                arrivals: vec![(&request, STORED), (&farewell, STORED), (&request, VANISHED), (&after, DELETED)],
                effective: vec![&farewell],
            },
        ],
    )
    .await;
}

/// D-12: rows are removed physically, hidden ones included, and the outbox announces it.
pub(super) async fn vanished_events_leave_no_row_and_are_announced<H: Harness>(harness: &H) {
    let deleted = note("deleted").at(1).build();
    let request = deletion().of(&deleted).at(1).build();
    let [old, new] = [profile("old").at(1).build(), profile("new").at(2).build()];
    let address = new.address().expect("a key");
    let farewell = vanish().at(2).build();
    let mut store = Subject::open(harness, StoreRules::default()).await;
    let head = store.send(&[&deleted, &request, &old, &new]).await.head;
    store.send(&[&farewell]).await;
    store.reopen().await;

    for (why, event) in [("a hidden row", &deleted), ("a request", &request), ("history", &old), ("a version", &new)] {
        let explained = store.explain(&event.id).await.expect("an explanation");
        assert_eq!(explained.row, None, "{why}");
        assert_eq!(explained.record.map(|record| record.standing.state()), Some(State::Vanished), "{why}");
    }
    let rows = rows_after(&*store, head).await;
    let gone: Vec<_> = rows.iter().filter(|row| row.op == Op::Delete(Reason::Vanish)).map(|row| row.event_id).collect();
    assert!(gone.len() == 2 && gone.contains(&request.id) && gone.contains(&new.id), "what was visible: {rows:?}");
    assert_eq!(rows.len(), 3, "and the request itself: {rows:?}");

    let known = store.explain_address(&address).await.expect("an explanation");
    assert_eq!(known.key.map(|key| (key.floor, key.current)), Some((new.rank(), None)), "the floor outlives it");
    let mark = VanishMark { pubkey: ALICE, until: at(2), request_id: farewell.id, shareable: None };
    assert_eq!(known.vanish_mark, Some(mark), "so does the mark");
    let tombstones = store.explain(&deleted.id).await.expect("an explanation").tombstones;
    assert_eq!(tombstones.len(), 1, "so do tombstones");
    let stats = store.stats().await.expect("figures");
    assert_eq!((stats.effective, stats.ids, stats.outbox_first), (1, 5, Seq(1)), "ids stay known");
    assert_eq!(store.get(&[farewell.id], NOW).await.expect("events").iter().flatten().count(), 1);
}

/// N-2, D-12: rows are removed physically, the outbox announces it, later copies are kept out, and nothing is shared.
pub(super) async fn a_mark_without_a_request_works_like_one_and_other_nodes_are_not_told<H: Harness>(harness: &H) {
    let [before, same, after] = [1, 2, 3].map(|second| note("text").at(second).build());
    let bobs = note("Bob's").by(BOB).at(1).build();
    let deleted = note("deleted").at(1).build();
    let request = deletion().of(&deleted).at(1).build();
    let wrapped = bare(1059).tag(["p", &ALICE.to_string()]).by(BOB).at(1).build();
    let version = profile("old").at(2).build();
    let address = version.address().expect("a key");
    let mut store = Subject::open(harness, StoreRules::default()).await;
    let sent = [&before, &after, &bobs, &deleted, &request, &wrapped, &version];
    let head = store.send(&sent).await.head;

    store.leave_vanish_mark(&ALICE, at(2), NOW).await.expect("a mark");
    store.reopen().await;
    let is_left = effective(&*store, NOW).await;
    assert_eq!(is_left, [&after, &bobs].map(|event| event.id).into());
    let rows = rows_after(&*store, head).await;
    assert!(rows.iter().all(|row| row.op == Op::Delete(Reason::Vanish)), "{rows:?}");
    let announced: BTreeSet<_> = rows.iter().map(|row| row.event_id).collect();
    assert_eq!(announced, [&before, &request, &wrapped, &version].map(|event| event.id).into(), "what was visible");
    let explained = store.explain(&deleted.id).await.expect("an explanation");
    assert_eq!((explained.row, explained.tombstones.len()), (None, 1), "a hidden row goes, its tombstone stays");
    let known = store.explain_address(&address).await.expect("an explanation");
    assert_eq!(known.key.map(|key| (key.floor, key.current)), Some((version.rank(), None)), "the floor stays");
    assert_eq!(known.vanish_mark, Some(VanishMark::local(ALICE, at(2))));
    let check = store.check().await.expect("a report");
    assert!(check.problems.is_empty(), "{check:?}");

    let late = store.send(&[&same, &before]).await.outcomes;
    assert_eq!(late, [Outcome::Refused(Refusal::Vanished), Outcome::Refused(Refusal::Vanished)]);
    let head = store.stats().await.expect("figures").head;
    store.leave_vanish_mark(&ALICE, at(2), NOW).await.expect("a mark");
    store.leave_vanish_mark(&ALICE, at(1), NOW).await.expect("an earlier one");
    assert_eq!(store.stats().await.expect("figures").head, head, "done again, it changes nothing");
    assert_eq!(effective(&*store, NOW).await, is_left);
    let set = SharedSet { topic: topic(), window: Window { regular_since: at(0), now: NOW } };
    assert_eq!(items(&*store, &set, 10).await.len(), 2, "no trace is left");

    // A request that comes later is told to other nodes, also where the mark has removed everything.
    let farewell = bare(62).tag(["relay", "ALL_RELAYS"]).at(2).build();
    store.send(&[&farewell]).await;
    let told = items(&*store, &set, 10).await;
    assert!(told.iter().any(|item| item.id == farewell.id), "{told:?}");
    store.leave_vanish_mark(&ALICE, at(3), NOW).await.expect("a later mark");
    assert_eq!(effective(&*store, NOW).await, [&bobs, &farewell].map(|event| event.id).into(), "requests stay (D-12)");
}
