//! Queries of stored events (W-1).

use std::collections::BTreeMap;

use kukuri_domain::{Event, EventId, Filter, Kind, Letter, Sketch, Timestamp, TopicId, Viewer};

use super::{
    build::{
        ALICE, BOB, CAROL, NOW, OTHER_TOPIC, TOPIC, article, at, bare, by_id, deletion, event, later, note, profile,
    },
    subject::{Harness, Subject},
};
use crate::{
    ingest::StoreRules,
    outbox::Seq,
    port::Store,
    query::{Completeness, Count, Query},
};

/// A query of the node itself, without bounds.
fn query_of(filters: Vec<Filter>) -> Query {
    Query { filters, ..Query::of(Filter::new(), Viewer::Node, NOW) }
}

async fn ask(store: &dyn Store, filters: Vec<Filter>) -> (Vec<EventId>, u64) {
    let query = query_of(filters);
    let found = store.query(&query).await.expect("an answer");
    (found.events.iter().map(|event| event.id).collect(), store.count(&query, None).await.expect("a count").events)
}

fn ids(events: &[&Event]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}

/// W-1: order, limits, and several filters.
pub(super) async fn answers_come_newest_first_once_and_within_each_filters_limit<H: Harness>(harness: &H) {
    let [a, b, c] = by_id([note("one").at(2), note("two").at(2), note("three").at(2)]);
    let [old, new] = [note("old").at(1).build(), note("new").by(BOB).at(3).build()];
    let hidden = note("hidden").at(2).build();
    let request = deletion().of(&hidden).at(0).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&c, &old, &a, &hidden, &new, &b, &request]).await;

    let notes = || Filter::new().with_kinds([Kind(1)]);
    for (why, filters, expected, count) in [
        ("newest first, ties by the lower id", vec![notes()], vec![&new, &a, &b, &c, &old], 5),
        ("a limit cuts a tie at the lower ids", vec![notes().with_limit(3)], vec![&new, &a, &b], 5),
        ("no limit is too large", vec![notes().with_limit(usize::MAX)], vec![&new, &a, &b, &c, &old], 5),
        ("a limit of none", vec![notes().with_limit(0)], vec![], 5),
        (
            "filters are merged, and an event that both match comes once",
            vec![notes().with_until(at(2)).with_limit(2), Filter::new().with_authors([BOB]), notes().with_limit(2)],
            vec![&new, &a, &b],
            5,
        ),
        (
            "a filter's limit counts for it alone",
            vec![Filter::new().with_authors([BOB]).with_limit(1), notes().with_until(at(1)).with_limit(1)],
            vec![&new, &old],
            2,
        ),
        ("no filter at all", vec![], vec![], 0),
    ] {
        assert_eq!(ask(&*store, filters).await, (ids(&expected), count), "{why}");
    }
    let query = Query::of(notes().with_limit(1), Viewer::Node, NOW);
    let answer = store.query(&query).await.expect("an answer");
    assert_eq!(answer.seq, Seq(8), "W-2: it tells where it was read");
    assert_eq!(answer.events[0].json, new.to_json(), "the event as it is served");
    assert_eq!(answer.events[0].created_at, new.created_at);
}

