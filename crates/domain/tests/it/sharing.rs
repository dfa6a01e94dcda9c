//! What nodes tell each other of a topic, and what they believe (G-7, E-10).

use crate::support::{ALICE, BOB, NOW, NOW_SECONDS, RELAY, TOPIC, admitted, bare, event, note, tombstones};
use kukuri_domain::{
    Event, Rank, Reason, Timestamp, TopicId,
    decision::{self, KeyState, Row, StoreFacts, Verdict},
    deletion::Tombstone,
    remains::{Remains, Subject},
    sharing::{self, FloorHint, Held, HintVerdict, RequestRef, Trace, Window},
    vanish::VanishMark,
};

#[test]
fn private_protected_and_relay_specific_vanish_events_are_not_shared() {
    // E-10, G-7
    for (what, event, passes) in [
        ("a note", note(), true),
        ("a deletion", event(5), true),
        ("a direct message", event(4), false),
        ("a gift wrap", event(1_059), false),
        ("a protected note", note().tag(["-"]), false),
        ("a protected deletion", event(5).tag(["-"]), false),
        ("a farewell to this relay", event(62).tag(["relay", RELAY]), false),
        ("a farewell to all", event(62).tag(["relay", "ALL_RELAYS"]), true),
        ("a farewell to this one and all", event(62).tag(["relay", RELAY]).tag(["relay", "ALL_RELAYS"]), true),
    ] {
        assert_eq!(sharing::may_pass_on(&event.unsigned()), passes, "{what}");
    }
}

#[test]
fn the_time_window_bounds_regular_events_only() {
    // G-7, X-2
    let window = Window { regular_since: Timestamp(100), now: NOW };
    let ended = note().tag(["expiration", &NOW_SECONDS.to_string()]);
    for (what, event, is_shown) in [
        ("a note of its first second", note().at(100), true),
        ("a note from before", note().at(99), false),
        ("a profile from before", event(0).at(1), true),
        ("an article from before", event(30_023).tag(["d", ""]).at(1), true),
        ("a deletion from before", event(5).at(1), true),
        ("a note that has ended", ended, false),
        ("a private one", event(4), false),
    ] {
        assert_eq!(window.shows(&event.unsigned()), is_shown, "{what}");
    }
}

fn traces(event: &Event, known: &StoreFacts<'_>) -> Vec<Trace> {
    match decision::decide(&admitted(event), known, NOW) {
        Verdict::Apply(decision) => {
            let mut traces: Vec<_> = decision.traces.into_iter().map(|(_, trace)| trace).collect();
            traces.dedup();
            traces
        }
        other => panic!("{other:?}"),
    }
}

fn hint(version: &Event, request: &Event) -> FloorHint {
    FloorHint { key: version.address().expect("a key"), floor: version.rank(), request: request.id }
}

#[test]
fn a_deletion_leaves_a_trace_and_hints_of_versions_named_by_id() {
    // G-7
    let version = event(30_023).tag(["d", "x"]).at(10).unsigned();
    let id = version.id.to_string();
    let address = version.address().expect("a key").to_string();
    let by_id = event(5).tag(["e", &id]).at(11).unsigned();
    let by_address = event(5).tag(["a", &address]).at(11).unsigned();
    let early = event(5).tag(["e", &id]).at(9).unsigned();
    let foreign = event(5).tag(["e", &id]).by(BOB).at(11).unsigned();
    let protected = event(5).tag(["e", &id]).tag(["-"]).at(11).unsigned();
    for (why, request, taking, keeping) in [
        ("by id", &by_id, vec![Trace::of(&by_id), Trace::Hint(hint(&version, &by_id))], true),
        ("by address", &by_address, vec![Trace::of(&by_address)], true),
        ("by id, but older than the version", &early, vec![Trace::of(&early)], true),
        ("not the owner's", &foreign, vec![], true),
        ("protected", &protected, vec![], false),
    ] {
        let rows = [Row { event: &version, state: kukuri_domain::State::Effective }];
        assert_eq!(traces(request, &StoreFacts { targets: &rows, ..StoreFacts::default() }), taking, "{why}: it takes");
        let rows = [Row { event: &version, state: kukuri_domain::State::Deleted }];
        let known = StoreFacts { targets: &rows, ..StoreFacts::default() };
        assert_eq!(traces(request, &known), taking, "{why}: it covers what is deleted already");
        let topics = [TopicId::new_unchecked(TOPIC)];
        let remains = Remains::without_row(&version, &topics, Reason::Nip09);
        let known = StoreFacts { remains: &remains, ..StoreFacts::default() };
        assert_eq!(traces(request, &known), taking, "{why}: it covers what has no row");
        let tombstones = tombstones(request);
        if keeping {
            let known = StoreFacts { tombstones: &tombstones, ..StoreFacts::default() };
            assert_eq!(traces(&version, &known), taking, "{why}: it keeps out");
        }
    }
}

