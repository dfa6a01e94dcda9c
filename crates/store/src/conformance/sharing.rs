//! The shared set of a topic, and floor hints of other nodes (G-7).

use std::{collections::BTreeSet, time::Duration};

use kukuri_domain::{
    DeletionMode, Event, Origin, Rank, Reason, TopicId, remains,
    retention::{Keep, Retention},
    sharing::{FloorHint, Window},
};

use super::{
    build::{
        ALICE, BOB, NOW, OTHER_TOPIC, admitted_from, article, at, bare, deletion, event, later, note, other_topic,
        profile, topic, vanish,
    },
    partial_sets::{items, set_of},
    probe::{effective, rows_after},
    subject::{Harness, Subject},
};
use crate::{
    ingest::StoreRules,
    outbox::{Op, Seq},
    sharing::{HintOutcome, Item, Shared, SharedSet, Span},
};

fn item(event: &Event) -> Item {
    Item { created_at: event.created_at, id: event.id }
}

fn hint(version: &Event, request: &Event) -> FloorHint {
    FloorHint { key: version.address().expect("a key"), floor: version.rank(), request: request.id }
}

async fn opened<'h, H: Harness>(harness: &'h H, events: &[&Event]) -> Subject<'h, H> {
    let store = Subject::open(harness, StoreRules::default()).await;
    let import = events.iter().map(|event| admitted_from(event, Origin::Import)).collect();
    store.ingest(import, NOW).await.expect("a batch");
    store
}

/// E-10, X-2, G-7: effective events that may be passed on.
pub(super) async fn the_shared_set_of_a_topic_holds_its_shareable_events_and_traces<H: Harness>(harness: &H) {
    let elsewhere = bare(1).tag(["t", OTHER_TOPIC]).at(9).build();
    let ends = note("ends").until(60).at(9).build();
    let told = [
        ("a regular event", note("new").at(9).build()),
        ("one of the first second", note("first").at(5).build()),
        ("a version, however old", profile("me").at(1).build()),
        ("a request, however old", deletion().at(1).build()),
        ("a request to vanish from everywhere", vanish().by(BOB).at(1).tag(["relay", "ALL_RELAYS"]).build()),
        ("one of two topics", note("both").tag(["t", OTHER_TOPIC]).at(9).build()),
        ("one that has not ended", ends.clone()),
        ("one that only looks protected", note("[\"-\"]").tag(["x", "-"]).tag(["r", "[\"-\"]"]).at(9).build()),
    ];
    let untold = [
        ("a regular event from before", note("old").at(4).build()),
        ("a protected event", note("mine").tag(["-"]).at(9).build()),
        ("a protected version", article("mine", "").tag(["-", "x"]).at(9).build()),
        ("a protected request", deletion().tag(["-"]).at(9).build()),
        ("a direct message", event(4).at(9).build()),
        ("a gift wrap", event(1059).at(9).build()),
        ("a request to vanish from here", vanish().by(BOB).at(1).build()),
        ("an event of another topic", elsewhere),
        ("a version that was replaced", profile("nobody").at(0).build()),
    ];
    let all: Vec<&Event> = told.iter().chain(&untold).map(|(_, event)| event).collect();
    let store = opened(harness, &all).await;
    let window = Window { regular_since: at(5), now: NOW };
    let set = SharedSet { topic: topic(), window };
    let found = items(&*store, &set, 3).await;
    let ids: Vec<_> = all.iter().map(|event| event.id).collect();
    let shared = store.share(&set, &ids).await.expect("items");
    for (index, (why, event)) in told.iter().enumerate() {
        assert!(found.contains(&item(event)), "{why} is told");
        assert_eq!(shared[index], Some(Shared::Event(event.to_json())), "{why} is given");
    }
    for (index, (why, event)) in untold.iter().enumerate() {
        assert!(!found.contains(&item(event)), "{why} is not told");
        assert_eq!(shared[told.len() + index], None, "{why} is not given");
    }
    assert_eq!(found.len(), told.len());

    let after = SharedSet { window: Window { now: later(60), ..window }, ..set };
    assert!(!items(&*store, &after, 100).await.contains(&item(&ends)), "what has ended is not told, unswept");
    assert_eq!(store.share(&after, &[ends.id]).await.expect("items"), [None]);
}

