//! What a deletion request takes away, leaves behind and counts (D-1 to D-6, D-12).

use std::time::{Duration, Instant};

use crate::support::{ALICE, BOB, CAROL, Draft, NOW, admitted, bare, event, note, tombstones};
use kukuri_domain::{
    Event, EventId, Millis, Reason, State, Tags, Timestamp,
    decision::{self, Decision, Row, StoreFacts, Verdict},
    deletion::{DeletionResult, Tombstone},
    sharing::RequestRef,
    vanish::VanishMark,
};

/// What the request changes where these rows are stored.
fn decide(request: &Event, rows: &[Row<'_>]) -> Decision {
    match decision::decide(&admitted(request), &StoreFacts { targets: rows, ..StoreFacts::default() }, NOW) {
        Verdict::Apply(decision) => *decision,
        other => panic!("{other:?}"),
    }
}

fn row(event: &Event, state: State) -> Row<'_> {
    Row { event, state }
}

fn effective(event: &Event) -> Row<'_> {
    row(event, State::Effective)
}

fn counted(deleted_count: usize, skipped_count: usize) -> Option<DeletionResult> {
    Some(DeletionResult { deleted_count, skipped_count })
}

trait Naming {
    fn naming(self, target: &Event) -> Self;
    fn naming_address(self, target: &Event) -> Self;
}

impl Naming for Draft {
    fn naming(self, target: &Event) -> Self {
        self.tag(["e", &target.id.to_string()])
    }

    fn naming_address(self, target: &Event) -> Self {
        self.tag(["a", &target.address().unwrap().to_string()])
    }
}

#[test]
fn a_request_is_effective_even_if_no_target_is_deleted() {
    // D-1
    let foreign = note().by(BOB).unsigned();
    for (what, draft, skipped) in [
        ("no target", event(5), 0),
        ("only malformed ones", event(5).tag(["e", "x"]).tag(["a", "x"]).tag(["e"]).tag(["a"]), 4),
        ("only somebody else's", event(5).naming(&foreign), 1),
        ("only advice", event(5).tag(["k", "1"]).tag(["p", &ALICE.hex()]), 0),
    ] {
        let decision = decide(&draft.unsigned(), &[effective(&foreign)]);
        assert_eq!(decision.against, None, "{what}");
        assert_eq!(decision.deletion, counted(0, skipped), "{what}");
        assert_eq!((decision.taken, decision.tombstones), (vec![], vec![]), "{what}");
    }
}

#[test]
fn a_request_deletes_the_stored_targets_of_its_author() {
    // D-2 to D-5, D-10
    let mine = note().at(10).unsigned();
    let foreign = note().at(10).by(BOB).unsigned();
    let old = event(30_023).tag(["d", "x"]).at(10).unsigned();
    let new = event(30_023).tag(["d", "x"]).at(20).unsigned();
    let newest = event(30_023).tag(["d", "x"]).at(30).unsigned();
    let profile = event(0).at(10).unsigned();
    let wrap = event(1_059).tag(["p", &BOB.hex()]).at(10).unsigned();
    let request = event(5).at(10).unsigned();
    let vanish = bare(62).tag(["relay", "wss://other.example"]).at(10).unsigned();
    let rows = [
        effective(&mine),
        effective(&foreign),
        row(&old, State::Replaced),
        row(&new, State::Replaced),
        effective(&newest),
        effective(&profile),
        effective(&wrap),
        effective(&request),
        effective(&vanish),
    ];
    let deletion = || event(5).at(20);
    for (what, draft, takes, skipped) in [
        ("its own note", deletion().naming(&mine), vec![&mine], 0),
        ("its own note, named before it was made", deletion().at(1).naming(&mine), vec![&mine], 0),
        ("somebody else's note", deletion().naming(&foreign), vec![], 1),
        ("one of each: the others go on", deletion().naming(&foreign).naming(&mine).tag(["e", "x"]), vec![&mine], 2),
        ("an address, up to its own second", deletion().naming_address(&old), vec![&old, &new], 0),
        ("an address, later", deletion().at(30).naming_address(&old), vec![&old, &new, &newest], 0),
        ("an address, before any version", deletion().at(9).naming_address(&old), vec![], 1),
        ("a replaceable address", deletion().naming_address(&profile), vec![&profile], 0),
        ("a version by its id, later than the request", deletion().naming(&newest), vec![&newest], 0),
        ("somebody else's address", deletion().by(BOB).naming_address(&old), vec![], 1),
        ("a gift wrap by its author", deletion().naming(&wrap), vec![&wrap], 0),
        ("a gift wrap by its recipient", deletion().by(BOB).naming(&wrap), vec![&wrap], 0),
        ("a gift wrap by somebody else", deletion().by(CAROL).naming(&wrap), vec![], 1),
        ("a deletion request", deletion().naming(&request), vec![], 1),
        ("a vanish request", deletion().naming(&vanish), vec![], 1),
        ("the same twice", deletion().naming(&mine).naming(&mine), vec![&mine], 1),
        ("by id and by address", deletion().naming(&new).naming_address(&new), vec![&old, &new], 0),
    ] {
        let decision = decide(&draft.unsigned(), &rows);
        let mut taken = decision.taken;
        let mut expected: Vec<_> = takes.iter().map(|event| (event.id, Reason::Nip09)).collect();
        taken.sort_by_key(|(id, _)| *id);
        expected.sort_by_key(|(id, _)| *id);
        assert_eq!(taken, expected, "{what}");
        assert_eq!(decision.deletion, counted(takes.len(), skipped), "{what}");
    }
}

