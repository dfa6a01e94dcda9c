//! Filters as clients write them (NIP-01): which are read, as what, and why the others are not.

use crate::support::{ALICE, BOB, TOPIC, note};
use kukuri_domain::{
    Filter, Kind, Letter, Timestamp,
    topic::{TopicRules, TopicsMode},
};

fn read(json: &str) -> Filter {
    Filter::from_json(json).unwrap_or_else(|malformed| panic!("{json}: {malformed}"))
}

/// Refused in one short line that names what is wrong.
#[track_caller]
fn assert_malformed(what: &str, json: impl AsRef<[u8]>, named: &str) {
    let message = Filter::from_json(json).expect_err(what).to_string();
    assert!(message.contains(named), "{what}: `{message}` does not say `{named}`");
    assert!(!message.contains(char::is_control), "{what}: more than one line: {message:?}");
    assert!(message.chars().count() < 300, "{what}: {} characters", message.chars().count());
}

#[test]
fn every_condition_is_parsed() {
    let id = note().signed().id;
    let (alice, bob) = (ALICE.key(), BOB.key());
    let json = format!(
        r##"{{"ids":["{id}"],"authors":["{alice}","{bob}"],"kinds":[1,0],"#t":["{TOPIC}"],"#E":["x"],"since":5,"until":6,"limit":7}}"##
    );
    let built = Filter::new()
        .with_ids([id])
        .with_authors([bob, alice])
        .with_kinds([Kind(0), Kind(1)])
        .with_tag(Letter::from_name("E").unwrap(), ["x"])
        .with_tag(Letter::T, [TOPIC])
        .with_since(Timestamp(5))
        .with_until(Timestamp(6))
        .with_limit(7);
    assert_eq!(read(&json), built);
    assert_eq!(built.value_count(), 7);
    assert_eq!(built.tag_values(Letter::T), Some(&[TOPIC.into()][..]));
    assert_eq!(built.tag_values(Letter::E), None, "#E is not #e");
}

