//! The shared set of a topic, and floor hints of other nodes (G-7).

use std::{collections::BTreeSet, time::Duration};

use kukuri_domain::{
    DeletionMode, Event, Origin, Rank, Reason,
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
    for (why, arrivals, told) in [
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
    ] {
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
    for (why, arrivals, request, is_told) in [
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
        let store = opened(harness, &arrivals).await;
        let found = items(&*store, &set_of(&topic()), 10).await;
        assert_eq!(found.contains(&item(&version)), is_told, "{why}");
        let given = store.share(&set_of(&topic()), &[version.id]).await.expect("items");
        assert_eq!(given, [is_told.then(|| Shared::Hint(hint(&version, request)))], "{why}");
        let other = store.share(&set_of(&other_topic()), &[version.id]).await.expect("items");
        assert_eq!(other, [None], "{why}: not told of another topic");
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