#[test]
fn a_deleted_event_is_not_deleted_again() {
    // D-7: hidden rows of deleted events stay for audit.
    let deleted = note().at(10).unsigned();
    let rows = [row(&deleted, State::Deleted)];
    let decision = decide(&event(5).naming(&deleted).unsigned(), &rows);
    assert_eq!((decision.taken, decision.deletion), (vec![], counted(0, 1)));
    assert_eq!(decision.tombstones[0].applied_at, Some(NOW), "its target is here, if hidden");
}

#[test]
fn a_request_leaves_a_tombstone_for_each_target_its_author_may_own() {
    // D-3, D-5, D-6
    let here = note().unsigned();
    let foreign = note().by(BOB).unsigned();
    let request = event(5).content("x").unsigned();
    let to_come = note().content("to come").unsigned();
    let article = event(30_023).tag(["d", "x"]).unsigned();
    let rows = [effective(&here), effective(&foreign), effective(&request)];
    for (what, draft, expected) in [
        ("a target that is here", event(5).naming(&here), Some(Some(NOW))),
        ("one that may come", event(5).naming(&to_come), Some(None)),
        ("an address that may come", event(5).naming_address(&article), Some(None)),
        ("one that is here and somebody else's", event(5).naming(&foreign), None),
        ("one that is here and protected", event(5).naming(&request), None),
        ("somebody else's address", event(5).by(BOB).naming_address(&article), None),
        ("one that is malformed", event(5).tag(["e", "x"]), None),
        ("one that is named twice", event(5).naming(&to_come).naming(&to_come), Some(None)),
    ] {
        let deletion = draft.unsigned();
        let decision = decide(&deletion, &rows);
        let left: Vec<_> = decision.tombstones.iter().map(|tombstone| tombstone.applied_at).collect();
        assert_eq!(left, Vec::from_iter(expected), "{what}");
        for tombstone in decision.tombstones {
            assert_eq!(tombstone.deletion_id, deletion.id, "{what}");
            assert_eq!(tombstone.target.requester_pubkey, deletion.pubkey, "{what}");
            assert_eq!(tombstone.target.request_created_at, deletion.created_at, "{what}");
        }
    }
}

