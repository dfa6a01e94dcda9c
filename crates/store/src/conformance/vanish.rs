//! Requests to vanish (D-12).

use kukuri_domain::{Reason, State, vanish::VanishMark};

use super::{
    build::{ALICE, BOB, NOW, at, bare, deletion, note, profile, vanish},
    probe::rows_after,
    story::{DELETED, DUPLICATE, STORED, Story, VANISHED, all_come_true},
    subject::{Harness, Subject},
};
use crate::{
    ingest::StoreRules,
    outbox::{Op, Seq},
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