/// G-7: newest first, ties by the lower id, from and before any item.
pub(super) async fn a_set_is_read_part_by_part<H: Harness>(harness: &H) {
    let notes: Vec<_> = (0..30).map(|n| note(&n.to_string()).at(n / 5).build()).collect();
    let versions: Vec<_> = (0..10).map(|n| article(&n.to_string(), "").at(n / 3).build()).collect();
    let requests: Vec<_> =
        versions.iter().map(|version| bare(5).tag(["t", OTHER_TOPIC]).of(version).at(8).build()).collect();
    let all: Vec<&Event> = notes.iter().chain(&versions).chain(&requests).collect();
    let store = opened(harness, &all).await;
    let mut expected: Vec<Item> = all.iter().map(|event| item(event)).collect();
    expected.sort_unstable();
    for limit in [1, 2, 7, 49, 50, 51] {
        assert_eq!(items(&*store, &set_of(&topic()), limit).await, expected, "pages of {limit}");
    }
    for (from, before) in [(0, 1), (3, 20), (17, 17), (20, 50), (49, 50)] {
        let span = Span { from: expected.get(from).copied(), before: expected.get(before).copied() };
        let page = store.shared(&set_of(&topic()), span, 100).await.expect("a page");
        assert_eq!((page.items.as_slice(), page.next), (&expected[from..before], None), "{from} to {before}");
    }
}

/// G-7, D-6: a request is in the shared set of each topic in which it removed an event or kept one out, regardless of
/// the topics that it is bound to itself.
pub(super) async fn requests_are_told_where_they_took_something<H: Harness>(harness: &H) {
    let target = note("target").at(2).build();
    let version = article("a", "").at(2).build();
    let elsewhere = || bare(5).tag(["t", OTHER_TOPIC]).at(3);
    let farewell = || bare(62).tag(["t", OTHER_TOPIC]).at(5);
    let request = elsewhere().of(&target).build();
    let by_key = elsewhere().of_key(&version).build();
    let foreign = elsewhere().of(&target).by(BOB).build();
    let protected = elsewhere().of(&target).tag(["-"]).build();
    let to_all = farewell().tag(["relay", "ALL_RELAYS"]).build();
    let to_us = farewell().tag(["relay", super::build::RELAY]).build();
    let to_others = farewell().tag(["relay", "wss://elsewhere.example.com"]).build();
    let stories = [
        ("it took an event away", vec![&target, &request], vec![&request]),
        ("it kept one out", vec![&request, &target], vec![&request]),
        ("it took a version away by address", vec![&version, &by_key], vec![&by_key]),
        ("it kept a version out by address", vec![&by_key, &version], vec![&by_key]),
        ("it waits for its target", vec![&request], vec![]),
        ("it is not the owner's", vec![&target, &foreign], vec![&target]),
        ("it is not the owner's, and was first", vec![&foreign, &target], vec![&target]),
        ("it may not be told at all", vec![&target, &protected], vec![]),
        ("it kept one out, and may not be told", vec![&protected, &target], vec![]),
        ("all vanished", vec![&target, &to_all], vec![&to_all]),
        ("vanished before it came", vec![&to_all, &target], vec![&to_all]),
        ("vanished from here alone", vec![&target, &to_us], vec![]),
        ("vanished from here alone, before it came", vec![&to_us, &target], vec![]),
        ("vanished from elsewhere", vec![&target, &to_others], vec![&target]),
        ("a request that vanished is followed by what took it", vec![&target, &request, &to_all], vec![&to_all]),
        ("one that vanished from here is not", vec![&target, &request, &to_us], vec![]),
    ];
    tell_of(harness, &stories).await;
}

