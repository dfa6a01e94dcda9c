//! Which events a filter matches (NIP-01, W-1, T-7, T-9).

use crate::support::{ALICE, BOB, CAROL, Draft, NOW_SECONDS, OTHER_TOPIC, TOPIC, admitted, bare, event, note};
use kukuri_domain::{Event, EventId, Filter, Kind, Letter, Timestamp, TopicId};

/// One row: what is asked, and whether the event meets it.
type Row = (&'static str, Filter, bool);

#[track_caller]
fn assert_matches(event: &Event, rows: impl IntoIterator<Item = Row>) {
    for (what, filter, expected) in rows {
        assert_eq!(filter.matches(event, &[]), expected, "{what}: {filter:?}");
    }
}

fn any() -> Filter {
    Filter::new()
}

fn letter(name: &str) -> Letter {
    Letter::from_name(name).unwrap()
}

#[test]
fn a_filter_without_conditions_matches_everything() {
    for draft in [note(), bare(0).at(0), event(30_023).tag(["d", ""]).by(CAROL)] {
        assert!(any().matches(&draft.unsigned(), &[]));
    }
}

#[test]
fn a_list_matches_its_values_and_an_empty_one_nothing() {
    let event = note().unsigned();
    let id = |byte| EventId::from_bytes([byte; 32]);
    assert_matches(
        &event,
        [
            ("its id", any().with_ids([event.id]), true),
            ("its id among others", any().with_ids([id(0), event.id, id(255)]), true),
            ("other ids", any().with_ids([id(0), id(255)]), false),
            ("no id", any().with_ids([]), false),
            ("its author", any().with_authors([ALICE.key()]), true),
            ("its author among others", any().with_authors([CAROL.key(), ALICE.key(), BOB.key()]), true),
            ("other authors", any().with_authors([BOB.key()]), false),
            ("no author", any().with_authors([]), false),
            ("its kind", any().with_kinds([Kind(1)]), true),
            ("its kind among others", any().with_kinds([Kind(7), Kind(0), Kind(1)]), true),
            ("other kinds", any().with_kinds([Kind(0), Kind(2)]), false),
            ("no kind", any().with_kinds([]), false),
            ("no value of a tag it has", any().with_tag(Letter::T, [""; 0]), false),
            ("a limit of none", any().with_limit(0), true),
        ],
    );
}

#[test]
fn since_and_until_include_their_second() {
    let now = NOW_SECONDS;
    let from = |seconds| any().with_since(Timestamp(seconds));
    let to = |seconds| any().with_until(Timestamp(seconds));
    assert_matches(
        &note().at(now).unsigned(),
        [
            ("since one second before", from(now - 1), true),
            ("since that second", from(now), true),
            ("since one second after", from(now + 1), false),
            ("until one second before", to(now - 1), false),
            ("until that second", to(now), true),
            ("until one second after", to(now + 1), true),
            ("exactly that second", from(now).with_until(Timestamp(now)), true),
            ("until before since", from(now + 1).with_until(Timestamp(now - 1)), false),
        ],
    );
    assert_matches(&note().at(0).unsigned(), [("the first second", to(0).with_since(Timestamp(0)), true)]);
}

#[test]
fn all_conditions_must_hold_and_one_value_of_each_list_suffices() {
    let event = note().tag(["e", "x"]).tag(["e", "y"]).tag(["p", "z"]).unsigned();
    let all = || {
        any()
            .with_ids([event.id])
            .with_authors([ALICE.key(), BOB.key()])
            .with_kinds([Kind(1), Kind(2)])
            .with_tag(Letter::E, ["y", "not there"])
            .with_tag(Letter::P, ["z"])
            .with_since(Timestamp(NOW_SECONDS))
            .with_until(Timestamp(NOW_SECONDS))
    };
    assert_matches(
        &event,
        [
            ("every condition holds", all(), true),
            ("all but the id", all().with_ids([EventId::from_bytes([0; 32])]), false),
            ("all but the author", all().with_authors([BOB.key()]), false),
            ("all but the kind", all().with_kinds([Kind(2)]), false),
            ("all but the first tag", all().with_tag(Letter::E, ["z"]), false),
            ("all but the second tag", all().with_tag(Letter::P, ["x"]), false),
            ("all but a third tag", all().with_tag(Letter::D, [""]), false),
            ("all but since", all().with_since(Timestamp(NOW_SECONDS + 1)), false),
            ("all but until", all().with_until(Timestamp(NOW_SECONDS - 1)), false),
        ],
    );
}

#[test]
fn a_tag_matches_by_its_one_letter_and_its_first_value() {
    let event = bare(1)
        .tag(["e", "first", "second"])
        .tag(["E", "upper"])
        .tag(["d", ""])
        .tag(["q"])
        .tag(["ee", "long"])
        .tag(["p", "東京🙂"])
        .unsigned();
    assert_matches(
        &event,
        [
            ("its first value", any().with_tag(Letter::E, ["first"]), true),
            ("an item further on is no value", any().with_tag(Letter::E, ["second"]), false),
            ("the name is no value", any().with_tag(Letter::E, ["e"]), false),
            ("a part of the value", any().with_tag(Letter::E, ["firs"]), false),
            ("the value in another case", any().with_tag(Letter::E, ["First"]), false),
            ("a lower-case name is not the upper-case one", any().with_tag(Letter::E, ["upper"]), false),
            ("an upper-case name", any().with_tag(letter("E"), ["upper"]), true),
            ("an empty value", any().with_tag(Letter::D, [""]), true),
            ("a tag without a value", any().with_tag(letter("q"), [""]), false),
            ("a tag with a longer name", any().with_tag(Letter::E, ["long"]), false),
            ("a value beyond ASCII", any().with_tag(Letter::P, ["東京🙂"]), true),
            ("a tag it does not have", any().with_tag(letter("z"), ["first"]), false),
        ],
    );
}

#[test]
fn a_repeated_tag_condition_replaces_the_first() {
    let filter = any().with_tag(Letter::E, ["x"]).with_tag(Letter::E, ["y"]);
    assert_eq!(filter.tag_values(Letter::E), Some(&["y".into()][..]));
    assert!(filter.matches(&note().tag(["e", "y"]).unsigned(), &[]));
    assert!(!filter.matches(&note().tag(["e", "x"]).unsigned(), &[]));
}

#[test]
fn a_topic_matches_every_event_bound_to_it() {
    // T-4, T-7, T-9
    let global = TopicId::global();
    let asks = |topic: &str| any().with_tag(Letter::T, [topic]);
    let in_both = || note().tag(["t", OTHER_TOPIC]).tag(["t", "bitcoin"]);
    let vanish = || bare(62).tag(["relay", "ALL_RELAYS"]);
    for (what, draft, filter, expected) in [
        ("its topic", in_both(), asks(TOPIC), true),
        ("its other topic", in_both(), asks(OTHER_TOPIC), true),
        ("one of several topics", note(), any().with_tag(Letter::T, [OTHER_TOPIC, TOPIC]), true),
        ("its hashtag", in_both(), asks("bitcoin"), true),
        ("another topic", note(), asks(OTHER_TOPIC), false),
        ("a topic it is not bound to", note(), asks("kukuri:global"), false),
        ("the topic a vanish request is bound to without naming it", vanish(), asks("kukuri:global"), true),
        ("a vanish request elsewhere", vanish(), asks(TOPIC), false),
    ] as [(&str, Draft, Filter, bool); 8]
    {
        let admitted = admitted(&draft.unsigned());
        assert_eq!(filter.matches(admitted.event(), admitted.topics()), expected, "{what}");
    }

    let untagged = bare(1).unsigned();
    let bound = std::slice::from_ref(&global);
    assert!(asks("kukuri:global").matches(&untagged, bound));
    assert!(!asks("kukuri:global").matches(&untagged, &[]));
    assert!(!any().with_tag(Letter::E, ["kukuri:global"]).matches(&untagged, bound), "only #t asks for topics");
    assert!(!any().with_tag(letter("T"), ["kukuri:global"]).matches(&untagged, bound), "#T is another tag");
}
