//! Retention and purges (P-2, P-4, P-5, P-8).

use std::time::Duration;

use kukuri_domain::{
    DeletionMode, Event, Millis, Reason,
    capacity::Capacity,
    retention::{Keep, Retention, RetentionError, TopicRetention},
    subscription::IngestPolicy,
};

use super::{
    build::{BOB, OTHER_TOPIC, admitted, article, deletion, later, note, other_topic, profile, topic, vanish},
    probe::{TIMELESS, effective, rows_after},
    story::{DELETED, DUPLICATE, PURGED, REPLACED, STORED},
    subject::{Harness, Subject},
};
use crate::{
    error::StoreError,
    ingest::{Outcome, StoreRules},
    maintenance::{PurgeCursor, Purged, Swept},
    outbox::Op,
    port::Store,
};

const fn seconds(seconds: u64) -> Keep {
    Keep::For(Duration::from_secs(seconds))
}

/// A retention of seconds instead of days, so that tests need no jump of the clock.
const SHORT: Retention = Retention {
    regular: seconds(30),
    current: Keep::Forever,
    replaced: seconds(7),
    requests: Keep::Forever,
    dedupe: seconds(180),
    outbox: Keep::Forever,
};

async fn purge(store: &dyn Store, retention: &Retention, at: u64) -> Purged {
    store.purge(retention, later(at)).await.expect("a purge")
}

async fn has_row(store: &dyn Store, event: &Event) -> bool {
    store.explain(&event.id).await.expect("an explanation").row.is_some()
}

fn policy(retention: TopicRetention) -> IngestPolicy {
    IngestPolicy { retention, ..IngestPolicy::default() }
}

/// P-4, P-5, P-8.
pub(super) async fn every_class_is_kept_as_long_as_its_retention_says<H: Harness>(harness: &H) {
    let text = note("text").build();
    let hidden = note("hidden").build();
    let request = deletion().of(&hidden).build();
    let farewell = vanish().by(BOB).build();
    let [old, current] = [profile("old").at(1).build(), profile("current").at(2).build()];
    let store = Subject::open(harness, StoreRules::default()).await;
    let head = store.send(&[&text, &hidden, &request, &farewell, &old, &current]).await.head;

    for (at, by_retention, gone, why) in [
        (6, 0, vec![], "nothing is old enough"),
        (7, 1, vec![&old], "replaced versions go first"),
        (29, 0, vec![&old], "regular events have a second left"),
        (30, 2, vec![&old, &text, &hidden], "regular events, hidden ones too"),
        (170, 0, vec![&old, &text, &hidden], "current versions and requests stay"),
    ] {
        let purged = purge(&*store, &SHORT, at).await;
        assert_eq!((purged.by_retention, purged.by_capacity, purged.held), (by_retention, 0, false), "{why}");
        for event in [&text, &hidden, &request, &farewell, &old, &current] {
            assert_eq!(has_row(&*store, event).await, !gone.contains(&event), "{why}: {event:?}");
        }
    }
    let rows = rows_after(&*store, head).await;
    let told: Vec<_> = rows.iter().map(|row| (row.event_id, row.op)).collect();
    assert_eq!(told, [(text.id, Op::Delete(Reason::Retention))], "P-8: of hidden rows nobody need hear");
    assert_eq!(effective(&*store, TIMELESS).await, [request.id, farewell.id, current.id].into());
    for (event, answer) in [(&text, PURGED), (&hidden, DELETED), (&old, REPLACED)] {
        assert_eq!(store.send_at(170, event).await, answer, "E-9: a hidden row that goes is answered as before");
    }
}