/// G-7, D-6, D-12, E-10: a cause that may not be told hides none that may, in any order.
pub(super) async fn no_cause_hides_a_later_one_that_may_be_told<H: Harness>(harness: &H) {
    let target = note("target").at(2).build();
    let version = article("a", "").at(2).build();
    let of_other_key = article("b", "").at(2).build();
    let above = bare(30_023).tag(["d", "a"]).tag(["t", OTHER_TOPIC]).tag(["-"]).at(3).build();
    let elsewhere = |second| bare(5).tag(["t", OTHER_TOPIC]).at(second);
    let farewell = |second, relay| bare(62).tag(["t", OTHER_TOPIC]).tag(["relay", relay]).at(second).build();
    let request = elsewhere(3).of(&target).build();
    let again = elsewhere(6).of(&target).build();
    let protected = elsewhere(4).of(&target).tag(["-"]).build();
    let by_key = elsewhere(3).of_key(&version).build();
    let by_key_again = elsewhere(7).of_key(&version).build();
    let protected_by_key = elsewhere(4).of_key(&version).tag(["-"]).build();
    let to_all = farewell(5, "ALL_RELAYS");
    let to_all_early = farewell(1, "ALL_RELAYS");
    let to_us = farewell(5, super::build::RELAY);
    let to_us_later = farewell(6, super::build::RELAY);
    let stories = [
        ("vanished from here, then everywhere", vec![&target, &to_us, &to_all], vec![&to_all]),
        ("vanished everywhere, then from here", vec![&target, &to_all, &to_us], vec![&to_all]),
        ("the one from here reaches further", vec![&target, &to_us_later, &to_all], vec![&to_all]),
        ("the one from here reaches further, second", vec![&target, &to_all, &to_us_later], vec![&to_all]),
        ("a late event after both", vec![&to_us_later, &to_all, &target], vec![&to_all]),
        ("a late event after both, turned round", vec![&to_all, &to_us_later, &target], vec![&to_all]),
        ("a late event in between", vec![&to_us_later, &target, &to_all], vec![&to_all]),
        ("the one for all does not reach it", vec![&target, &to_us, &to_all_early], vec![]),
        ("nor a late one", vec![&to_us, &to_all_early, &target], vec![]),
        ("a protected deletion, then a plain one", vec![&target, &protected, &request], vec![&request]),
        ("a plain deletion, then a protected one", vec![&target, &request, &protected], vec![&request]),
        ("a late target after both", vec![&protected, &request, &target], vec![&request]),
        ("a late target after both, turned round", vec![&request, &protected, &target], vec![&request]),
        ("a late target in between", vec![&protected, &target, &request], vec![&request]),
        ("the same by address", vec![&version, &protected_by_key, &by_key], vec![&by_key]),
        ("by address, turned round", vec![&version, &by_key, &protected_by_key], vec![&by_key]),
        ("by address, a late version", vec![&protected_by_key, &by_key, &version], vec![&by_key]),
        ("by address, a late version, turned round", vec![&by_key, &protected_by_key, &version], vec![&by_key]),
        ("by address, a version in between", vec![&protected_by_key, &version, &by_key], vec![&by_key]),
        ("by another address", vec![&of_other_key, &protected_by_key, &to_us, &by_key_again], vec![]),
        ("a protected deletion, then vanished everywhere", vec![&target, &protected, &to_all], vec![&to_all]),
        ("kept out by a protected deletion, then vanished", vec![&protected, &target, &to_all], vec![&to_all]),
        ("vanished from here, then deleted", vec![&target, &to_us, &again], vec![&again]),
        ("vanished from here, then deleted by address", vec![&version, &to_us, &by_key_again], vec![&by_key_again]),
        ("kept out as vanished, then deleted", vec![&to_us, &target, &again], vec![&again]),
        ("a request vanished from here, then everywhere", vec![&target, &request, &to_us, &to_all], vec![&to_all]),
        ("a request vanished everywhere, then from here", vec![&target, &request, &to_all, &to_us], vec![&to_all]),
        ("of two requests the first vanished from here", vec![&target, &request, &again, &to_us], vec![&again]),
        ("the first of two vanished after a late target", vec![&request, &again, &target, &to_us], vec![&again]),
        ("kept out by a protected version, then deleted", vec![&above, &version, &by_key], vec![&by_key]),
        ("kept out by a protected version, then vanished", vec![&above, &version, &to_all], vec![&to_all]),
    ];
    tell_of(harness, &stories).await;
}

