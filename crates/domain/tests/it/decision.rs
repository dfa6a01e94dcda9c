//! What one event changes, given what a store knows: versions, tombstones and vanish marks (E-3, E-5, E-9, D, X).
//!
//! What a deletion request does to its targets is in `deletion_requests.rs`.

use crate::support;
use crate::support::{ALICE, BOB, CAROL, Draft, NOW, NOW_SECONDS, RELAY, admitted, bare, event, note, tombstones};
use kukuri_domain::{
    Admitted, DeletionMode, Event, EventId, Millis, Reason, Refusal, State, Timestamp,
    decision::{self, Decision, KeyState, StoreFacts, Verdict},
    remains::Remains,
    vanish::VanishMark,
};

fn decide(admitted: &Admitted, known: &StoreFacts<'_>) -> Decision {
    match decision::decide(admitted, known, NOW) {
        Verdict::Apply(decision) => *decision,
        other => panic!("{other:?}"),
    }
}

/// The key of an event, as a store knows it when this event is current.
fn current(event: &Event) -> KeyState {
    KeyState { floor: event.rank(), current: Some(event.id) }
}

/// The key of an event that is gone and has left its floor.
fn gone(event: &Event) -> KeyState {
    KeyState { floor: event.rank(), current: None }
}

fn mark(author: support::Author, until: u64) -> VanishMark {
    let request_id = EventId::from_bytes([6; 32]);
    VanishMark { pubkey: author.key(), until: Timestamp(until), request_id, shareable: None }
}

const NO_CHANGE: Decision = Decision {
    against: None,
    floor: None,
    taken: Vec::new(),
    tombstones: Vec::new(),
    vanish: None,
    deletion: None,
    traces: Vec::new(),
    remains: Vec::new(),
};

#[test]
fn an_unopposed_regular_event_is_effective_and_changes_nothing_else() {
    for draft in [note(), event(4), event(1_059), event(40_000), event(65_535)] {
        assert_eq!(decide(&draft.admitted(), &StoreFacts::default()), NO_CHANGE);
    }
}

#[test]
fn an_ephemeral_event_is_never_stored() {
    // E-5
    let ephemeral = event(20_001).unsigned();
    let tombstones = tombstones(&event(5).tag(["e", &ephemeral.id.to_string()]).unsigned());
    let marks = [mark(ALICE, NOW_SECONDS)];
    let known = StoreFacts { tombstones: &tombstones, vanish_marks: &marks, ..StoreFacts::default() };
    assert_eq!(decision::decide(&admitted(&ephemeral), &known, NOW), Verdict::Ephemeral);
}

#[test]
fn the_highest_version_of_a_key_is_effective() {
    // E-3, D-9
    for kind in [0, 10_002, 30_023] {
        let version = |at, content: &str| event(kind).tag(["d", "x"]).at(at).content(content).unsigned();
        let (older, newer) = (version(10, ""), version(11, ""));
        let mut tied = [version(11, "a"), version(11, "b")];
        tied.sort_by_key(|version| version.id);
        let [lower, higher] = &tied;
        for (what, arriving, key, against, takes) in [
            ("the first", &older, None, None, None),
            ("a newer one", &newer, Some(current(&older)), None, Some(&older)),
            ("an older one", &older, Some(current(&newer)), Some(&newer), None),
            ("on a tie the lower id", lower, Some(current(higher)), None, Some(higher)),
            ("on a tie the higher id", higher, Some(current(lower)), Some(lower), None),
            ("a newer one over one that is gone", &newer, Some(gone(&older)), None, None),
            ("an older one under one that is gone", &older, Some(gone(&newer)), Some(&newer), None),
        ] {
            let decision = decide(&admitted(arriving), &StoreFacts { key, ..StoreFacts::default() });
            // G-7: a version that is kept out is remembered, for requests to come.
            let remains = Remains::without_row(arriving, admitted(arriving).topics(), Reason::Replaced);
            let expected = Decision {
                remains: if against.is_some() { remains } else { Vec::new() },
                against: against.map(|by: &Event| (Reason::Replaced, by.id)),
                floor: against.is_none().then(|| arriving.rank()),
                taken: takes.map(|below: &Event| (below.id, Reason::Replaced)).into_iter().collect(),
                ..NO_CHANGE
            };
            assert_eq!(decision, expected, "kind {kind}: {what}");
        }
    }
}