#[test]
fn a_hint_needs_a_request_of_the_keys_author() {
    // G-7, D-9
    let version = event(30_023).tag(["d", "x"]).at(10).unsigned();
    let other = event(30_023).tag(["d", "x"]).at(3).unsigned();
    let id = version.id.to_string();
    let request = event(5).tag(["e", &id]).at(12).unsigned();
    let of_note = note().tag(["e", &id]).at(12).unsigned();
    let by_bob = event(5).tag(["e", &id]).by(BOB).at(12).unsigned();
    let of_other = event(5).tag(["e", &other.id.to_string()]).at(12).unsigned();
    let protected = event(5).tag(["e", &id]).tag(["-"]).at(12).unsigned();
    let stone: &Tombstone = &tombstones(&request)[0];
    let key = |floor: &Event| Some(KeyState { floor: floor.rank(), current: Some(floor.id) });
    let taken = |raises, below, is_passed_on| HintVerdict::Taken { raises, below, is_passed_on };
    let told = hint(&version, &request);
    let later = |seconds| FloorHint { floor: Rank { created_at: Timestamp(seconds), ..told.floor }, ..told.clone() };
    let newest = event(30_023).tag(["d", "x"]).at(20).unsigned();
    let held = Held::default();
    for (why, hint, held, verdict) in [
        ("nothing is held", told.clone(), held, HintVerdict::Refused),
        ("a request is", told.clone(), Held { request: Some(&request), ..held }, taken(true, None, true)),
        ("a tombstone is", told.clone(), Held { tombstone: Some(stone), ..held }, taken(true, None, false)),
        (
            "one that is told to nobody",
            hint(&version, &protected),
            Held { request: Some(&protected), ..held },
            taken(true, None, false),
        ),
        (
            "the version is known",
            told.clone(),
            Held { is_known: true, request: Some(&request), ..held },
            HintVerdict::AlreadyKnown,
        ),
        ("another request than it says", told.clone(), Held { request: Some(&of_other), ..held }, HintVerdict::Refused),
        (
            "it does not name the version",
            hint(&version, &of_other),
            Held { request: Some(&of_other), ..held },
            HintVerdict::Refused,
        ),
        ("no request", hint(&version, &of_note), Held { request: Some(&of_note), ..held }, HintVerdict::Refused),
        ("another's request", hint(&version, &by_bob), Held { request: Some(&by_bob), ..held }, HintVerdict::Refused),
        ("up to the request's time", later(12), Held { request: Some(&request), ..held }, taken(true, None, true)),
        ("beyond it", later(13), Held { request: Some(&request), ..held }, HintVerdict::Refused),
        ("beyond a tombstone", later(13), Held { tombstone: Some(stone), ..held }, HintVerdict::Refused),
        (
            "above a current version",
            told.clone(),
            Held { request: Some(&request), key: key(&other), ..held },
            taken(true, Some(other.id), true),
        ),
        (
            "below one",
            told.clone(),
            Held { request: Some(&request), key: key(&newest), ..held },
            taken(false, None, true),
        ),
    ] {
        assert_eq!(sharing::weigh(&hint, &held), verdict, "{why}");
    }
    assert_eq!(told.key.pubkey(), ALICE.key());
}

