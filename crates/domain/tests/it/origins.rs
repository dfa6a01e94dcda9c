//! Protected and private events depend on who brings them (E-10).

use crate::support;
use crate::support::{ALICE, BOB, CAROL, Draft, NOW, TOPIC, client, event, gossip, note, relay};
use kukuri_domain::{Origin, Refusal, Source, sharing::may_pass_on};

fn sync() -> Origin {
    Origin::Sync { peer: [7; 32] }
}

#[track_caller]
fn assert_refusals(rows: impl IntoIterator<Item = (&'static str, Draft, Origin, Option<Refusal>)>) {
    for (what, draft, origin, expected) in rows {
        assert_eq!(relay().admit(&draft.json(), origin, NOW).err(), expected, "{what}");
    }
}

#[test]
fn a_protected_event_comes_only_from_its_authenticated_author() {
    // E-10, NIP-70
    let protected = || note().tag(["-"]);
    let unauthenticated = Some(Refusal::ProtectedUnauthenticated);
    let refused = Some(Refusal::Protected);
    assert_refusals([
        ("a stranger", protected(), Origin::unauthenticated_client(), unauthenticated.clone()),
        ("its author", protected(), client(&[ALICE]), None),
        ("its author under several keys", protected(), client(&[BOB, ALICE]), None),
        ("somebody else", protected(), client(&[BOB, CAROL]), refused.clone()),
        ("gossip", protected(), gossip(TOPIC), refused.clone()),
        ("catch-up", protected(), sync(), refused.clone()),
        ("the operator's file", protected(), Origin::Import, None),
        ("a mark with a value", note().tag(["-", "x"]), Origin::unauthenticated_client(), unauthenticated),
        ("a mark in another place", note().tag(["x", "-"]), Origin::unauthenticated_client(), None),
        ("a protected deletion request", event(5).tag(["-"]), gossip(TOPIC), refused),
    ]);
    assert_eq!(Refusal::ProtectedUnauthenticated.prefix(), "auth-required");
    assert_eq!(Refusal::Protected.prefix(), "restricted");
}

#[test]
fn private_messages_are_refused_between_nodes() {
    // E-10
    for kind in [4, 1_059, 21_059] {
        let private = || event(kind).tag(["p", &BOB.hex()]);
        let refused = Some(Refusal::PrivateBetweenNodes);
        assert_refusals([
            ("gossip", private(), gossip(TOPIC), refused.clone()),
            ("catch-up", private(), sync(), refused),
            ("a client", private(), Origin::unauthenticated_client(), None),
            ("a file", private(), Origin::Import, None),
        ]);
    }
    assert_refusals([("another kind", event(14), gossip(TOPIC), None)]);
}

#[test]
fn protected_and_private_events_are_not_passed_on() {
    // E-6, E-10, G-7
    let vanish = |relay: &str| event(62).tag(["relay", relay]);
    for (what, draft, expected) in [
        ("a note", note(), true),
        ("an ephemeral event", event(20_001), true),
        ("a deletion request", event(5), true),
        ("a protected event", note().tag(["-"]), false),
        ("a private message", event(1_059), false),
        ("an invitation", event(39_021).tag(["d", "x"]), false),
        ("an authentication", event(22_242), false),
        ("a request to vanish everywhere", vanish("ALL_RELAYS"), true),
        ("a request to vanish from one relay", vanish("wss://relay.example.com"), false),
    ] {
        assert_eq!(may_pass_on(&draft.unsigned()), expected, "{what}");
    }
}

#[test]
fn private_messages_are_shown_to_their_parties_only() {
    // E-10
    use kukuri_domain::Viewer;
    let as_keys = |authors: &[support::Author]| Viewer::Client(authors.iter().map(|author| author.key()).collect());
    for (kind, is_private) in [(4, true), (1_059, true), (21_059, true), (1, false), (14, false)] {
        let message = event(kind).tag(["p", "no key"]).tag(["p", &BOB.hex()]).unsigned();
        for (who, viewer, is_party) in [
            ("its author", as_keys(&[ALICE]), true),
            ("its recipient", as_keys(&[BOB]), true),
            ("its recipient, under another key too", as_keys(&[CAROL, BOB]), true),
            ("somebody else", as_keys(&[CAROL]), false),
            ("a stranger", Viewer::unauthenticated(), false),
            ("the node", Viewer::Node, true),
        ] {
            assert_eq!(viewer.may_see(&message), is_party || !is_private, "kind {kind}: {who}");
        }
    }
}

#[test]
fn every_origin_has_its_source() {
    for (origin, source) in [
        (client(&[ALICE]), Source::Client),
        (gossip(TOPIC), Source::Gossip),
        (sync(), Source::Sync),
        (Origin::Import, Source::Import),
    ] {
        assert_eq!(origin.source(), source);
        let admitted = relay().admit(&note().json(), origin, NOW).unwrap();
        assert_eq!(admitted.source(), source);
    }
}
