//! What a deletion request names (D-2 to D-5) and the questions that decide on it (D-11).

use crate::support::{ALICE, BOB, CAROL, Draft, bare, event, note};
use kukuri_domain::{
    EventId, Kind, Timestamp,
    deletion::{DeletionResult, DeletionTarget, DeletionTargetKind, DeletionValidator},
};

/// The targets of a request, as its tags spell them.
fn targets(draft: Draft) -> Vec<String> {
    let parsed = DeletionTarget::parse_from_event(&draft.unsigned());
    let spelled = parsed.iter().map(|target| match &target.target {
        DeletionTargetKind::EventId(id) => format!("e {id}"),
        DeletionTargetKind::Address(address) => format!("a {address}"),
    });
    spelled.collect()
}

#[test]
fn a_request_names_events_by_id() {
    // D-2
    let id = "ab".repeat(32);
    for (what, draft, is_target) in [
        ("an id", event(5).tag(["e", &id]), true),
        ("an id with more items", event(5).tag(["e", &id, "wss://relay.example.com", "x"]), true),
        ("an upper-case id", event(5).tag(["e", &id.to_uppercase()]), false),
        ("a short id", event(5).tag(["e", &id[1..]]), false),
        ("a long id", event(5).tag(["e".to_owned(), format!("{id}0")]), false),
        ("an empty id", event(5).tag(["e", ""]), false),
        ("no id", event(5).tag(["e"]), false),
        ("an id in another tag", event(5).tag(["E", &id]).tag(["q", &id]).tag(["x", &id]), false),
        ("an id as an address", event(5).tag(["a", &id]), false),
    ] {
        let expected = if is_target { vec![format!("e {id}")] } else { vec![] };
        assert_eq!(targets(draft), expected, "{what}");
    }
}

#[test]
fn a_request_names_its_authors_events_by_address() {
    // D-2, D-3
    let (alice, bob) = (ALICE.hex(), BOB.hex());
    let named = |address: &str| event(5).tag(["a", address]);
    for (what, address, is_target) in [
        ("addressable", format!("30023:{alice}:x"), true),
        ("with colons in d", format!("30023:{alice}:a:b:"), true),
        ("with an empty d", format!("30023:{alice}:"), true),
        ("with a d of white space", format!("30023:{alice}: \n"), true),
        ("replaceable", format!("10002:{alice}:"), true),
        ("profile", format!("0:{alice}:"), true),
        ("contacts", format!("3:{alice}:"), true),
        ("replaceable with a d", format!("10002:{alice}:x"), false),
        ("without the second colon", format!("30023:{alice}"), false),
        ("regular", format!("1:{alice}:"), false),
        ("ephemeral", format!("20001:{alice}:"), false),
        ("a deletion request", format!("5:{alice}:"), false),
        ("a vanish request", format!("62:{alice}:"), false),
        ("somebody else's", format!("30023:{bob}:x"), false),
        ("an upper-case key", format!("30023:{}:x", alice.to_uppercase()), false),
        ("a short key", format!("30023:{}:x", &alice[1..]), false),
        ("no key", "30023::x".to_owned(), false),
        ("no kind", format!(":{alice}:x"), false),
        ("a negative kind", format!("-30023:{alice}:x"), false),
        ("a kind with a sign", format!("+30023:{alice}:x"), false),
        ("a kind with a space", format!(" 30023:{alice}:x"), false),
        ("no such kind", format!("65536:{alice}:x"), false),
        ("nothing", String::new(), false),
    ] {
        let expected = if is_target { vec![format!("a {address}")] } else { vec![] };
        assert_eq!(targets(named(&address)), expected, "{what}");
    }
    assert_eq!(targets(event(5).tag(["a"])), [""; 0], "an address without a value");
}

#[test]
fn repeated_targets_count_once_and_malformed_ones_are_skipped() {
    // D-2
    let (first, second) = ("11".repeat(32), "22".repeat(32));
    let address = format!("30023:{}:x", ALICE.hex());
    let draft = event(5)
        .tag(["e", &second])
        .tag(["e", "malformed"])
        .tag(["a", &address])
        .tag(["a", &format!("30023:{}:x", BOB.hex())])
        .tag(["e", &first, "with a relay"])
        .tag(["e", &second])
        .tag(["a", &address])
        .tag(["k", "30023"])
        .tag(["p", &first]);
    let mut named = targets(draft);
    named.sort();
    assert_eq!(named, [format!("a {address}"), format!("e {first}"), format!("e {second}")]);
    assert_eq!(targets(event(5)), [""; 0]);
}

