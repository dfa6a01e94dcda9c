//! Texts that are no event: each is refused with a reason its sender can read (E-8), none with a panic.

use crate::support::{Fields, NOW_SECONDS, note, refusal_of};
use kukuri_domain::Refusal;

/// A sound, signed event, to be spoiled.
fn sound() -> Fields {
    Fields::of(&note().signed())
}

/// The refusal of a text that must be refused, after checking what holds for every refusal of a malformed event.
fn refused(what: &str, text: impl AsRef<[u8]>) -> Refusal {
    let Some(refusal) = refusal_of(text) else { panic!("{what}: it was taken in") };
    let message = refusal.to_string();
    assert_eq!(refusal.prefix(), "invalid", "{what}: {message}");
    assert!(message.starts_with("invalid: "), "{what}: {message}");
    assert!(!message.contains(char::is_control), "{what}: more than one line: {message:?}");
    assert!(message.chars().count() < 300, "{what}: {} characters", message.chars().count());
    refusal
}

/// Refused as malformed, in words that name what is wrong.
#[track_caller]
fn assert_malformed(what: &str, text: impl AsRef<[u8]>, named: &str) {
    let refusal = refused(what, text);
    assert!(matches!(refusal, Refusal::Malformed(_)), "{what}: {refusal:?}");
    assert!(refusal.to_string().contains(named), "{what}: `{refusal}` does not say `{named}`");
}

#[test]
fn the_unchanged_event_is_valid() {
    assert_eq!(refusal_of(sound().json()), None);
}

#[test]
fn every_field_must_be_present_once() {
    for name in Fields::NAMES {
        assert_malformed("missing", sound().without(name).json(), &format!("missing field `{name}`"));
        let twice = sound().and(name, sound().raw(name)).json();
        assert_malformed("twice", twice, &format!("duplicate field `{name}`"));
    }
    assert_malformed("no field at all", "{}", "missing field `id`");
}