/// Checks which requests, and which events of their own, a topic's shared set holds after each story: in both modes of
/// deletion, one by one and in one batch.
async fn tell_of<H: Harness>(harness: &H, stories: &[(&str, Vec<&Event>, Vec<&Event>)]) {
    for (why, arrivals, told) in stories {
        for deletion in [DeletionMode::Soft, DeletionMode::Physical] {
            for size in [1, usize::MAX] {
                let store = Subject::open(harness, StoreRules { deletion, ..StoreRules::default() }).await;
                for batch in arrivals.chunks(size.min(arrivals.len())) {
                    let batch = batch.iter().map(|event| admitted_from(event, Origin::Import)).collect();
                    store.ingest(batch, NOW).await.expect("a batch");
                }
                let expected: BTreeSet<Item> = told.iter().map(|event| item(event)).collect();
                let found = items(&*store, &set_of(&topic()), 10).await.into_iter().collect::<BTreeSet<_>>();
                assert_eq!(found, expected, "{why} ({deletion:?}, batches of {size})");
                let ids: Vec<_> = told.iter().map(|event| event.id).collect();
                let given: Vec<_> = told.iter().map(|event| Some(Shared::Event(event.to_json()))).collect();
                assert_eq!(store.share(&set_of(&topic()), &ids).await.expect("items"), given, "{why}");
                assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new(), "{why}");
            }
        }
    }
}

/// G-7: what is known of events without a row is kept, as long as their ids are.
pub(super) async fn remains_survive_a_restart_and_a_move<H: Harness>(harness: &H) {
    let version = article("a", "").at(2).build();
    let elsewhere = |second| bare(5).tag(["t", OTHER_TOPIC]).of(&version).at(second);
    let (protected, request) = (elsewhere(3).tag(["-"]).build(), elsewhere(4).build());
    let rules = StoreRules { deletion: DeletionMode::Physical, ..StoreRules::default() };
    for is_forgotten in [false, true] {
        let mut store = Subject::open(harness, rules.clone()).await;
        let import = [&version, &protected].map(|event| admitted_from(event, Origin::Import));
        store.ingest(import.into(), NOW).await.expect("a batch");
        store.reopen().await;
        store.move_on().await;
        if is_forgotten {
            let now = NOW.after(Duration::from_secs(400 * 24 * 3_600));
            store.confirm_clock(now).await.expect("a clock");
            store.purge(&Retention::default(), now).await.expect("a purge");
            assert!(store.explain(&version.id).await.expect("an explanation").record.is_none());
        }
        assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
        store.ingest(vec![admitted_from(&request, Origin::Import)], NOW).await.expect("a batch");
        let told = items(&*store, &set_of(&topic()), 10).await;
        // A version that is forgotten is decided on anew when it comes again.
        assert_eq!(told, if is_forgotten { vec![] } else { vec![item(&request), item(&version)] });
    }
}

/// G-7: however many topics the versions of a key were in, a request for its address is told in so many at most.
pub(super) async fn remains_of_a_key_are_bounded<H: Harness>(harness: &H) {
    let name = |n: u8| format!("kukuri:{}", format!("{n:02x}").repeat(32));
    let in_topics = |second, topics: std::ops::Range<u8>| {
        let version = bare(30_023).tag(["d", "a"]).at(second);
        topics.fold(version, |version, n| version.tag(["t", &name(n)])).build()
    };
    let versions = [in_topics(1, 10..50), in_topics(2, 50..90)];
    let elsewhere = || bare(5).tag(["t", OTHER_TOPIC]).of_key(&versions[0]).at(3);
    let (protected, request) = (elsewhere().tag(["-"]).build(), elsewhere().build());
    let store = opened(harness, &[&versions[1], &protected, &versions[0], &request]).await;
    let mut told = 0;
    for n in 10..90 {
        let found = items(&*store, &set_of(&TopicId::new_unchecked(&name(n))), 10).await;
        told += usize::from(found.contains(&item(&request)));
    }
    let key = versions[0].address().expect("a key").digest();
    assert_eq!(told, remains::Subject::Key(key).max_topics());
}