#[test]
fn the_latest_shareable_request_is_told_of_beside_the_strongest() {
    // G-7, D-12
    let vanish = |url: &str, at| bare(62).tag(["relay", url]).at(at).unsigned();
    let (to_all, to_us) = (vanish("ALL_RELAYS", 5), vanish(RELAY, 6));
    let (older, covered) = (vanish("ALL_RELAYS", 4), note().at(2).unsigned());
    for (why, marks) in
        [("the relay-bound one is later", [&to_all, &to_us]), ("the relay-bound one came first", [&to_us, &to_all])]
    {
        let [known, new] = marks.map(VanishMark::of);
        let merged = new.merged_with(known);
        assert_eq!((merged.until, merged.request_id), (Timestamp(6), to_us.id), "{why}");
        assert_eq!(merged.shareable, Some(RequestRef::of(&to_all)), "{why}");
        assert_eq!(VanishMark::of(&older).merged_with(merged), merged, "{why}: an older one changes nothing");
        let known = StoreFacts { vanish_marks: &[merged], ..StoreFacts::default() };
        assert_eq!(traces(&covered, &known), [Trace::of(&to_all)], "{why}: it keeps an event out");
        assert_eq!(traces(&note().at(6).unsigned(), &known), [], "{why}: it does not reach that far");
        assert_eq!(traces(&older, &known), [], "{why}: a request that reaches less far tells nothing new");
    }

    let id = covered.id.to_string();
    let plain = event(5).tag(["e", &id]).at(11).unsigned();
    let protected = event(5).tag(["e", &id]).tag(["-"]).at(12).unsigned();
    for (why, [known, new]) in [("plain first", [&plain, &protected]), ("protected first", [&protected, &plain])] {
        let merged = tombstones(new).remove(0).merged_with(tombstones(known).remove(0));
        assert_eq!(merged.deletion_id, known.id, "{why}: the first one stays");
        let known = StoreFacts { tombstones: &[merged], ..StoreFacts::default() };
        assert_eq!(traces(&covered, &known), [Trace::of(&plain)], "{why}");
    }
}

#[test]
fn events_that_no_shared_vanish_request_covers_leave_remains() {
    // G-7, D-12, E-10
    let version = event(30_023).tag(["d", "x"]).at(2).unsigned();
    let vanish = |url: &str| VanishMark::of(&bare(62).tag(["relay", url]).at(5).unsigned());
    let (id, author) = (Subject::Event(version.id), Subject::Author(ALICE.key()));
    let key = Subject::Key(version.address().expect("a key").digest());
    for (why, event, mark, subjects) in [
        ("a version", version.clone(), vanish(RELAY), vec![author, id, key]),
        ("a request", event(5).at(2).unsigned(), vanish(RELAY), vec![author]),
        ("a direct message", event(4).at(2).unsigned(), vanish(RELAY), vec![]),
        ("covered by a shared request", version.clone(), vanish("ALL_RELAYS"), vec![]),
        ("not kept out", event(30_023).tag(["d", "x"]).at(6).unsigned(), vanish(RELAY), vec![]),
    ] {
        let known = StoreFacts { vanish_marks: &[mark], ..StoreFacts::default() };
        let Verdict::Apply(decision) = decision::decide(&admitted(&event), &known, NOW) else { panic!("{why}") };
        let left: Vec<_> = decision.remains.iter().map(|remains| remains.subject).collect();
        assert_eq!(left, subjects, "{why}");
        assert!(decision.remains.iter().all(|remains| remains.key.is_none()), "{why}: a vanished key is forgotten");
        for subject in left {
            assert_eq!(Subject::from_bytes(&subject.to_bytes()), Some(subject));
        }
    }
    assert_eq!(Subject::from_bytes(&[b'x'; 33]), None);
}