#[test]
fn every_field_must_have_its_type() {
    let expected = [
        ("id", "an event id"),
        ("pubkey", "a public key"),
        ("created_at", "a time in whole seconds"),
        ("kind", "a kind from 0 to 65535"),
        ("tags", "a list of lists of strings"),
        ("content", "a string"),
        ("sig", "a signature"),
    ];
    let wrong = ["null", "true", "1.5", "-1", "{}", r#"{"0":"x"}"#, r#"["1"]"#, r#""1""#, "12345"];
    for (name, expects) in expected {
        for raw in wrong {
            let is_right = match name {
                "content" => raw.starts_with('"'),
                "created_at" | "kind" => raw == "12345",
                _ => false,
            };
            if is_right {
                continue;
            }
            let expects = if name == "tags" && raw.starts_with('[') { "a list of strings" } else { expects };
            assert_malformed(&format!("{name} is {raw}"), sound().set(name, raw).json(), expects);
        }
    }
}

#[test]
fn hex_must_be_lower_case_and_of_full_length() {
    for (name, digits) in [("id", 64), ("pubkey", 64), ("sig", 128)] {
        let right = sound().raw(name).trim_matches('"').to_owned();
        let message = format!("must be {digits} lowercase hex digits");
        for (what, hex) in [
            ("upper case", right.to_uppercase()),
            ("one upper-case digit", format!("{}A", &right[1..])),
            ("one digit short", right[1..].to_owned()),
            ("one byte short", right[2..].to_owned()),
            ("one digit long", format!("{right}0")),
            ("twice as long", right.repeat(2)),
            ("empty", String::new()),
            ("no hex digit", format!("{}g", &right[1..])),
            ("white space", format!(" {}", &right[1..])),
            ("a prefix", format!("0x{}", &right[2..])),
            ("as many bytes, fewer characters", format!("{}é", &right[2..])),
            ("full-width digits", "０".repeat(digits)),
        ] {
            assert_malformed(&format!("{name}: {what}"), sound().set(name, format!("\"{hex}\"")).json(), &message);
        }
    }
}

#[test]
fn numbers_must_be_plain_and_within_their_range() {
    let time = "a time in whole seconds";
    let kind = "a kind from 0 to 65535";
    for (name, raw, named, what) in [
        ("created_at", "-1", time, "negative"),
        ("created_at", "-0", time, "negative zero"),
        ("created_at", "1700000000.0", time, "a fraction, if of nothing"),
        ("created_at", "1700000000.5", time, "a fraction"),
        ("created_at", "1e3", time, "an exponent"),
        ("created_at", "1E+3", time, "an exponent with a sign"),
        ("created_at", "9007199254740992", "created_at must be below 2^53", "2^53"),
        ("created_at", "18446744073709551615", "created_at must be below 2^53", "2^64 - 1"),
        ("created_at", "18446744073709551616", time, "2^64"),
        ("created_at", "1e400", "number out of range", "more than a float holds"),
        ("created_at", &"9".repeat(400), "number out of range", "400 digits"),
        ("created_at", "01700000000", "invalid number", "a leading zero"),
        ("created_at", "+1700000000", "expected value", "a plus sign"),
        ("created_at", "0x10", "expected `,` or `}`", "a hexadecimal number"),
        ("created_at", "NaN", "expected value", "not a number"),
        ("created_at", r#""1700000000""#, time, "a string"),
        ("kind", "65536", kind, "2^16"),
        ("kind", "4294967297", kind, "what is 1 in 32 bits"),
        ("kind", "-1", kind, "negative"),
        ("kind", "1.0", kind, "a fraction, if of nothing"),
        ("kind", "1e0", kind, "an exponent"),
        ("kind", r#""1""#, kind, "a string"),
    ] {
        assert_malformed(&format!("{name} {raw}: {what}"), sound().set(name, raw).json(), named);
    }
}

#[test]
fn a_created_at_below_two_to_the_53_is_well_formed_but_too_far_ahead() {
    // E-8: the fixed bound is malformed, the configured one names itself.
    for raw in ["9007199254740991", &(NOW_SECONDS + 901).to_string()] {
        let refusal = refused("ahead", sound().set("created_at", raw).json());
        assert_eq!(
            refusal.to_string(),
            "invalid: created_at is further ahead than limits.created_at_ahead = 900 seconds"
        );
    }
}

#[test]
fn tags_must_be_lists_of_strings() {
    let list = "a tag: a list of strings";
    let item = "a tag item: a string";
    for (raw, named, what) in [
        (r#"["t"]"#, list, "a tag that is a string"),
        ("[1]", list, "a tag that is a number"),
        ("[null]", list, "a tag that is null"),
        ("[{}]", list, "a tag that is an object"),
        (r#"[["t","x"],{"t":"x"}]"#, list, "one wrong tag among others"),
        ("[[1]]", item, "a name that is a number"),
        (r#"[["t",1]]"#, item, "a value that is a number"),
        (r#"[["t",null]]"#, item, "a value that is null"),
        (r#"[["t",true]]"#, item, "a value that is a boolean"),
        (r#"[["t",["x"]]]"#, item, "a value that is a list"),
        (r#"[["t",{}]]"#, item, "a value that is an object"),
        (r#"[["t","x"]"#, "expected", "a list without its end"),
        (r#"[["t","x",]]"#, "trailing comma", "a comma too many"),
        (r#"[["t" "x"]]"#, "expected", "a comma too few"),
    ] {
        assert_malformed(what, sound().set("tags", raw).json(), named);
    }
}

#[test]
fn strings_with_nul_or_lone_surrogates_are_refused() {
    // E-8: no store can be asked to keep NUL.
    for (name, raw, named, what) in [
        ("content", r#""a\u0000b""#, "content must not hold a NUL character", "NUL in the content"),
        ("tags", r#"[["t","a\u0000"]]"#, "tags must not hold a NUL character", "NUL in a tag's value"),
        ("tags", r#"[["\u0000"]]"#, "tags must not hold a NUL character", "NUL in a tag's name"),
        ("tags", r#"[["t","x","","\u0000"]]"#, "tags must not hold a NUL character", "NUL in a later item"),
        ("content", r#""\ud83d""#, "hex escape", "a high surrogate alone"),
        ("content", r#""\ude00""#, "surrogate", "a low surrogate alone"),
        ("content", r#""\ud83d\u0041""#, "surrogate", "a high surrogate before a letter"),
        ("tags", r#"[["t","\ude00\ud83d"]]"#, "surrogate", "a pair the wrong way round"),
        ("content", r#""\x41""#, "invalid escape", "an escape JSON does not have"),
        ("content", r#""\u00g0""#, "invalid escape", "an escape that is no hex"),
        ("content", "\"a\nb\"", "control character", "a line feed as it is"),
        ("content", "\"a\0b\"", "control character", "a NUL as it is"),
        ("content", "\"open", "expected `,` or `}`", "a string without its end"),
        ("content", "'x'", "expected value", "single quotes"),
    ] {
        assert_malformed(what, sound().set(name, raw).json(), named);
    }
}

#[test]
fn bytes_that_are_no_utf8_are_refused() {
    let json = sound().set("content", r#""@""#).json();
    let (before, after) = json.split_once('@').unwrap();
    for (what, bytes) in [
        ("a byte that never occurs", &[0xff][..]),
        ("a character cut short", &[0xe6, 0x9d]),
        ("a slash in two bytes", &[0xc0, 0xaf]),
        ("a surrogate", &[0xed, 0xa0, 0xbd]),
        ("beyond the last character", &[0xf4, 0x90, 0x80, 0x80]),
        ("a continuation alone", &[0x80]),
    ] {
        assert_malformed(what, [before.as_bytes(), bytes, after.as_bytes()].concat(), "an event is UTF-8 text");
    }
    let unknown = sound().and("x", r#""@""#).json();
    let (before, after) = unknown.split_once('@').unwrap();
    let text = [before.as_bytes(), b"\xff", after.as_bytes()].concat();
    assert_malformed("in a field that is passed over", text, "an event is UTF-8 text");
    assert_malformed("UTF-16", json.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>(), "key must be");
}

#[test]
fn an_event_is_one_json_object_and_nothing_else() {
    let json = sound().json();
    let object = "an event is a JSON object";
    for (what, text, named) in [
        ("nothing", String::new(), object),
        ("white space", " \n ".to_owned(), object),
        ("null", "null".to_owned(), object),
        ("a string", serde_json::to_string(&json).unwrap(), object),
        (
            "a list of the right fields",
            format!("[{}]", Fields::NAMES.map(|name| sound().raw(name).to_owned()).join(",")),
            object,
        ),
        ("a client's whole message", format!(r#"["EVENT",{json}]"#), object),
        ("a byte order mark first", format!("\u{feff}{json}"), object),
        ("the first half", json[..json.len() / 2].to_owned(), "EOF"),
        ("all but the last byte", json[..json.len() - 1].to_owned(), "EOF"),
        ("only the beginning", "{".to_owned(), "EOF"),
        ("a letter after it", format!("{json}x"), "trailing characters"),
        ("a second event after it", format!("{json}{json}"), "trailing characters"),
        ("a NUL after it", format!("{json}\0"), "trailing characters"),
        ("a comma at the end", json.replace('}', ",}"), "trailing comma"),
        ("names without quotes", json.replace(r#""id""#, "id"), "key must be a string"),
        ("a comment", json.replace('{', "{/**/"), "key must be a string"),
    ] {
        assert_malformed(what, text, named);
    }
}

#[test]
fn a_huge_text_is_refused_by_the_limit_it_breaks() {
    // E-8: the limit and its value are named.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text_of = |items: usize, one: &str| format!("[{}]", vec![one; items].join(","));
    for (what, text, message) in [
        (
            "10 MB of content",
            sound().set("content", format!("\"{}\"", "x".repeat(10 << 20))).json(),
            "invalid: event is larger than limits.event_bytes = 131072",
        ),
        (
            "10 MB of white space",
            format!("{}{}", " ".repeat(10 << 20), sound().json()),
            "invalid: event is larger than limits.event_bytes = 131072",
        ),
        (
            "10 MB of nothing in particular",
            "x".repeat(10 << 20),
            "invalid: event is larger than limits.event_bytes = 131072",
        ),
        (
            "100,000 tags",
            sound().set("tags", text_of(100_000, r#"["a"]"#)).json(),
            "invalid: event has more tags than limits.tag_count = 2000",
        ),
        (
            "100,000 tags without a name",
            sound().set("tags", text_of(100_000, "[]")).json(),
            "invalid: event has more tags than limits.tag_count = 2000",
        ),
        (
            "one tag of 100,000 items",
            sound().set("tags", format!("[{}]", text_of(100_000, r#""a""#))).json(),
            "invalid: tags are larger than limits.tags_bytes = 98304",
        ),
        (
            "100,000 lists where a tag item should be",
            sound().set("tags", format!("[[{deep}]]")).json(),
            "a tag item: a string",
        ),
        ("100,000 lists where the content should be", sound().set("content", &deep).json(), "a string"),
        ("100,000 lists and nothing else", deep.clone(), "an event is a JSON object"),
        ("100,000 objects, none of them an event", r#"{"id":"#.repeat(100_000), "an event id"),
    ] {
        let refusal = refused(what, text);
        assert!(refusal.to_string().contains(message), "{what}: {refusal}");
    }
}

#[test]
fn a_message_quotes_a_bounded_part_of_the_text() {
    for (what, raw) in [
        ("a long wrong id", format!("\"{}\"", "z".repeat(500_000))),
        ("a long line of line feeds", format!("\"{}\"", r"\n".repeat(200_000))),
        ("long characters", format!("\"{}\"", "🙂".repeat(100_000))),
    ] {
        for name in ["created_at", "kind", "tags"] {
            assert_malformed(what, sound().set(name, &*raw).json(), "invalid type: string");
        }
    }
}