#[test]
fn the_k_tag_is_only_advice() {
    // D-2
    let id = "ab".repeat(32);
    for kind in ["1", "5", "30023", "x", ""] {
        assert_eq!(targets(event(5).tag(["e", &id]).tag(["k", kind])), [format!("e {id}")]);
    }
}

#[test]
fn every_target_has_the_requester_and_the_time() {
    // D-11
    let id = EventId::from_bytes([0xab; 32]);
    let draft = event(5).tag(["e", &id.to_string()]).tag(["a", &format!("0:{}:", BOB.hex())]).by(BOB).at(7);
    let parsed = DeletionTarget::parse_from_event(&draft.unsigned());
    assert_eq!(parsed.len(), 2);
    for target in &parsed {
        assert_eq!(target.requester_pubkey, BOB.key());
        assert_eq!(target.request_created_at, Timestamp(7));
    }
    assert_eq!(parsed[0].target, DeletionTargetKind::EventId(id));
}

#[test]
fn a_target_covers_events_its_requester_owns_but_no_requests() {
    // D-3, D-4, D-5, D-10
    let article = event(30_023).tag(["d", "x"]).at(10);
    let wrap = event(1_059).tag(["p", &BOB.hex()]).tag(["p", "no key"]).at(10);
    let by_id = |draft: &Draft| event(5).tag(["e", &draft.clone().unsigned().id.to_string()]);
    let by_address = |address: &str| event(5).tag(["a", address]);
    let at_x = format!("30023:{}:x", ALICE.hex());
    let profile = format!("0:{}:", ALICE.hex());
    let vanish = bare(62).tag(["relay", "ALL_RELAYS"]);
    for (what, target, request, covers) in [
        ("its own, later", note().at(10), by_id(&note().at(10)).at(11), true),
        ("its own, earlier", note().at(10), by_id(&note().at(10)).at(9), true),
        ("another id", note().at(10), by_id(&note().at(11)), false),
        ("somebody else's", note(), by_id(&note()).by(BOB), false),
        ("a gift wrap by its recipient", wrap.clone(), by_id(&wrap).by(BOB), true),
        ("a gift wrap by a third", wrap.clone(), by_id(&wrap).by(CAROL), false),
        (
            "a message by its recipient",
            event(4).tag(["p", &BOB.hex()]),
            by_id(&event(4).tag(["p", &BOB.hex()])).by(BOB),
            false,
        ),
        ("a deletion request", event(5), by_id(&event(5)), false),
        ("a vanish request", vanish.clone(), by_id(&vanish), false),
        ("an address, later", article.clone(), by_address(&at_x).at(11), true),
        ("an address, that second", article.clone(), by_address(&at_x).at(10), true),
        ("an address, earlier", article.clone(), by_address(&at_x).at(9), false),
        ("an address of another d", article.clone().tag(["d", "y"]), by_address(&at_x.replace(":x", ":y")), false),
        ("an address of the first d", article.clone().tag(["d", "y"]), by_address(&at_x), true),
        ("an address of another kind", event(30_024).tag(["d", "x"]), by_address(&at_x), false),
        ("the same address by somebody else", article.by(BOB), by_address(&at_x), false),
        ("a replaceable address", event(0), by_address(&profile), true),
        ("a replaceable address, whatever its d", event(0).tag(["d", "x"]), by_address(&profile), true),
        ("another replaceable kind", event(3), by_address(&profile), false),
    ] {
        let parsed = DeletionTarget::parse_from_event(&request.unsigned());
        assert_eq!(parsed[0].covers(&target.unsigned()), covers, "{what}");
    }
}

#[test]
fn only_the_author_owns_an_event() {
    // D-3, D-11
    assert!(DeletionValidator::validate_pubkey_match(&ALICE.key(), &ALICE.key()));
    assert!(!DeletionValidator::validate_pubkey_match(&ALICE.key(), &BOB.key()));
}

#[test]
fn only_requests_are_protected_from_deletion() {
    // D-5, D-11
    for kind in 0..=u16::MAX {
        assert_eq!(DeletionValidator::is_protected_kind(Kind(kind)), [5, 62].contains(&kind), "kind {kind}");
    }
}

#[test]
fn the_window_of_an_address_ends_with_the_second_of_the_request() {
    // D-4, D-11
    for (event, request, is_within) in
        [(0, 0, true), (9, 10, true), (10, 10, true), (11, 10, false), (u64::MAX, 0, false), (0, u64::MAX, true)]
    {
        let answer = DeletionValidator::is_within_deletion_window(Timestamp(event), Timestamp(request));
        assert_eq!(answer, is_within, "{event} and {request}");
    }
}

#[test]
fn a_new_result_is_empty() {
    // D-11
    assert_eq!(DeletionResult::default(), DeletionResult { deleted_count: 0, skipped_count: 0 });
}