/// NIP-67: an answer tells whether it is complete, where that needs no extra reads.
pub(super) async fn an_answer_tells_whether_limits_left_anything_out<H: Harness>(harness: &H) {
    let notes: [Event; 3] = [1, 2, 3].map(|second| note("text").at(second).build());
    let elsewhere = bare(1).at(9).tag(["t", OTHER_TOPIC]).build();
    let [alike, tied] = by_id([note("alike").by(BOB).at(5), note("tied").by(BOB).at(5)]);
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&notes.iter().chain([&elsewhere, &alike, &tied]).collect::<Vec<_>>()).await;

    let of = |author| Filter::new().with_tag(Letter::T, [TOPIC]).with_authors([author]);
    let here = || Filter::new().with_tag(Letter::T, [TOPIC]);
    let by_id = || Filter::new().with_ids(notes.iter().map(|note| note.id));
    for (why, filters, expected) in [
        ("without a limit", vec![here()], Completeness::Complete),
        ("fewer than the limit", vec![here().with_limit(6)], Completeness::Complete),
        ("as many as the limit", vec![here().with_limit(5)], Completeness::Complete),
        ("one more than the limit", vec![here().with_limit(4)], Completeness::Truncated),
        ("many more than the limit", vec![here().with_limit(1)], Completeness::Truncated),
        ("of two that tie, one", vec![of(BOB).with_limit(1)], Completeness::Truncated),
        ("as many ids as the limit", vec![by_id().with_limit(3)], Completeness::Complete),
        ("more ids than the limit", vec![by_id().with_limit(2)], Completeness::Truncated),
        (
            "ids that are not there",
            vec![Filter::new().with_ids([EventId::from_bytes([0; 32])]).with_limit(1)],
            Completeness::Complete,
        ),
        (
            "a filter that matches nothing, and a limit of none",
            vec![here().with_ids([]).with_limit(0)],
            Completeness::Complete,
        ),
        ("two whole answers", vec![here().with_limit(5), by_id()], Completeness::Complete),
        ("no filter at all", vec![], Completeness::Complete),
    ] {
        let answer = store.query(&query_of(filters)).await.expect("an answer");
        assert_eq!(answer.rest, expected, "{why}");
    }
    let filters = vec![here(), Filter::new().with_kinds([Kind(1)]).with_limit(1)];
    let answer = store.query(&query_of(filters)).await.expect("an answer");
    assert_ne!(answer.rest, Completeness::Truncated, "what one filter cut off, another has sent");
}

/// W-1: large events do not make an answer larger than a reader can hold.
pub(super) async fn an_answer_has_no_more_bytes_than_it_may<H: Harness>(harness: &H) {
    let events: Vec<_> = (0..4).map(|n| note(&"x".repeat(1_000)).at(n).tag(["e", "x"]).build()).collect();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&events.iter().collect::<Vec<_>>()).await;
    let size = events[0].to_json().len();
    let newest = |count: usize| ids(&events.iter().rev().take(count).collect::<Vec<_>>());
    let here = || Filter::new().with_tag(Letter::T, [TOPIC]);
    let two_tags = || here().with_tag(Letter::E, ["x"]);
    let by_id = || Filter::new().with_ids(events.iter().map(|event| event.id));
    for filter in [here(), two_tags(), by_id()] {
        for (bytes, count, why) in [
            (4 * size, 4, "all of them fit"),
            (4 * size - 1, 3, "one does not"),
            (2 * size, 2, "two do"),
            (0, 1, "one is always sent"),
        ] {
            let query = Query { bytes, ..Query::of(filter.clone(), Viewer::Node, NOW) };
            let answer = store.query(&query).await.expect("an answer");
            let found: Vec<_> = answer.events.iter().map(|event| event.id).collect();
            assert_eq!(found, newest(count), "{why}: {filter:?}");
            let is_true =
                if count == 4 { answer.rest == Completeness::Complete } else { answer.rest != Completeness::Complete };
            assert!(is_true, "{why}: {:?}", answer.rest);
        }
    }
    let filters = vec![here().with_limit(2), by_id()];
    let answer = store.query(&Query { bytes: 4 * size, ..query_of(filters) }).await;
    assert_eq!(answer.expect("an answer").events.len(), 2, "each has its share");
}

/// NIP-45.
pub(super) async fn a_count_notes_the_authors_of_what_it_counts<H: Harness>(harness: &H) {
    let target = note("target").by(CAROL).build();
    let reactions =
        [event(7).of(&target).build(), event(7).of(&target).at(1).build(), event(7).of(&target).by(BOB).build()];
    let expiring = event(7).of(&target).by(CAROL).until(10).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&reactions.iter().chain([&target, &expiring]).collect::<Vec<_>>()).await;

    let to_target = || Filter::new().with_tag(Letter::T, [TOPIC]).with_tag(Letter::E, [target.id.to_string()]);
    let mine = || to_target().with_authors([ALICE]);
    let by_id = || Filter::new().with_ids([reactions[2].id, target.id]);
    for (why, filters, now, events, authors) in [
        ("each author once", vec![to_target()], later(10), 3, &[ALICE, BOB][..]),
        ("one that is still shown", vec![to_target()], NOW, 4, &[ALICE, BOB, CAROL]),
        ("a limit is passed over", vec![mine().with_limit(1)], NOW, 2, &[ALICE]),
        ("several filters", vec![mine(), by_id(), to_target().with_kinds([])], NOW, 4, &[ALICE, BOB, CAROL]),
        ("nothing", vec![to_target().with_kinds([Kind(1)])], NOW, 0, &[]),
    ] {
        let empty = Sketch::for_filter(&to_target());
        let mut sketch = empty.clone();
        authors.iter().for_each(|author| sketch.as_mut().expect("a tag").add(author));
        let query = Query { now, ..query_of(filters) };
        assert_eq!(store.count(&query, empty).await.expect("a count"), Count { events, sketch }, "{why}");
    }
}