#[test]
fn a_matched_address_still_covers_later_versions() {
    // D-4, D-6
    let article = |at: u64| event(30_023).tag(["d", "x"]).at(at).unsigned();
    let (here, late, newer) = (article(10), article(15), article(21));
    let deletion = event(5).at(20).naming_address(&here).unsigned();
    let left = decide(&deletion, &[effective(&here)]).tombstones;
    assert_eq!(left[0].applied_at, Some(NOW));
    let against = |event: &Event| {
        let known = StoreFacts { tombstones: &left, ..StoreFacts::default() };
        match decision::decide(&admitted(event), &known, NOW) {
            Verdict::Apply(decision) => decision.against,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(against(&late), Some((Reason::Nip09, deletion.id)));
    assert_eq!(against(&newer), None);
}

#[test]
fn a_request_of_a_vanished_author_is_refused_and_still_deletes() {
    // D-10, D-12
    let mine = note().at(10).unsigned();
    let to_come = note().at(11).unsigned();
    let deletion = event(5).at(20).naming(&mine).naming(&to_come).unsigned();
    let request_id = EventId::from_bytes([6; 32]);
    let mark = VanishMark { pubkey: ALICE.key(), until: Timestamp(20), request_id, shareable: None };
    let rows = [effective(&mine)];
    let known = StoreFacts { targets: &rows, vanish_marks: &[mark], ..StoreFacts::default() };
    let Verdict::Apply(decision) = decision::decide(&admitted(&deletion), &known, NOW) else { panic!() };
    assert_eq!(decision.against, Some((Reason::Vanish, mark.request_id)));
    assert_eq!(decision.taken, [(mine.id, Reason::Nip09)]);
    assert_eq!(decision.tombstones.len(), 2);
    assert_eq!(decision.deletion, counted(1, 1));
}

#[test]
fn the_later_tombstone_of_an_address_and_the_first_of_an_id_stay() {
    // D-4, D-6
    let article = event(30_023).tag(["d", "x"]).unsigned();
    let request = |at, is_address| {
        let draft = event(5).at(at);
        if is_address { draft.naming_address(&article) } else { draft.naming(&article) }.unsigned()
    };
    let met =
        |at: Option<u64>, request: &Event| Tombstone { applied_at: at.map(Millis), ..tombstones(request).remove(0) };
    for (what, is_address, new, known, kept_at, kept_met) in [
        ("an address, later", true, (20, None), (10, None), 20, None),
        ("an address, earlier", true, (10, None), (20, None), 20, None),
        ("an address, later, known to have met", true, (20, None), (10, Some(5)), 20, Some(5)),
        ("an address, later, meeting now", true, (20, Some(7)), (10, None), 20, Some(7)),
        ("an address, earlier, meeting now", true, (10, Some(7)), (20, None), 20, Some(7)),
        ("an id, later", false, (20, None), (10, None), 10, None),
        ("an id, earlier", false, (10, None), (20, None), 20, None),
        ("an id, meeting now", false, (20, Some(7)), (10, None), 10, Some(7)),
        ("the first meeting stays", false, (20, Some(7)), (10, Some(5)), 10, Some(5)),
    ] {
        let (new_request, known_request) = (request(new.0, is_address), request(known.0, is_address));
        let merged = met(new.1, &new_request).merged_with(met(known.1, &known_request));
        let kept = if kept_at == new.0 { &new_request } else { &known_request };
        // G-7: of two requests that may be shared, the later one is.
        let latest = if new.0 > known.0 { &new_request } else { &known_request };
        let expected = Tombstone { shareable: Some(RequestRef::of(latest)), ..met(kept_met, kept) };
        assert_eq!(merged, expected, "{what}");
    }
}

#[test]
fn a_request_with_many_targets_is_decided_quickly() {
    // As many targets as the limits let in, each with many versions. Comparing each with each takes seconds.
    let article = event(30_023).tag(["d", ""]).unsigned();
    let identifiers = (0..1_200).map(|number: u32| number.to_string());
    let mut versions = Vec::new();
    for identifier in identifiers.clone() {
        let tags: Tags = [["d", &identifier]].into_iter().collect();
        versions.extend((0..40).map(|at| Event { tags: tags.clone(), created_at: Timestamp(at), ..article.clone() }));
    }
    versions.iter_mut().for_each(|version| version.id = version.true_id());
    let rows: Vec<_> = versions.iter().map(effective).collect();
    let addresses = identifiers.map(|d| ["a".to_owned(), format!("30023:{}:{d}", ALICE.hex())]);
    let request = event(5).tags(addresses).unsigned();

    let decision = decide(&request, &rows);
    // On a busy machine an attempt may be held up, but not each.
    let is_quick = |_| {
        let begun = Instant::now();
        drop(decide(&request, &rows));
        begun.elapsed() < Duration::from_secs(2)
    };
    assert!((0..5).any(is_quick));
    assert_eq!(decision.deletion, counted(48_000, 0));
    assert_eq!((decision.taken.len(), decision.tombstones.len()), (48_000, 1_200));
}