/// P-5: retention per topic; the topic that keeps an event longest counts.
pub(super) async fn an_event_stays_while_any_of_its_topics_keeps_it<H: Harness>(harness: &H) {
    let here = note("here").build();
    let both = note("both").tag(["t", OTHER_TOPIC]).build();
    let [old, new] = [article("x", "old").at(1).build(), article("x", "new").at(2).build()];
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&here, &both, &old, &new]).await;
    store.subscribe(&topic(), policy(TopicRetention { regular: Some(seconds(5)), ..TopicRetention::default() })).await;
    let longer = TopicRetention { regular: Some(seconds(60)), ..TopicRetention::default() };
    store.subscribe(&other_topic(), policy(longer)).await;

    for (at, by_retention, left) in
        [(4, 0, vec![&here, &both, &new]), (5, 1, vec![&both, &new]), (59, 1, vec![&both, &new]), (60, 1, vec![&new])]
    {
        assert_eq!(purge(&*store, &SHORT, at).await.by_retention, by_retention, "at {at}");
        assert_eq!(effective(&*store, TIMELESS).await, left.iter().map(|event| event.id).collect(), "at {at}");
    }
    let bounded = TopicRetention { current: Some(seconds(70)), ..TopicRetention::default() };
    store.subscribe(&topic(), policy(bounded)).await;
    assert_eq!(purge(&*store, &SHORT, 70).await.by_retention, 1, "a topic may bound its current versions");
    assert_eq!(effective(&*store, TIMELESS).await, [].into());
}

/// P-5: a later purge finds rows that an earlier one had passed over.
pub(super) async fn a_purge_finds_what_became_due_behind_an_earlier_one<H: Harness>(harness: &H) {
    let profiles = [profile("old").at(1).build(), profile("new").at(2).build()];
    let articles = [article("x", "old").at(1).build(), article("x", "new").at(2).build()];
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&profiles[0], &articles[0], &articles[1]]).await;
    assert_eq!(purge(&*store, &SHORT, 10).await.by_retention, 1, "the article");
    store.send_at(11, &profiles[1]).await;
    assert_eq!(purge(&*store, &SHORT, 11).await.by_retention, 1, "the profile came before it and was replaced after");

    let both = note("both").tag(["t", OTHER_TOPIC]).build();
    let regular = |keep| policy(TopicRetention { regular: Some(seconds(keep)), ..TopicRetention::default() });
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&both]).await;
    for (here, there, by_retention, why) in
        [(5, 100, 0, "the second topic keeps it"), (100, 5, 0, "now the first does"), (5, 5, 1, "now none does")]
    {
        store.subscribe(&topic(), regular(here)).await;
        store.subscribe(&other_topic(), regular(there)).await;
        assert_eq!(purge(&*store, &SHORT, 50).await.by_retention, by_retention, "{why}");
    }
}

/// P-2, E-9, D-9.
pub(super) async fn a_purged_event_is_not_taken_in_again_while_its_id_is_known<H: Harness>(harness: &H) {
    let text = note("text").build();
    let [old, current] = [profile("old").at(1).build(), profile("current").at(2).build()];
    let bounded = Retention { current: seconds(30), ..SHORT };
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&text, &current]).await;
    assert_eq!(purge(&*store, &bounded, 30).await.by_retention, 2);
    store.reopen().await;

    assert_eq!(store.send_at(31, &text).await, PURGED);
    assert_eq!(store.send_at(31, &current).await, PURGED);
    assert_eq!(store.send_at(31, &old).await, REPLACED, "D-9: a purge leaves the floor");
    assert_eq!(purge(&*store, &bounded, 200).await.ids, 0, "dedupe goes by the last time an id was seen");
    assert_eq!(purge(&*store, &bounded, 211).await.ids, 3);
    assert_eq!(store.send_at(211, &text).await, STORED, "what is forgotten is new");
    assert_eq!(store.send_at(211, &old).await, REPLACED, "a floor is not forgotten");
    assert_eq!(store.send_at(211, &current).await, STORED, "the version of the floor itself may return");
    assert_eq!(purge(&*store, &SHORT, 600).await.ids, 2, "ids of rows that stay are kept, however old");
    assert_eq!(store.send_at(601, &current).await, DUPLICATE);
}