/// W-1: conditions.
pub(super) async fn every_condition_of_a_filter_holds<H: Harness>(harness: &H) {
    let first = note("first").at(1).tag(["e", "x"]).tag(["p", &BOB.to_string()]).build();
    let second = event(1111).by(BOB).at(2).tag(["e", "y", "x"]).tag(["E", "x"]).build();
    let third = bare(1).at(3).tag(["t", OTHER_TOPIC]).tag(["t", "tag"]).tag(["e"]).tag(["relay", "x"]).build();
    let fourth = bare(1).at(4).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&first, &second, &third, &fourth]).await;

    let e = |values: &[&str]| Filter::new().with_tag(Letter::E, values.iter().copied());
    let t = |values: &[&str]| Filter::new().with_tag(Letter::T, values.iter().copied());
    let upper_e = Letter::from_name("E").expect("a letter");
    let global = TopicId::global();
    for (why, filter, expected) in [
        ("an empty filter matches everything", Filter::new(), vec![&fourth, &third, &second, &first]),
        ("since and until are inclusive", Filter::new().with_since(at(2)).with_until(at(3)), vec![&third, &second]),
        ("a window that ends before it begins", Filter::new().with_since(at(3)).with_until(at(2)), vec![]),
        ("all of time", Filter::new().with_until(Timestamp(u64::MAX)), vec![&fourth, &third, &second, &first]),
        ("the end of time", Filter::new().with_since(Timestamp(u64::MAX)), vec![]),
        ("an id", Filter::new().with_ids([second.id, EventId::from_bytes([0; 32])]), vec![&second]),
        ("no ids", Filter::new().with_ids([]), vec![]),
        ("authors", Filter::new().with_authors([BOB]), vec![&second]),
        ("no authors", Filter::new().with_authors([]), vec![]),
        ("kinds", Filter::new().with_kinds([Kind(1111), Kind(7)]), vec![&second]),
        ("no kinds", Filter::new().with_kinds([]), vec![]),
        ("author and kind", Filter::new().with_authors([BOB]).with_kinds([Kind(1)]), vec![]),
        ("id and author", Filter::new().with_ids([first.id]).with_authors([BOB]), vec![]),
        ("a tag by its first value", e(&["x"]), vec![&first]),
        ("a tag by any of several values", e(&["y", "x", "z"]), vec![&second, &first]),
        ("no tag values", e(&[]), vec![]),
        ("letters differ by case", Filter::new().with_tag(upper_e, ["x"]), vec![&second]),
        ("two tags", e(&["x", "y"]).with_tag(Letter::P, [BOB.to_string()]), vec![&first]),
        ("a tag and an author", e(&["x", "y"]).with_authors([ALICE]), vec![&first]),
        ("a topic", t(&[TOPIC]), vec![&second, &first]),
        ("two topics", t(&[TOPIC, OTHER_TOPIC]), vec![&third, &second, &first]),
        ("a hashtag", t(&["tag"]), vec![&third]),
        ("T-7: a topic that is bound and not named", t(&[global.as_str()]), vec![&fourth]),
        ("a topic and a kind", t(&[TOPIC]).with_kinds([Kind(1)]), vec![&first]),
        ("a topic and a window", t(&[TOPIC]).with_since(at(2)), vec![&second]),
        ("a topic, an author and a limit", t(&[TOPIC, OTHER_TOPIC]).with_authors([ALICE]).with_limit(1), vec![&third]),
    ] {
        let count = expected.len() as u64;
        let all = if filter.limit().is_some() { 2 } else { count };
        assert_eq!(ask(&*store, vec![filter]).await, (ids(&expected), all), "{why}");
    }
}

