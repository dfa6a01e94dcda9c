//! One event has many spellings in JSON; this node keeps and serves a single one of them.

use crate::support;
use crate::support::{Fields, NOW, note, relay};
use kukuri_domain::{Admitted, Event, Origin};

fn admit(what: &str, json: &str) -> Admitted {
    relay()
        .admit(json.as_bytes(), Origin::unauthenticated_client(), NOW)
        .unwrap_or_else(|refusal| panic!("{what}: {refusal}"))
}

/// A signed event with something in it to spell in different ways.
fn spelled() -> Event {
    note().tag(["alt", "a/b", ""]).tag(["x", "\t🙂"]).content("é \"quoted\" \\ \n \u{1}\u{7f}\u{2028}/").signed()
}

#[test]
fn what_is_kept_has_the_fields_in_the_order_of_nip01_and_no_white_space() {
    let event = spelled();
    let expected = format!(
        r#"{{"id":"{}","pubkey":"{}","created_at":1700000000,"kind":1,"tags":[["t","{}"],["alt","a/b",""],["x","\t🙂"]],"content":"{}","sig":"{}"}}"#,
        event.id,
        event.pubkey,
        support::TOPIC,
        "é \\\"quoted\\\" \\\\ \\n \\u0001\u{7f}\u{2028}/",
        event.sig,
    );
    assert_eq!(std::str::from_utf8(&event.to_json()).unwrap(), expected);
}

#[test]
fn every_spelling_of_an_event_is_stored_as_the_same_bytes() {
    let kept = spelled();
    let fields = Fields::of(&kept);
    let (json, id) = (fields.json(), kept.id.to_string());
    let escaped_content: String = kept.content.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    let reversed = Fields::NAMES.iter().rev().fold(fields.clone(), |all, name| all.without(name));
    let reversed = Fields::NAMES.iter().rev().fold(reversed, |all, name| all.and(name, fields.raw(name)));
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&json).unwrap()).unwrap();
    for (what, other) in [
        ("as it is", json.clone()),
        ("fields in another order", reversed.json()),
        ("with line feeds and indentation", pretty),
        ("with white space around it", format!(" \t\r\n{json}\r\n ")),
        ("with the slash escaped", json.replace('/', "\\/")),
        ("with every character escaped", fields.clone().set("content", format!("\"{escaped_content}\"")).json()),
        ("with hex escapes in lower case", json.replace('é', "\\u00e9").replace('🙂', "\\ud83d\\ude42")),
        ("with U+2028 and U+007F escaped", json.replace('\u{2028}', "\\u2028").replace('\u{7f}', "\\u007F")),
        ("with a field's name escaped", json.replace(r#""id""#, r#""\u0069d""#)),
        (
            "with the id escaped",
            json.replace(&id, &id.bytes().map(|digit| format!("\\u{digit:04x}")).collect::<String>()),
        ),
    ] {
        assert_eq!(admit(what, &other).json(), &kept.to_json(), "{what}");
    }
}

#[test]
fn fields_that_nip01_does_not_know_are_passed_over_and_dropped() {
    let kept = spelled();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (what, name, raw) in [
        ("a string", "relay", r#""wss://relay.example.com""#),
        ("an object", "ots", r#"{"a":[1,2,{"b":null}]}"#),
        ("a number no type holds", "n", "1e99999"),
        ("a known name in another case", "ID", "1"),
        ("100,000 lists, one in the other", "deep", &deep),
        ("a name with NUL", r"\u0000", "0"),
        ("an empty name", "", "0"),
    ] {
        let json = Fields::of(&kept).and(name, raw).json();
        assert_eq!(admit(what, &json).json(), &kept.to_json(), "{what}");
        let json = Fields::of(&kept).and(name, raw).and(name, raw).json();
        assert_eq!(admit(what, &json).json(), &kept.to_json(), "{what}, twice");
    }
}

#[test]
fn unusual_tags_are_stored_unchanged() {
    // The `nostr` crate does not build a tag without items, so the JSON is read back instead of verified.
    for tags in [r#"[[]]"#, r#"[[],[]]"#, r#"[[""]]"#, r#"[["",""],[]]"#, "[]"] {
        let json = Fields::of(&note().signed()).set("tags", tags).json();
        let event = Event::from_json(&json).unwrap();
        assert_eq!(std::str::from_utf8(&event.to_json()).unwrap(), json);
        assert_eq!(Event::from_json(event.to_json()).unwrap(), event);
    }
}