#[test]
fn a_refused_version_still_raises_the_floor_and_replaces_lower_ones() {
    // D-9, D-12
    let article = |at| event(30_023).tag(["d", "x"]).at(at);
    let (old, new) = (article(10).unsigned(), article(20).unsigned());
    let deletion = event(5).tag(["e", &new.id.to_string()]).at(30).unsigned();
    let tombstones = tombstones(&deletion);
    let marks = [mark(ALICE, 20)];
    let key = Some(current(&old));
    for (what, known, against) in [
        ("deleted", StoreFacts { tombstones: &tombstones, key, ..StoreFacts::default() }, (Reason::Nip09, deletion.id)),
        (
            "vanished",
            StoreFacts { vanish_marks: &marks, key, ..StoreFacts::default() },
            (Reason::Vanish, marks[0].request_id),
        ),
    ] {
        let decision = decide(&admitted(&new), &known);
        assert_eq!(decision.against, Some(against), "{what}");
        assert_eq!(decision.floor, Some(new.rank()), "{what}");
        assert_eq!(decision.taken, [(old.id, Reason::Replaced)], "{what}");
    }
}

#[test]
fn an_event_that_expired_in_the_queue_leaves_no_trace() {
    // D-9
    let ending = |draft: Draft| draft.tag(["expiration".to_owned(), (NOW_SECONDS + 1).to_string()]);
    let then = Millis::from_secs(NOW_SECONDS + 1);
    for (what, draft, expected) in [
        ("a note", ending(note()), Some(Verdict::Refused(Refusal::Expired))),
        ("a version", ending(event(30_023).tag(["d", ""])), Some(Verdict::Refused(Refusal::Expired))),
        ("a deletion request", ending(event(5)), None),
        ("a vanish request", ending(bare(62).tag(["relay", RELAY])), None),
    ] {
        let verdict = decision::decide(&draft.admitted(), &StoreFacts::default(), then);
        match expected {
            Some(expected) => assert_eq!(verdict, expected, "{what}"),
            None => assert!(matches!(verdict, Verdict::Apply(_)), "{what}"),
        }
    }
    let just_before = Millis(then.0 - 1);
    let verdict = decision::decide(&ending(note()).admitted(), &StoreFacts::default(), just_before);
    assert_eq!(verdict, Verdict::Apply(Box::new(NO_CHANGE)), "a millisecond before its end");
}

