//! What holds for any bytes that are read as a filter.

use crate::{
    Event, EventId, Filter, Kind, PublicKey, Signature, Timestamp, TopicId,
    topic::{TopicRules, TopicsMode},
};

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let filter = match Filter::from_json(bytes) {
        Ok(filter) => filter,
        Err(malformed) => {
            let message = malformed.to_string();
            assert!(!message.contains(char::is_control), "{message:?}");
            assert!(message.len() < 300, "{message}");
            return;
        }
    };
    assert!(filter.value_count() <= bytes.len(), "a value takes a byte at least");
    check_lists(&filter);
    check_builder(&filter);
    check_written(&filter);
    check_topics(&filter);
    check_matching(&filter);
}

/// Every list is sorted and holds each value once.
fn check_lists(filter: &Filter) {
    assert!(filter.ids().is_none_or(is_strictly_sorted));
    assert!(filter.authors().is_none_or(is_strictly_sorted));
    assert!(filter.kinds().is_none_or(is_strictly_sorted));
    assert!(filter.tags().iter().all(|(_, values)| is_strictly_sorted(values)));
    assert!(filter.tags().is_sorted_by(|(left, _), (right, _)| left < right));
}

fn is_strictly_sorted<T: Ord>(list: &[T]) -> bool {
    list.is_sorted_by(|left, right| left < right)
}

/// Built again from its own parts, it is the same filter.
fn check_builder(filter: &Filter) {
    let mut built = filter.clone();
    if let Some(ids) = filter.ids() {
        built = built.with_ids(ids.iter().rev().copied());
    }
    if let Some(authors) = filter.authors() {
        built = built.with_authors(authors.iter().rev().copied());
    }
    if let Some(kinds) = filter.kinds() {
        built = built.with_kinds(kinds.iter().chain(kinds).copied());
    }
    for (letter, values) in filter.tags() {
        built = built.with_tag(*letter, values.iter().rev().cloned());
    }
    if let Some(limit) = filter.limit() {
        built = built.with_limit(limit);
    }
    assert_eq!(&built, filter);
}

/// Written as JSON by hand, it is read as the same filter.
fn check_written(filter: &Filter) {
    let mut conditions = Vec::new();
    let mut write = |name: &str, value: serde_json::Value| conditions.push(format!(r#""{name}":{value}"#));
    if let Some(ids) = filter.ids() {
        write("ids", serde_json::json!(ids));
    }
    if let Some(authors) = filter.authors() {
        write("authors", serde_json::json!(authors));
    }
    if let Some(kinds) = filter.kinds() {
        write("kinds", serde_json::json!(kinds));
    }
    for (letter, values) in filter.tags() {
        write(&format!("#{letter}"), serde_json::json!(values));
    }
    if let Some(limit) = filter.limit() {
        write("limit", limit.into());
    }
    if let Some(words) = filter.search() {
        write("search", words.into());
    }
    write("since", filter.window().start().0.into());
    write("until", filter.window().end().0.into());
    let read = Filter::from_json(format!("{{{}}}", conditions.join(","))).expect("it is written as filters are");
    let explicit = filter.clone().with_since(*filter.window().start()).with_until(*filter.window().end());
    assert_eq!(read, explicit);
}

/// A node that requires topics takes a filter only if each of its `#t` is one.
fn check_topics(filter: &Filter) {
    let required = TopicRules::default();
    if required.check(filter).is_ok() {
        let values = filter.tag_values(crate::Letter::T).expect("it names topics");
        assert!(values.iter().all(|value| value.starts_with("kukuri:")));
    }
    let global = TopicRules::new(TopicsMode::Global, &[""; 0]).expect("nothing is reserved");
    assert!(global.check(filter).is_ok());
}

/// An event made to its measure matches, unless nothing can; one that misses a condition does not.
fn check_matching(filter: &Filter) {
    let fitting = fitting(filter);
    assert_eq!(filter.matches(&fitting, &[]), !filter.is_empty());
    assert!(Filter::new().matches(&fitting, &[]));

    let window = filter.window();
    let outside = [window.start().0.checked_sub(1), window.end().0.checked_add(1)];
    for created_at in outside.into_iter().flatten().map(Timestamp) {
        assert!(!filter.matches(&Event { created_at, ..fitting.clone() }, &[]));
    }
    for byte in [0x00, 0x5a, 0xff] {
        let id = EventId::from_bytes([byte; 32]);
        let other = Event { id, ..fitting.clone() };
        assert_eq!(filter.matches(&other, &[]), !filter.is_empty() && filter.ids().is_none_or(|ids| ids.contains(&id)));
    }
    if !filter.tags().is_empty() {
        let untagged = Event { tags: Default::default(), ..fitting };
        assert!(!filter.matches(&untagged, &[]));
        let bound = [TopicId::new_unchecked("kukuri:global")];
        assert!(!filter.matches(&untagged, &bound) || filter.tags().len() == 1);
    }
}

fn fitting(filter: &Filter) -> Event {
    let tags = filter.tags().iter().map(|(letter, values)| {
        [letter.to_string(), values.first().map(|value| value.to_string()).unwrap_or_default()]
    });
    Event {
        id: filter.ids().and_then(|ids| ids.first()).copied().unwrap_or(EventId::from_bytes([1; 32])),
        pubkey: filter.authors().and_then(|keys| keys.first()).copied().unwrap_or(PublicKey::from_bytes([2; 32])),
        created_at: *filter.window().start(),
        kind: filter.kinds().and_then(|kinds| kinds.first()).copied().unwrap_or(Kind(1)),
        tags: tags.collect(),
        content: String::new(),
        sig: Signature::from_bytes([3; 64]),
    }
}
