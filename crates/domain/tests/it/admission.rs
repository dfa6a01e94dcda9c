//! Which events come in: their form, their end, their truth, and in which order that is checked (E, X, T-9, D-12).
//!
//! Topics are in `topics.rs`, sizes in `limits.rs`, origins in `origins.rs`.

use crate::support;
use crate::support::{BOB, Draft, NOW, NOW_SECONDS, RELAY, bare, client, event, gossip, note, refusal_of, relay};
use kukuri_domain::{Admission, Event, EventId, Origin, PublicKey, Refusal, RelayUrls, Signature};

/// What is refused about each, by a relay that a stranger sends it to.
#[track_caller]
fn assert_refusals(rows: impl IntoIterator<Item = (&'static str, Draft, Option<Refusal>)>) {
    for (what, draft, expected) in rows {
        assert_eq!(refusal_of(draft.json()), expected, "{what}");
    }
}

#[test]
fn an_addressable_event_needs_a_d() {
    // E-4
    let missing = Some(Refusal::MissingIdentifier);
    assert_refusals([
        ("a d", event(30_023).tag(["d", "x"]), None),
        ("an empty d", event(30_023).tag(["d", ""]), None),
        ("no d", event(30_023), missing.clone()),
        ("a d without a value", event(30_023).tag(["d"]), missing.clone()),
        ("another tag", event(39_999).tag(["D", "x"]), missing.clone()),
        ("the lowest addressable kind", event(30_000), missing),
        ("a replaceable kind needs none", event(19_999), None),
        ("a regular kind needs none", event(40_000), None),
    ]);
    let twice = event(30_023).tag(["d", "first"]).tag(["d", "second"]).unsigned();
    assert_eq!(twice.address().unwrap().identifier(), "first", "the first d counts");
}

#[test]
fn access_control_events_are_refused_from_every_origin() {
    // E-6
    for kind in [39_020, 39_021, 39_022] {
        for origin in
            [client(&[support::ALICE]), gossip(support::TOPIC), Origin::Sync { peer: [7; 32] }, Origin::Import]
        {
            let refusal = relay().admit(&event(kind).tag(["d", "x"]).json(), origin, NOW).unwrap_err();
            assert_eq!(refusal.to_string(), "restricted: access control events are p2p-only");
        }
    }
    assert_refusals([
        ("even without topic or d", bare(39_020), Some(Refusal::P2pOnly)),
        ("the kind below", event(39_019).tag(["d", "x"]), None),
        ("the kind above", event(39_023).tag(["d", "x"]), None),
    ]);
}

#[test]
fn a_scope_other_than_public_needs_an_epoch() {
    // E-7
    let missing = Some(Refusal::MissingEpoch);
    let scoped = || note().tag(["scope", "friends"]);
    assert_refusals([
        ("no scope", note(), None),
        ("public", note().tag(["scope", "public"]), None),
        ("an epoch", scoped().tag(["epoch", "1"]), None),
        ("a large epoch", scoped().tag(["epoch", "18446744073709551615"]), None),
        ("no epoch", scoped(), missing.clone()),
        ("epoch zero", scoped().tag(["epoch", "0"]), missing.clone()),
        ("a negative epoch", scoped().tag(["epoch", "-1"]), missing.clone()),
        ("an epoch with a sign", scoped().tag(["epoch", "+1"]), missing.clone()),
        ("an epoch that is a fraction", scoped().tag(["epoch", "1.0"]), missing.clone()),
        ("an epoch that is no number", scoped().tag(["epoch", "one"]), missing.clone()),
        ("an epoch that no number holds", scoped().tag(["epoch", "18446744073709551616"]), missing.clone()),
        ("an empty epoch", scoped().tag(["epoch", ""]), missing.clone()),
        ("an epoch without a value", scoped().tag(["epoch"]), missing.clone()),
        ("public in another case is another scope", note().tag(["scope", "Public"]), missing.clone()),
        ("an empty scope is another scope", note().tag(["scope", ""]), missing.clone()),
        ("one scope of two", note().tag(["scope", "public"]).tag(["scope", "friends"]), missing),
    ]);
}

#[test]
fn an_expired_event_is_refused_unless_it_is_a_request() {
    //
    let expired = Some(Refusal::Expired);
    let ending = |seconds: u64| note().tag(["expiration".to_owned(), seconds.to_string()]);
    let long_ago = |draft: Draft| draft.tag(["expiration", "1"]);
    assert_refusals([
        ("one second to go", ending(NOW_SECONDS + 1), None),
        ("this second", ending(NOW_SECONDS), expired.clone()),
        ("a second ago", ending(NOW_SECONDS - 1), expired.clone()),
        ("long ago", ending(0), expired.clone()),
        ("ephemeral events end too", long_ago(event(20_001)), expired.clone()),
        ("a time that is none", note().tag(["expiration", "soon"]), None),
        ("an empty time", note().tag(["expiration", ""]), None),
        ("no time", note().tag(["expiration"]), None),
        ("a negative time", note().tag(["expiration", "-1"]), None),
        ("the first time counts", ending(NOW_SECONDS + 1).tag(["expiration", "1"]), None),
        ("a deletion request", long_ago(event(5)), None),
        ("a vanish request", long_ago(bare(62).tag(["relay", RELAY])), None),
        ("what a deletion request is not", long_ago(event(6)), expired),
    ]);
    assert_eq!(Refusal::Expired.to_string(), "invalid: expired");
}

#[test]
fn authentication_events_are_refused() {
    // E-10
    for origin in [client(&[support::ALICE]), gossip(support::TOPIC), Origin::Sync { peer: [7; 32] }, Origin::Import] {
        let refusal = relay().admit(&event(22_242).json(), origin, NOW).unwrap_err();
        assert_eq!(refusal.to_string(), "invalid: authentication events are not stored");
    }
}

#[test]
fn a_vanish_request_concerns_the_relays_it_names() {
    // NIP-62, D-12
    let vanish = |urls: &[&str]| bare(62).tags(urls.iter().map(|url| ["relay", url]));
    for (what, draft, vanishes) in [
        ("this relay", vanish(&[RELAY]), Ok(true)),
        ("this relay, spelled otherwise", vanish(&["WSS://Relay.Example.COM:443/"]), Ok(true)),
        ("this relay among others", vanish(&["wss://a.example", RELAY, "wss://b.example"]), Ok(true)),
        ("all relays", vanish(&["ALL_RELAYS"]), Ok(true)),
        ("all relays, in another case", vanish(&["all_relays"]), Ok(false)),
        ("another relay", vanish(&["wss://a.example"]), Ok(false)),
        ("another path on this host", vanish(&["wss://relay.example.com/other"]), Ok(false)),
        ("another scheme", vanish(&["ws://relay.example.com"]), Ok(false)),
        ("no URL", vanish(&["relay.example.com"]), Ok(false)),
        ("an empty URL", vanish(&[""]), Ok(false)),
        ("no relay", vanish(&[]), Err(Refusal::MissingRelay)),
        ("a relay tag without a value", bare(62).tag(["relay"]), Err(Refusal::MissingRelay)),
        ("a deletion request with a relay", event(5).tag(["relay", RELAY]), Ok(false)),
        ("a note with a relay", note().tag(["relay", "ALL_RELAYS"]), Ok(false)),
    ] {
        let admitted = relay().admit(&draft.json(), Origin::unauthenticated_client(), NOW);
        assert_eq!(admitted.map(|admitted| admitted.vanishes()), vanishes, "{what}");
    }
    let with_path = Admission { relay_urls: RelayUrls::new(&["wss://example.com/nostr"]), ..relay() };
    for (url, vanishes) in [("wss://example.com/nostr/", true), ("wss://example.com", false)] {
        let admitted = with_path.admit(&vanish(&[url]).json(), Origin::unauthenticated_client(), NOW).unwrap();
        assert_eq!(admitted.vanishes(), vanishes, "{url}");
    }
}

#[test]
fn a_wrong_id_or_signature_is_refused() {
    // E-1
    let sound = note().signed();
    let other = note().content("other").signed();
    let by_bob = note().by(BOB).signed();
    let off_curve = PublicKey::from_bytes([0xff; 32]);
    let rehashed = |event: Event| Event { id: event.true_id(), ..event };
    for (what, event, expected) in [
        ("as it was signed", sound.clone(), None),
        ("another content", Event { content: "changed".to_owned(), ..sound.clone() }, Some(Refusal::WrongId)),
        ("another time", Event { created_at: by_bob.created_at, ..note().at(5).signed() }, Some(Refusal::WrongId)),
        ("another id", Event { id: EventId::from_bytes([1; 32]), ..sound.clone() }, Some(Refusal::WrongId)),
        ("the id of another event", Event { id: other.id, ..sound.clone() }, Some(Refusal::WrongId)),
        (
            "another content, hashed again",
            rehashed(Event { content: "changed".to_owned(), ..sound.clone() }),
            Some(Refusal::WrongSignature),
        ),
        ("the signature of another event", Event { sig: other.sig, ..sound.clone() }, Some(Refusal::WrongSignature)),
        (
            "another author, hashed again",
            rehashed(Event { pubkey: by_bob.pubkey, ..sound.clone() }),
            Some(Refusal::WrongSignature),
        ),
        (
            "an author that is no point of the curve",
            rehashed(Event { pubkey: off_curve, ..sound.clone() }),
            Some(Refusal::WrongSignature),
        ),
        (
            "a signature of zeros",
            Event { sig: Signature::from_bytes([0; 64]), ..sound.clone() },
            Some(Refusal::WrongSignature),
        ),
        (
            "a signature of ones",
            Event { sig: Signature::from_bytes([0xff; 64]), ..sound },
            Some(Refusal::WrongSignature),
        ),
    ] {
        assert_eq!(refusal_of(event.to_json()), expected, "{what}");
    }
}

#[test]
fn every_cheap_check_comes_before_the_signature() {
    // E-9: each is refused for what costs little to see, although its signature is wrong too.
    for (what, draft, expected) in [
        ("no topic", bare(1), "invalid: missing topic"),
        ("a malformed topic", note().tag(["t", "kukuri:x"]), "invalid: malformed topic"),
        ("no d", event(30_023), "invalid: missing d"),
        ("no epoch", note().tag(["scope", "friends"]), "invalid: missing epoch"),
        ("expired", note().tag(["expiration", "1"]), "invalid: expired"),
        ("p2p-only", event(39_020).tag(["d", ""]), "restricted: access control events are p2p-only"),
        ("an authentication", event(22_242), "invalid: authentication events are not stored"),
        ("no relay", bare(62), "invalid: missing relay"),
        ("protected", note().tag(["-"]), "auth-required: protected event, only its author may publish it"),
        (
            "ahead",
            note().at(NOW_SECONDS + 901),
            "invalid: created_at is further ahead than limits.created_at_ahead = 900 seconds",
        ),
        (
            "long content",
            note().content("x".repeat(98_305)),
            "invalid: content is larger than limits.content_bytes = 98304",
        ),
        (
            "content that is long once it is escaped",
            note().content("\u{1}".repeat(98_304)),
            "invalid: event is larger than limits.event_bytes = 131072",
        ),
        ("nothing else", note(), "invalid: signature verification failed"),
    ] {
        let refusal = refusal_of(draft.unsigned().to_json()).unwrap();
        assert_eq!(refusal.to_string(), expected, "{what}");
    }
}

#[test]
fn an_admitted_event_has_its_json_and_source() {
    let event = note().signed();
    let admitted = relay().admit(&event.to_json(), Origin::Import, NOW).unwrap();
    assert_eq!(admitted.event(), &event);
    assert_eq!(admitted.json(), &event.to_json());
    assert_eq!(admitted.source(), kukuri_domain::Source::Import);
    assert!(!admitted.vanishes());
}