#[test]
fn a_tombstone_of_an_owner_refuses_its_late_target() {
    // D-3, D-4, D-5, D-6, D-10
    let note = note().at(10).unsigned();
    let article = event(30_023).tag(["d", "x"]).at(10).unsigned();
    let wrap = event(1_059).tag(["p", &BOB.hex()]).at(10).unsigned();
    let request = event(5).at(10).unsigned();
    let vanish = bare(62).tag(["relay", "wss://other.example"]).at(10).unsigned();
    let by_id = |target: &Event| event(5).tag(["e", &target.id.to_string()]);
    let by_address = |target: &Event| event(5).tag(["a", &target.address().unwrap().to_string()]);
    for (what, arriving, deletion, keeps_out) in [
        ("by id", &note, by_id(&note).at(20), true),
        ("by id, from before it was made", &note, by_id(&note).at(1), true),
        ("by id, by somebody else", &note, by_id(&note).at(20).by(BOB), false),
        ("by another id", &note, by_id(&article).at(20), false),
        ("a version by id", &article, by_id(&article).at(1), true),
        ("by address, later", &article, by_address(&article).at(11), true),
        ("by address, in the same second", &article, by_address(&article).at(10), true),
        ("by address, earlier", &article, by_address(&article).at(9), false),
        ("by another address", &article, event(5).tag(["a", &format!("30023:{}:y", ALICE.hex())]).at(20), false),
        ("a gift wrap by its author", &wrap, by_id(&wrap), true),
        ("a gift wrap by its recipient", &wrap, by_id(&wrap).by(BOB), true),
        ("a gift wrap by somebody else", &wrap, by_id(&wrap).by(CAROL), false),
        ("a deletion request", &request, by_id(&request), false),
        ("a vanish request", &vanish, by_id(&vanish), false),
    ] {
        let deletion = deletion.unsigned();
        let waiting = tombstones(&deletion);
        let decision = decide(&admitted(arriving), &StoreFacts { tombstones: &waiting, ..StoreFacts::default() });
        assert_eq!(decision.against, keeps_out.then_some((Reason::Nip09, deletion.id)), "{what}");
        let met: Vec<_> = decision.tombstones.iter().map(|tombstone| tombstone.applied_at).collect();
        assert_eq!(met, vec![Some(NOW); usize::from(keeps_out)], "{what}: a tombstone that met its target says when");
    }
}

#[test]
fn a_tombstone_with_a_matched_target_is_not_changed() {
    // D-6
    let note = note().unsigned();
    let deletion = event(5).tag(["e", &note.id.to_string()]).unsigned();
    let mut known = tombstones(&deletion);
    known[0].applied_at = Some(Millis(1));
    let decision = decide(&admitted(&note), &StoreFacts { tombstones: &known, ..StoreFacts::default() });
    assert_eq!(decision.against, Some((Reason::Nip09, deletion.id)));
    assert_eq!(decision.tombstones, []);
}

#[test]
fn all_tombstones_of_an_event_are_matched_at_once() {
    // D-6: one per target and requester.
    let wrap = event(1_059).tag(["p", &BOB.hex()]).unsigned();
    let named = [ALICE, BOB, CAROL].map(|author| event(5).tag(["e", &wrap.id.to_string()]).by(author).unsigned());
    let waiting = named.iter().flat_map(tombstones).collect::<Vec<_>>();
    let decision = decide(&admitted(&wrap), &StoreFacts { tombstones: &waiting, ..StoreFacts::default() });
    let met: Vec<_> = decision.tombstones.iter().map(|tombstone| tombstone.target.requester_pubkey).collect();
    assert_eq!(met, [ALICE.key(), BOB.key()], "the one that is nobody's still waits");
}

#[test]
fn a_vanish_mark_refuses_events_its_author_owns_up_to_its_time() {
    // D-10, D-12
    let wrap = || event(1_059).tag(["p", &BOB.hex()]);
    for (what, draft, mark, keeps_out) in [
        ("earlier", note().at(9), mark(ALICE, 10), true),
        ("in the same second", note().at(10), mark(ALICE, 10), true),
        ("later", note().at(11), mark(ALICE, 10), false),
        ("somebody else's", note().at(9).by(BOB), mark(ALICE, 10), false),
        ("a gift wrap, by its recipient", wrap().at(9), mark(BOB, 10), true),
        ("a gift wrap, by somebody else", wrap().at(9), mark(CAROL, 10), false),
        ("a note that mentions them", note().at(9).tag(["p", &BOB.hex()]), mark(BOB, 10), false),
        ("a deletion request", event(5).at(9), mark(ALICE, 10), true),
        ("a vanish request", bare(62).tag(["relay", RELAY]).at(9), mark(ALICE, 10), false),
    ] {
        let decision = decide(&draft.admitted(), &StoreFacts { vanish_marks: &[mark], ..StoreFacts::default() });
        assert_eq!(decision.against, keeps_out.then_some((Reason::Vanish, mark.request_id)), "{what}");
    }
}