#[test]
fn different_spellings_parse_to_the_same_filter() {
    let expected = read(r##"{"kinds":[1,2],"#e":["a","b"]}"##);
    for (what, json) in [
        ("another order of keys", r##"{"#e":["a","b"],"kinds":[1,2]}"##),
        ("another order of values", r##"{"kinds":[2,1],"#e":["b","a"]}"##),
        ("values that are there twice", r##"{"kinds":[2,1,2],"#e":["b","a","a"]}"##),
        ("white space", " {\n\"kinds\" :\t[ 1 , 2 ] ,\r\n\"#e\":[\"a\",\"b\"]} "),
        ("escapes", r##"{"\u006binds":[1,2],"\u0023e":["\u0061","b"]}"##),
    ] {
        assert_eq!(read(json), expected, "{what}");
    }
}

#[test]
fn an_absent_list_is_no_condition_and_an_empty_one_matches_nothing() {
    // W-1
    let all = read("{}");
    assert_eq!(all, Filter::new());
    assert!(!all.is_empty());
    for json in
        [r#"{"ids":[]}"#, r#"{"authors":[]}"#, r#"{"kinds":[]}"#, r##"{"#t":[]}"##, r##"{"kinds":[1],"#e":[]}"##]
    {
        let filter = read(json);
        assert!(filter.is_empty(), "{json}");
        assert_ne!(filter, all, "{json}");
    }
    assert!(read(r#"{"since":2,"until":1}"#).is_empty(), "no time is left");
    assert!(!read(r#"{"since":2,"until":2}"#).is_empty(), "one second is left");
    assert!(!read(r#"{"limit":0}"#).is_empty(), "a limit is no condition: live events still match");
}

#[test]
fn a_limit_of_any_size_is_parsed() {
    // W-1: it is clamped, never refused.
    for (json, limit) in [
        (r#"{"limit":0}"#, Some(0)),
        (r#"{"limit":5000000}"#, Some(5_000_000)),
        (r#"{"limit":18446744073709551615}"#, Some(usize::MAX)),
        (r#"{"limit":1e300}"#, Some(usize::MAX)),
        (r#"{"limit":1.5}"#, Some(1)),
        (r#"{"limit":-1}"#, Some(0)),
        ("{}", None),
    ] {
        assert_eq!(read(json).limit(), limit, "{json}");
    }
}

#[test]
fn since_and_until_default_to_all_times() {
    let end = Timestamp(u64::MAX);
    for (json, since, until) in [
        ("{}", Timestamp(0), end),
        (r#"{"since":3}"#, Timestamp(3), end),
        (r#"{"until":3}"#, Timestamp(0), Timestamp(3)),
        (r#"{"since":0,"until":18446744073709551615}"#, Timestamp(0), end),
        (r#"{"since":9007199254740992}"#, Timestamp(1 << 53), end),
    ] {
        assert_eq!(read(json).window(), since..=until, "{json}");
    }
}

#[test]
fn a_key_that_nip01_does_not_know_is_an_error() {
    // To pass it over would be to answer another question.
    for (what, json) in [
        ("no such key", r#"{"hashtags":["x"]}"#),
        ("another case", r#"{"Kinds":[1]}"#),
        ("a tag of two letters", r##"{"#tt":["x"]}"##),
        ("a tag without a letter", r##"{"#":["x"]}"##),
        ("a tag that is a digit", r##"{"#1":["x"]}"##),
        ("a tag that is no ASCII letter", r##"{"#é":["x"]}"##),
        ("a letter without its mark", r#"{"e":["x"]}"#),
        ("two marks", r###"{"##e":["x"]}"###),
        ("an empty key", r#"{"":1}"#),
        ("a key with a line feed", r#"{"a\nb":1}"#),
        ("a key of NUL", r#"{"\u0000":1}"#),
    ] {
        assert_malformed(what, json, "is unknown; there are ids, authors, kinds");
    }
    for key in ["x".repeat(1 << 20), "🙂".repeat(100_000), "\\n".repeat(100_000)] {
        assert_malformed("a long key", format!(r#"{{"{key}":1}}"#), "filter key `");
    }
}

#[test]
fn a_repeated_key_is_refused() {
    for (key, value) in
        [("ids", "[]"), ("authors", "[]"), ("kinds", "[1]"), ("since", "1"), ("until", "1"), ("limit", "1")]
    {
        let named = format!("duplicate field `{key}`");
        assert_malformed(key, format!(r#"{{"{key}":{value},"{key}":{value}}}"#), &named);
    }
    assert_malformed("a tag", r##"{"#e":["x"],"#p":[],"#e":["x"]}"##, "`#e` is there twice");
    assert_malformed("an empty tag", r##"{"#e":[],"#e":["x"]}"##, "`#e` is there twice");
}

#[test]
fn every_condition_must_have_its_type() {
    let key = ALICE.hex();
    let (id_text, key_text) = ("an event id", "a public key");
    let (kind, time) = ("a kind from 0 to 65535", "a time in whole seconds");
    let list = "a sequence";
    for (json, named) in [
        (r#"{"ids":null}"#.to_owned(), list),
        (r#"{"ids":{}}"#.to_owned(), list),
        (format!(r#"{{"authors":"{key}"}}"#), list),
        (r#"{"kinds":1}"#.to_owned(), list),
        (r##"{"#t":"x"}"##.to_owned(), list),
        (r#"{"ids":["abcd"]}"#.to_owned(), "an event id must be 64 lowercase hex digits"),
        (r#"{"ids":[1]}"#.to_owned(), id_text),
        (format!(r#"{{"authors":["{}"]}}"#, &key[1..]), "a public key must be 64 lowercase hex digits"),
        (format!(r#"{{"authors":["{}"]}}"#, key.to_uppercase()), "a public key must be 64 lowercase hex digits"),
        (format!(r#"{{"authors":["{key}0"]}}"#), "a public key must be 64 lowercase hex digits"),
        (r#"{"authors":[null]}"#.to_owned(), key_text),
        (r#"{"kinds":["1"]}"#.to_owned(), kind),
        (r#"{"kinds":[65536]}"#.to_owned(), kind),
        (r#"{"kinds":[-1]}"#.to_owned(), kind),
        (r#"{"kinds":[1.0]}"#.to_owned(), kind),
        (r#"{"kinds":[1e3]}"#.to_owned(), kind),
        (r##"{"#t":[1]}"##.to_owned(), "a string"),
        (r##"{"#t":[["x"]]}"##.to_owned(), "a string"),
        (r##"{"#t":["\ud83d"]}"##.to_owned(), "hex escape"),
        (r#"{"since":-1}"#.to_owned(), time),
        (r#"{"since":1.5}"#.to_owned(), time),
        (r#"{"since":1e3}"#.to_owned(), time),
        (r#"{"since":"1"}"#.to_owned(), time),
        (r#"{"until":null}"#.to_owned(), time),
        (r#"{"until":18446744073709551616}"#.to_owned(), time),
        (r#"{"limit":"1"}"#.to_owned(), "a limit"),
        (r#"{"limit":null}"#.to_owned(), "a limit"),
    ] {
        assert_malformed(&json, &json, named);
    }
}

#[test]
fn a_filter_is_one_json_object_and_nothing_else() {
    let object = "a filter: a JSON object";
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (what, text, named) in [
        ("nothing", "", "EOF"),
        ("white space", " \n", "EOF"),
        ("null", "null", object),
        ("a list", "[]", object),
        ("a string", r#""{}""#, object),
        ("a number", "1", object),
        ("the beginning", r#"{"kinds":[1"#, "EOF"),
        ("something after it", "{}x", "trailing characters"),
        ("another after it", "{}{}", "trailing characters"),
        ("a comma at the end", r#"{"kinds":[1],}"#, "trailing comma"),
        ("a key without quotes", "{kinds:[1]}", "key must be a string"),
        ("100,000 lists", &deep, object),
        ("100,000 lists as a value", &format!(r#"{{"kinds":{deep}}}"#), "a kind from 0 to 65535"),
        ("100,000 lists under an unknown key", &format!(r#"{{"x":{deep}}}"#), "is unknown"),
    ] {
        assert_malformed(what, text, named);
    }
    assert_malformed("bytes that are no UTF-8", b"{\"#t\":[\"\xff\"]}", "unicode");
}

#[test]
fn a_node_that_requires_topics_refuses_a_filter_without_them() {
    // T-6, T-7
    let required = TopicRules::new(TopicsMode::Required, &["kukuri:lobby"]).unwrap();
    let global = TopicRules::new(TopicsMode::Global, &["kukuri:lobby"]).unwrap();
    let user = format!("kukuri:user:{}", ALICE.hex());
    for (what, json, names_topics) in [
        ("no tag at all", "{}".to_owned(), false),
        ("another tag", r##"{"#e":["x"]}"##.to_owned(), false),
        ("an upper-case tag", format!(r##"{{"#T":["{TOPIC}"]}}"##), false),
        ("a topic", format!(r##"{{"#t":["{TOPIC}"]}}"##), true),
        ("topics of every form", format!(r##"{{"#t":["{TOPIC}","kukuri:global","{user}","kukuri:lobby"]}}"##), true),
        ("a hashtag", r##"{"#t":["bitcoin"]}"##.to_owned(), false),
        ("a hashtag beside a topic", format!(r##"{{"#t":["{TOPIC}","bitcoin"]}}"##), false),
        ("a malformed topic", r##"{"#t":["kukuri:x"]}"##.to_owned(), false),
        ("an empty list, which names no topic but a wrong one neither", r##"{"#t":[]}"##.to_owned(), true),
    ] {
        let filter = read(&json);
        assert_eq!(required.check(&filter).is_ok(), names_topics, "{what}");
        assert!(global.check(&filter).is_ok(), "{what}: in global mode everything may be asked");
        if let Err(refusal) = required.check(&filter) {
            assert_eq!(refusal.to_string(), "invalid: #t must name topics");
        }
    }
}
