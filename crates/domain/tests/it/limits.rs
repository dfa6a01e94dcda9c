//! How large an event may be and how far ahead (E-8): each limit holds to the byte, and its refusal names it.

use std::time::Duration;

use kukuri_domain::{
    Admission, Limits, Origin, Refusal,
    limits::{Limit, OverLimit},
};

use crate::support::{self, Draft, NOW, NOW_SECONDS, OTHER_TOPIC, TOPIC, note, refusal_of, relay};

/// Text in one tag of a note: `t` and its topic.
const TOPIC_TAG_BYTES: usize = 1 + support::TOPIC.len();

fn over(limit: Limit, allowed: usize) -> Refusal {
    Refusal::OverLimit(OverLimit { limit, allowed })
}

fn future(seconds: u64) -> Refusal {
    Refusal::Future(Duration::from_secs(seconds))
}

/// What a node with these limits says to it.
fn refusal_within(limits: Limits, draft: Draft) -> Option<Refusal> {
    let node = Admission { limits, ..relay() };
    node.admit(&draft.json(), Origin::unauthenticated_client(), NOW).err()
}

#[test]
fn an_event_at_a_limit_is_admitted_and_one_past_it_refused() {
    let small = Limits {
        event_bytes: 2_000,
        tag_count: 3,
        tags_bytes: 300,
        tag_bytes: 100,
        topics_per_event: 1,
        content_bytes: 64,
        created_at_ahead: Duration::from_secs(60),
    };
    let padded = |bytes: usize| note().tag(["x".to_owned(), "y".repeat(bytes - 1)]);
    let rest = 300 - TOPIC_TAG_BYTES;
    for (what, at, past, refusal) in [
        ("content", note().content("x".repeat(64)), note().content("x".repeat(65)), over(Limit::ContentBytes, 64)),
        (
            "bytes, not characters",
            note().content("é".repeat(32)),
            note().content("é".repeat(33)),
            over(Limit::ContentBytes, 64),
        ),
        (
            "the number of tags",
            note().tags([["a"], ["b"]]),
            note().tags([["a"], ["b"], ["c"]]),
            over(Limit::TagCount, 3),
        ),
        ("one tag", padded(100), padded(101), over(Limit::TagBytes, 100)),
        (
            "one tag in many items",
            note().tags([vec!["x"; 100]]),
            note().tags([vec!["x"; 101]]),
            over(Limit::TagBytes, 100),
        ),
        (
            "all tags",
            note().tags(["a".repeat(100), "b".repeat(rest - 100)].map(|item| [item])),
            note().tags(["a".repeat(100), "b".repeat(rest - 99)].map(|item| [item])),
            over(Limit::TagsBytes, 300),
        ),
        (
            "the number of topics",
            note().tag(["t", TOPIC]),
            note().tag(["t", OTHER_TOPIC]),
            over(Limit::TopicsPerEvent, 1),
        ),
        ("the time ahead", note().at(NOW_SECONDS + 60), note().at(NOW_SECONDS + 61), future(60)),
    ] {
        let small = Limits { tag_bytes: if what == "all tags" { 200 } else { small.tag_bytes }, ..small.clone() };
        assert_eq!(refusal_within(small.clone(), at), None, "{what}, at the limit");
        assert_eq!(refusal_within(small, past), Some(refusal), "{what}, past it");
    }
}

#[test]
fn event_bytes_counts_the_json_as_stored() {
    let draft = note().content("\"é\u{1}");
    let bytes = draft.clone().json().len();
    let limits = |event_bytes| Limits { event_bytes, ..Limits::default() };
    assert_eq!(refusal_within(limits(bytes), draft.clone()), None);
    assert_eq!(refusal_within(limits(bytes - 1), draft.clone()), Some(over(Limit::EventBytes, bytes - 1)));

    let node = Admission { limits: limits(bytes), ..relay() };
    let json = String::from_utf8(draft.json()).unwrap();
    let longer = json.replace('é', "\\u00e9").replace("\":", "\" : ");
    assert!(longer.len() > bytes);
    assert!(
        node.admit(longer.as_bytes(), Origin::unauthenticated_client(), NOW).is_ok(),
        "another spelling weighs the same"
    );
}

#[test]
fn a_text_of_more_than_six_times_the_event_bytes_is_not_parsed() {
    let node = Admission { limits: Limits { event_bytes: 1_000, ..Limits::default() }, ..relay() };
    let json = note().json();
    let padded = |length: usize| [" ".repeat(length - json.len()).into_bytes(), json.clone()].concat();
    let refusal = |text: &[u8]| node.admit(text, Origin::unauthenticated_client(), NOW).err();
    assert_eq!(refusal(&padded(6_000)), None);
    assert_eq!(refusal(&padded(6_001)), Some(over(Limit::EventBytes, 1_000)));
    assert_eq!(refusal(&b"x".repeat(6_001)), Some(over(Limit::EventBytes, 1_000)), "whatever it holds");
}

#[test]
fn the_defaults_admit_an_event_at_each_limit() {
    let tag = |bytes: usize| vec!["x".to_owned(), "y".repeat(bytes - 1)];
    // Eleven full tags and one that leaves room for the topic.
    let tags_of = |bytes: usize| {
        let mut tags = vec![tag(8_192); 11];
        tags.push(tag(bytes - 11 * 8_192 - TOPIC_TAG_BYTES));
        note().tags(tags)
    };
    for (what, at, past, refusal) in [
        (
            "content",
            note().content("x".repeat(98_304)),
            note().content("x".repeat(98_305)),
            over(Limit::ContentBytes, 98_304),
        ),
        ("tag count", note().tags(vec![["a"]; 1_999]), note().tags(vec![["a"]; 2_000]), over(Limit::TagCount, 2_000)),
        ("one tag", note().tags([tag(8_192)]), note().tags([tag(8_193)]), over(Limit::TagBytes, 8_192)),
        ("all tags", tags_of(98_304), tags_of(98_305), over(Limit::TagsBytes, 98_304)),
        ("ahead", note().at(NOW_SECONDS + 900), note().at(NOW_SECONDS + 901), future(900)),
    ] {
        assert_eq!(refusal_of(at.json()), None, "{what}, at the limit");
        assert_eq!(refusal_of(past.json()), Some(refusal), "{what}, past it");
    }
    assert_eq!(refusal_of(note().at(0).json()), None, "no event is too old");
}

#[test]
fn every_refusal_names_its_configuration_key_and_value() {
    for (refusal, message) in [
        (over(Limit::EventBytes, 7), "invalid: event is larger than limits.event_bytes = 7"),
        (over(Limit::TagCount, 7), "invalid: event has more tags than limits.tag_count = 7"),
        (over(Limit::TagsBytes, 7), "invalid: tags are larger than limits.tags_bytes = 7"),
        (over(Limit::TagBytes, 7), "invalid: a tag is larger than limits.tag_bytes = 7"),
        (over(Limit::TopicsPerEvent, 7), "invalid: event names more topics than limits.topics_per_event = 7"),
        (over(Limit::ContentBytes, 7), "invalid: content is larger than limits.content_bytes = 7"),
        (future(7), "invalid: created_at is further ahead than limits.created_at_ahead = 7 seconds"),
    ] {
        assert_eq!(refusal.to_string(), message);
    }
}