/// G-7: an author's remains in topics that are known already take no place of a new topic.
pub(super) async fn remains_in_known_topics_leave_room_for_a_new_one<H: Harness>(harness: &H) {
    let name = |n: u8| format!("kukuri:{}", format!("{n:02x}").repeat(32));
    let in_topics =
        |second, topics: &[u8]| topics.iter().fold(bare(1).at(second), |note, n| note.tag(["t", &name(*n)])).build();
    let known: Vec<u8> = (10..140).collect();
    let new = 250;
    let farewell = |second, relay| bare(62).tag(["t", OTHER_TOPIC]).tag(["relay", relay]).at(second).build();
    let to_all = farewell(5, "ALL_RELAYS");
    let mut arrivals: Vec<Event> = known.chunks(40).map(|topics| in_topics(1, topics)).collect();
    arrivals.push(farewell(2, super::build::RELAY));
    arrivals.extend(known.chunks(40).map(|topics| in_topics(3, topics)));
    arrivals.extend([in_topics(3, &[new]), farewell(4, super::build::RELAY), to_all.clone()]);
    for size in [1, usize::MAX] {
        let store = Subject::open(harness, StoreRules::default()).await;
        for batch in arrivals.chunks(size.min(arrivals.len())) {
            let batch = batch.iter().map(|event| admitted_from(event, Origin::Import)).collect();
            store.ingest(batch, NOW).await.expect("a batch");
        }
        for n in known.iter().chain([&new]) {
            let found = items(&*store, &set_of(&TopicId::new_unchecked(&name(*n))), 10).await;
            assert_eq!(found, [item(&to_all)], "topic {n}, batches of {size}");
        }
    }
}

/// G-7, P-5: the age of remains begins anew with each event that leaves some.
pub(super) async fn remains_last_as_long_as_requests_since_the_last_event<H: Harness>(harness: &H) {
    let farewell = |second, relay| bare(62).tag(["t", OTHER_TOPIC]).tag(["relay", relay]).at(second).build();
    let to_us = |second| farewell(second, super::build::RELAY);
    let to_all = farewell(5, "ALL_RELAYS");
    let seconds = |seconds| Keep::For(Duration::from_secs(seconds));
    let retention = Retention {
        regular: seconds(10),
        replaced: seconds(10),
        current: seconds(40),
        dedupe: seconds(40),
        requests: seconds(50),
        ..Retention::default()
    };
    for (arrives_at, is_told) in [(79, true), (80, false)] {
        let store = Subject::open(harness, StoreRules::default()).await;
        for (second, event) in
            [(0, note("one").at(1).build()), (0, to_us(2)), (30, note("two").at(3).build()), (30, to_us(4))]
        {
            store.send_at(second, &event).await;
        }
        store.purge(&retention, later(arrives_at)).await.expect("a purge");
        store.send_at(arrives_at, &to_all).await;
        let told = items(&*store, &set_of(&topic()), 10).await;
        assert_eq!(told, if is_told { vec![item(&to_all)] } else { vec![] }, "after {arrives_at} s");
        assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
    }
}