/// P-5: tombstones, floors and vanish marks follow the retention of requests.
pub(super) async fn tombstones_floors_and_marks_last_as_long_as_requests<H: Harness>(harness: &H) {
    let target = note("target").build();
    let request = deletion().of(&target).build();
    let farewell = vanish().by(BOB).at(5).build();
    let bobs = note("Bob's").by(BOB).build();
    let [old, new] = [profile("old").at(1).build(), profile("new").at(2).build()];
    let bounded = Retention { current: seconds(40), requests: seconds(50), dedupe: seconds(40), ..SHORT };
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&request, &farewell, &new]).await;

    assert_eq!(purge(&*store, &bounded, 49).await.memories, 0);
    assert_eq!(store.send_at(49, &target).await, DELETED);
    assert_eq!(store.send_at(49, &old).await, REPLACED);
    let purged = purge(&*store, &bounded, 50).await;
    assert_eq!((purged.by_retention, purged.memories), (2, 2), "both requests; a mark and a floor");
    let stays = store.explain(&target.id).await.expect("an explanation").tombstones;
    assert_eq!(stays.len(), 1, "a tombstone that met its target at 49 was written then");
    assert_eq!(store.send_at(50, &bobs).await, STORED);
    let memories = purge(&*store, &bounded, 99).await.memories;
    assert_eq!(memories, 3, "the tombstone, and the remains of events that were kept out: of a key and of an author");
    assert_eq!(store.send_at(99, &target).await, STORED);
    assert_eq!(store.send_at(99, &old).await, STORED);
}

/// P-2, P-5.
pub(super) async fn a_retention_that_would_bring_things_back_is_refused<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&note("text").build()]).await;
    let requests_too_short = Retention { requests: seconds(1_000), ..SHORT };
    let dedupe_too_short = Retention { dedupe: seconds(29), ..SHORT };
    for (why, retention, expected) in [
        ("current versions outlive requests", requests_too_short, RetentionError::RequestsTooShort),
        ("regular events outlive their ids", dedupe_too_short, RetentionError::DedupeTooShort),
    ] {
        let result = store.purge(&retention, later(40)).await;
        assert!(matches!(result, Err(StoreError::Retention(error)) if error == expected), "{why}: {result:?}");
    }
    store
        .subscribe(&topic(), policy(TopicRetention { regular: Some(seconds(181)), ..TopicRetention::default() }))
        .await;
    let result = store.purge(&SHORT, later(40)).await;
    let expected = RetentionError::DedupeTooShort;
    assert!(
        matches!(result, Err(StoreError::Retention(error)) if error == expected),
        "a topic's own counts: {result:?}"
    );
    assert_eq!(effective(&*store, TIMELESS).await.len(), 1, "nothing was purged");
}

const DAY: u64 = 24 * 3_600;

async fn arrival(store: &dyn Store, event: &Event) -> Option<Millis> {
    store.explain(&event.id).await.expect("an explanation").row.map(|row| row.ingested_at)
}

/// P-5: after a jump of the clock nothing is removed because of its age until an operator confirms the time.
pub(super) async fn a_jump_of_the_clock_holds_purges_until_it_is_confirmed<H: Harness>(harness: &H) {
    let [text, meanwhile] = [note("text").build(), note("meanwhile").build()];
    let ending = note("ending").until(10).build();
    let rules = StoreRules { deletion: DeletionMode::Soft, ..StoreRules::default() };
    let mut store = Subject::open(harness, rules).await;
    store.observe_clock(later(0).before(Duration::from_secs(90 * DAY))).await.expect("a clock");
    store.send(&[&text, &ending]).await;
    assert!(!store.stats().await.expect("figures").clock_held, "an empty store has nothing to lose");

    let held = Purged { held: true, ..Purged::default() };
    assert_eq!(purge(&*store, &SHORT, DAY + 1).await, held, "over a day is a jump");
    let sweep = |at| store.expire(later(at));
    assert_eq!(sweep(DAY + 1).await.expect("a sweep"), Swept { held: true, ..Swept::default() });
    assert!(store.stats().await.expect("figures").clock_held);
    store.reopen().await;
    assert!(store.stats().await.expect("figures").clock_held, "it stays held after a restart");
    assert_eq!(purge(&*store, &SHORT, DAY + 2).await, held);
    assert_eq!(effective(&*store, TIMELESS).await.len(), 2);
    assert_eq!(store.send_at(DAY + 5, &meanwhile).await, STORED, "events are taken in");
    assert_eq!(arrival(&*store, &meanwhile).await, Some(later(4)), "with the time that has passed since the jump");

    store.confirm_clock(later(DAY + 6)).await.expect("a confirmation");
    assert!(!store.stats().await.expect("figures").clock_held);
    assert_eq!(store.expire(later(DAY + 6)).await.expect("a sweep").expired, 1);
    assert_eq!(purge(&*store, &SHORT, DAY + 6).await.by_retention, 2);
    assert!(!purge(&*store, &SHORT, 2 * DAY + 6).await.held, "a day is no jump");
}