#[test]
fn only_a_vanish_request_for_this_relay_leaves_a_mark() {
    // D-12
    let vanish = |url: &str| bare(62).tag(["relay", url]).by(BOB).at(10).unsigned();
    for (what, request, leaves) in [
        ("for this relay", vanish(RELAY), true),
        ("for all relays", vanish("ALL_RELAYS"), true),
        ("for another relay", vanish("wss://other.example"), false),
        ("a note", note().unsigned(), false),
    ] {
        let expected = leaves.then(|| VanishMark::of(&request));
        let decision = decide(&admitted(&request), &StoreFacts::default());
        assert_eq!(decision.vanish, expected, "{what}");
        assert_eq!(Decision { vanish: None, traces: Vec::new(), ..decision }, NO_CHANGE, "{what}");
    }
}

#[test]
fn the_strongest_of_several_reasons_counts() {
    let article = event(30_023).tag(["d", "x"]).at(10).unsigned();
    let newer = event(30_023).tag(["d", "x"]).at(11).unsigned();
    let deletion = event(5).tag(["e", &article.id.to_string()]).unsigned();
    let tombstones = tombstones(&deletion);
    let marks = [mark(ALICE, 10)];
    let superseded = StoreFacts { key: Some(current(&newer)), ..StoreFacts::default() };
    let deleted = StoreFacts { tombstones: &tombstones, ..superseded };
    let vanished = StoreFacts { vanish_marks: &marks, ..deleted };
    for (known, expected) in [
        (superseded, (Reason::Replaced, newer.id)),
        (deleted, (Reason::Nip09, deletion.id)),
        (vanished, (Reason::Vanish, marks[0].request_id)),
    ] {
        let decision = decide(&admitted(&article), &known);
        assert_eq!(decision.against, Some(expected));
        assert_eq!((decision.floor, decision.taken), (None, vec![]), "a version below the floor changes no key");
    }
}

#[test]
fn a_known_id_is_answered_by_its_state() {
    // E-9
    let lasting = note().unsigned();
    let ended = note().tag(["expiration", "1"]).unsigned();
    for (event, state, expected) in [
        (&lasting, State::Effective, None),
        (&lasting, State::Deleted, Some("blocked: deleted by its author")),
        (&lasting, State::Vanished, Some("blocked: its author asked to vanish")),
        (&lasting, State::Replaced, Some("replaced: a newer version is known")),
        (&lasting, State::Expired, Some("invalid: expired")),
        (&lasting, State::Purged, Some("blocked: no longer kept here")),
        (&ended, State::Effective, Some("invalid: expired")),
        (&ended, State::Deleted, Some("blocked: deleted by its author")),
    ] {
        let answer = decision::repeat(event, state, NOW).map(|refusal| refusal.to_string());
        assert_eq!(answer.as_deref(), expected, "{state:?}");
    }
}

#[test]
fn every_reason_has_a_name_a_state_and_keeps_or_removes_rows() {
    // O-2, D-7
    for (reason, name, state, soft, physical) in [
        (Reason::Nip09, "nip09", State::Deleted, true, false),
        (Reason::Expiration, "expiration", State::Expired, false, false),
        (Reason::Replaced, "replaced", State::Replaced, true, true),
        (Reason::Vanish, "vanish", State::Vanished, false, false),
        (Reason::Retention, "retention", State::Purged, false, false),
        (Reason::Capacity, "capacity", State::Purged, false, false),
    ] {
        assert_eq!(reason.as_str(), name);
        assert_eq!(reason.state(), state, "{name}");
        assert_eq!(DeletionMode::Soft.keeps_row(reason), soft, "{name}");
        assert_eq!(DeletionMode::Physical.keeps_row(reason), physical, "{name}");
    }
}