/// An index may shorten or escape tag values; queries must still distinguish them.
pub(super) async fn tag_values_of_any_form_are_found_and_told_apart<H: Harness>(harness: &H) {
    let long = "x".repeat(2_000);
    let values = [
        String::new(),
        " ".into(),
        "a".into(),
        "A".into(),
        "a\u{1}".into(),
        "a\u{1}b".into(),
        "東京".into(),
        "\u{10ffff}".into(),
        "\"\\\n".into(),
        long.clone(),
        format!("{long}1"),
        format!("{long}2"),
        "ab".repeat(32),
        "AB".repeat(32),
    ];
    let events: BTreeMap<_, _> = values.iter().map(|value| (value, article(value, "text").build())).collect();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&events.values().collect::<Vec<_>>()).await;
    for (value, event) in &events {
        let filter = Filter::new().with_tag(Letter::D, [value.as_str()]);
        assert_eq!(ask(&*store, vec![filter]).await, (vec![event.id], 1), "{value:.20?}");
        let address = event.address().expect("a key");
        let key = store.explain_address(&address).await.expect("an explanation").key.expect("a version");
        assert_eq!(key.current, Some(event.id), "{value:.20?}");
    }
}

/// An index may shorten ids; queries must still distinguish them.
pub(super) async fn ids_that_begin_alike_are_told_apart<H: Harness>(harness: &H) {
    let [a, b, c] = [1, 2, 3].map(|end| {
        let mut bytes = [7; 32];
        bytes[31] = end;
        Event { id: EventId::from_bytes(bytes), ..note(&format!("note {end}")).build() }
    });
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&b, &c, &a]).await;
    for (why, filter) in [
        ("by time", Filter::new()),
        ("by author", Filter::new().with_authors([ALICE])),
        ("by topic", Filter::new().with_tag(Letter::T, [TOPIC])),
        ("by kind", Filter::new().with_kinds([Kind(1)])),
        ("by id", Filter::new().with_ids([a.id, b.id, c.id])),
    ] {
        assert_eq!(ask(&*store, vec![filter.clone()]).await, (ids(&[&a, &b, &c]), 3), "{why}");
        assert_eq!(ask(&*store, vec![filter.with_limit(1)]).await, (ids(&[&a]), 3), "{why}, the first");
    }
    store.send(&[&deletion().of(&b).at(1).build()]).await;
    let notes = Filter::new().with_kinds([Kind(1)]);
    assert_eq!(ask(&*store, vec![notes]).await, (ids(&[&a, &c]), 2), "a deletion takes the one it names");
}

/// E-3, W-1: hidden rows are in no answer.
pub(super) async fn only_effective_events_are_answered<H: Harness>(harness: &H) {
    let [old, new] = [profile("old").at(1).build(), profile("new").at(2).build()];
    let doomed = note("doomed").at(3).build();
    let request = deletion().of(&doomed).at(0).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&old, &new, &doomed, &request]).await;
    for (why, filter) in [
        ("by id", Filter::new().with_ids([old.id, new.id, doomed.id])),
        ("by author and kind", Filter::new().with_authors([ALICE]).with_kinds([Kind(0), Kind(1)])),
        ("by topic and kind", Filter::new().with_tag(Letter::T, [TOPIC]).with_kinds([Kind(0), Kind(1)])),
        ("by time", Filter::new().with_since(at(1))),
        ("with a limit", Filter::new().with_since(at(1)).with_limit(1)),
    ] {
        assert_eq!(ask(&*store, vec![filter]).await, (vec![new.id], 1), "{why}");
    }
    let found = store.get(&[old.id, new.id, doomed.id, new.id], NOW).await.expect("events");
    let found: Vec<_> = found.into_iter().map(|found| found.map(|bound| bound.event.id)).collect();
    assert_eq!(found, [None, Some(new.id), None, Some(new.id)], "by their places");
}