/// P-5: a hold ends when the clock returns, or when it has run steadily for long enough.
pub(super) async fn a_hold_of_the_clock_ends_by_itself<H: Harness>(harness: &H) {
    let text = note("text").build();
    let month = Retention { regular: seconds(30 * DAY), dedupe: seconds(180 * DAY), ..SHORT };
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&text]).await;
    assert!(purge(&*store, &month, 60 * DAY).await.held);
    store.reopen().await;
    let purged = purge(&*store, &month, 60).await;
    assert_eq!((purged.held, purged.by_retention), (false, 0), "the clock was corrected");

    for (at, is_held) in [(60 * DAY, true), (61 * DAY, true), (62 * DAY, true), (63 * DAY, false)] {
        assert_eq!(purge(&*store, &month, at).await.held, is_held, "at {at}");
        store.reopen().await;
    }
    assert_eq!(effective(&*store, TIMELESS).await.len(), 0, "it was right");
}

/// P-5: a clock that is set back removes nothing and stops nothing.
pub(super) async fn a_clock_set_back_is_not_held_and_purges_nothing<H: Harness>(harness: &H) {
    let [text, late] = [note("text").build(), note("late").build()];
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&text]).await;
    for now in [later(0).before(Duration::from_secs(60 * DAY)), Millis(0), Millis(5)] {
        let purged = store.purge(&SHORT, now).await.expect("a purge");
        assert_eq!(purged, Purged::default(), "at {now:?}");
        assert_eq!(store.expire(now).await.expect("a sweep").expired, 0);
        store.reopen().await;
    }
    assert_eq!(store.ingest(vec![admitted(&late)], Millis(9)).await.expect("a batch").outcomes, [Outcome::Stored]);
    assert_eq!(arrival(&*store, &late).await, Some(later(0)), "timestamps do not run backwards");
    assert!(!purge(&*store, &SHORT, 20).await.held, "the right time is no jump");
}

/// P-5, P-6: what exceeds the capacity is purged also while the clock is held.
pub(super) async fn a_held_clock_does_not_keep_capacity_from_being_enforced<H: Harness>(harness: &H) {
    let notes: Vec<Event> = (0..20).map(|number| note(&format!("note {number}")).build()).collect();
    let capacity = Capacity { max_events: Some(20), max_bytes: None };
    let store = Subject::open(harness, StoreRules { capacity, ..StoreRules::default() }).await;
    store.send(&notes.iter().collect::<Vec<_>>()).await;
    let purged = purge(&*store, &SHORT, 60 * DAY).await;
    assert_eq!((purged.held, purged.by_retention, purged.by_capacity), (true, 0, 1));

    let store = Subject::open(harness, StoreRules { capacity, ..StoreRules::default() }).await;
    store.send(&notes.iter().collect::<Vec<_>>()).await;
    let step = store.purge_some(&SHORT, later(40), PurgeCursor::for_capacity_only()).await.expect("a purge");
    assert_eq!((step.purged.held, step.purged.by_retention, step.purged.by_capacity), (false, 0, 1));
}

/// P-5: `ingested_at` never runs backwards.
pub(super) async fn a_clock_that_falls_back_does_not_take_ingested_at_with_it<H: Harness>(harness: &H) {
    let [first, second] = [note("first").build(), note("second").build()];
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send_at(100, &first).await;
    store.reopen().await;
    store.send_at(40, &second).await;
    let explained = store.explain(&second.id).await.expect("an explanation");
    assert_eq!(explained.row.map(|row| row.ingested_at), Some(later(100)));
    assert_eq!(explained.record.map(|record| record.first_seen_at), Some(later(100)));
    let rows = rows_after(&*store, crate::outbox::Seq(0)).await;
    assert!(rows.is_sorted_by_key(|row| row.written_at), "{rows:?}");
}