/// G-7: versions that were deleted by id are shared as floor hints.
pub(super) async fn floors_of_versions_deleted_by_id_are_told<H: Harness>(harness: &H) {
    let version = article("a", "").at(2).build();
    let newer = article("a", "newer").at(3).build();
    let of_nothing = note("no key").at(2).build();
    let elsewhere = || bare(5).tag(["t", OTHER_TOPIC]).at(4);
    let by_id = elsewhere().of(&version).build();
    let by_both = elsewhere().of(&version).of_key(&version).build();
    let by_key = elsewhere().of_key(&version).build();
    let early = elsewhere().of(&version).at(1).build();
    let of_note = elsewhere().of(&of_nothing).build();
    let protected = elsewhere().of(&version).tag(["-"]).build();
    let later = elsewhere().of(&version).at(6).build();
    let above = article("a", "protected").tag(["-"]).at(3).build();
    let to_us = bare(62).tag(["t", OTHER_TOPIC]).tag(["relay", super::build::RELAY]).at(5).build();
    for (why, arrivals, request, is_told) in [
        ("deleted by a protected request before", vec![&version, &protected, &by_id], &by_id, true),
        ("kept out by a protected request before", vec![&protected, &version, &by_id], &by_id, true),
        ("kept out by a protected and a plain request", vec![&protected, &by_id, &version], &by_id, true),
        ("kept out by a protected version before", vec![&above, &version, &by_id], &by_id, true),
        ("the later of two requests tells it", vec![&version, &by_id, &later], &later, true),
        ("the later of two, which came first", vec![&version, &later, &by_id], &later, true),
        ("the earlier request vanished from here", vec![&version, &by_id, &later, &to_us], &later, true),
        ("vanished from here, and its key forgotten", vec![&version, &to_us, &later], &later, false),
        ("taken away", vec![&version, &by_id], &by_id, true),
        ("kept out", vec![&by_id, &version], &by_id, true),
        ("replaced before", vec![&version, &newer, &by_id], &by_id, true),
        ("replaced, and kept out", vec![&newer, &by_id, &version], &by_id, true),
        ("named by its key, too", vec![&version, &by_both], &by_both, true),
        ("named by its key alone", vec![&version, &by_key], &by_key, false),
        ("made after the request", vec![&version, &early], &early, false),
        ("not seen", vec![&by_id], &by_id, false),
        ("without a key", vec![&of_nothing, &of_note], &of_note, false),
    ] {
        for deletion in [DeletionMode::Soft, DeletionMode::Physical] {
            let store = Subject::open(harness, StoreRules { deletion, ..StoreRules::default() }).await;
            let import = arrivals.iter().map(|event| admitted_from(event, Origin::Import)).collect();
            store.ingest(import, NOW).await.expect("a batch");
            let found = items(&*store, &set_of(&topic()), 10).await;
            assert_eq!(found.contains(&item(&version)), is_told, "{why} ({deletion:?})");
            let given = store.share(&set_of(&topic()), &[version.id]).await.expect("items");
            assert_eq!(given, [is_told.then(|| Shared::Hint(hint(&version, request)))], "{why} ({deletion:?})");
            let other = store.share(&set_of(&other_topic()), &[version.id]).await.expect("items");
            assert_eq!(other, [None], "{why}: not told of another topic");
            assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new(), "{why} ({deletion:?})");
        }
    }
}

/// G-7, D-9: a hint is accepted only as far as a stored request of the key's author justifies it.
pub(super) async fn a_hint_is_taken_if_a_request_that_is_here_backs_it<H: Harness>(harness: &H) {
    let below = article("a", "below").at(1).build();
    let version = article("a", "never seen").at(3).build();
    let above = article("a", "above").at(4).build();
    let request = deletion().of(&version).at(5).build();
    let early = deletion().of(&version).at(2).build();
    let foreign = deletion().of(&version).by(BOB).at(5).build();
    let of_other = deletion().of(&below).at(5).build();
    let farewell = vanish().at(6).build();
    let backed = hint(&version, &request);
    let forged = FloorHint { floor: Rank { created_at: at(6), ..version.rank() }, ..backed.clone() };
    let of_bob = FloorHint { key: article("a", "").by(BOB).build().address().expect("a key"), ..backed.clone() };
    use HintOutcome::{Known, Refused, Taken};
    for (why, here, told, outcome, left) in [
        ("the request is here", vec![&below, &request], &backed, Taken, vec![&request]),
        ("a newer version is not touched", vec![&above, &request], &backed, Taken, vec![&above, &request]),
        ("nothing is here but the request", vec![&request], &backed, Taken, vec![&request]),
        ("the request is not here", vec![&below], &backed, Refused, vec![&below]),
        ("the request names another", vec![&below, &of_other], &hint(&version, &of_other), Refused, vec![&of_other]),
        (
            "the request is another's",
            vec![&below, &foreign],
            &hint(&version, &foreign),
            Refused,
            vec![&below, &foreign],
        ),
        ("the key is another's", vec![&below, &request], &of_bob, Refused, vec![&below, &request]),
        ("it reaches beyond the request", vec![&below, &request], &forged, Refused, vec![&below, &request]),
        ("the request is older", vec![&below, &early], &hint(&version, &early), Refused, vec![&below, &early]),
        ("another of two requests is newer", vec![&below, &early, &request], &backed, Taken, vec![&early, &request]),
        ("the version is known here", vec![&below, &version, &request], &backed, Known, vec![&request]),
        ("only a tombstone is left", vec![&request, &farewell], &backed, Taken, vec![&farewell]),
    ] {
        let store = opened(harness, &here).await;
        let before = rows_after(&*store, Seq(0)).await.last().map_or(Seq(0), |row| row.seq);
        let raised = store.raise_floors(&topic(), vec![told.clone()], NOW).await.expect("hints");
        assert_eq!(raised.outcomes, [outcome], "{why}");
        let expected: BTreeSet<_> = left.iter().map(|event| event.id).collect();
        assert_eq!(effective(&*store, NOW).await, expected, "{why}");
        let rows = rows_after(&*store, before).await;
        let gone: Vec<_> = rows.iter().map(|row| (row.event_id, row.op)).collect();
        let is_gone = here.contains(&&below) && outcome == Taken;
        assert_eq!(gone, if is_gone { vec![(below.id, Op::Delete(Reason::Replaced))] } else { vec![] }, "{why}");
        assert_eq!(raised.head, rows.last().map_or(before, |row| row.seq), "{why}");

        let again = store.raise_floors(&topic(), vec![told.clone()], NOW).await.expect("hints");
        assert_eq!(again.outcomes, [if outcome == Taken { Known } else { outcome }], "{why}, again");
        let is_told = items(&*store, &set_of(&topic()), 10).await.contains(&item(&version));
        let is_stored = here.contains(&&request) && !here.contains(&&farewell);
        assert_eq!(is_told, is_stored && outcome != Refused, "{why}: it is told on if its request is");
        assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new(), "{why}");
        if outcome == Taken {
            store.send(&[&below]).await;
            assert!(!effective(&*store, NOW).await.contains(&below.id), "{why}: an older version stays out");
        }
    }
}

/// G-7, P-5: a purge of deleted rows leaves their traces, which are removed with the request.
pub(super) async fn traces_last_as_long_as_their_request<H: Harness>(harness: &H) {
    let version = article("a", "").at(2).build();
    let request = bare(5).tag(["t", OTHER_TOPIC]).of(&version).by(ALICE).at(3).build();
    let mut store = opened(harness, &[&version, &request]).await;
    let told: Vec<Item> = vec![item(&request), item(&version)];
    let day = Duration::from_secs(24 * 3_600);
    let keep = |days| Retention {
        regular: Keep::days(1),
        current: Keep::days(1),
        replaced: Keep::days(1),
        requests: Keep::days(days),
        ..Retention::default()
    };
    let now = NOW.after(2 * day);
    store.confirm_clock(now).await.expect("a clock");
    store.purge(&keep(3), now).await.expect("a purge");
    assert!(store.explain(&version.id).await.expect("an explanation").row.is_none(), "the hidden row is purged");
    assert_eq!(items(&*store, &set_of(&topic()), 10).await, told);
    store.reopen().await;
    assert_eq!(items(&*store, &set_of(&topic()), 10).await, told, "after a restart");
    store.move_on().await;
    assert_eq!(items(&*store, &set_of(&topic()), 10).await, told, "in another place");
    let now = NOW.after(4 * day);
    store.confirm_clock(now).await.expect("a clock");
    store.purge(&keep(3), now).await.expect("a purge");
    assert_eq!(items(&*store, &set_of(&topic()), 10).await, [], "the request is gone");
    assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
}
