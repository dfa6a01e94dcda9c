//! Expiration of events (X-1 to X-4, D-9).

use kukuri_domain::{Filter, Reason, State, Viewer};

use super::{
    build::{deletion, later, note, profile, vanish},
    probe::{TIMELESS, effective, rows_after},
    story::{DELETED, DUPLICATE, EXPIRED, REPLACED, STORED},
    subject::{Harness, Subject},
};
use crate::{ingest::StoreRules, maintenance::Swept, outbox::Op, query::Query};

/// no read returns an expired event, even before a sweep.
pub(super) async fn expired_event_is_not_served<H: Harness>(harness: &H) {
    let ending = note("ending").until(10).build();
    let lasting = note("lasting").build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&ending, &lasting]).await;
    for (seconds, count) in [(0, 2), (9, 2), (10, 1), (11, 1)] {
        let now = later(seconds);
        let query = Query::of(Filter::new(), Viewer::Node, now);
        assert_eq!(store.query(&query).await.expect("an answer").events.len(), count, "query at {seconds}");
        assert_eq!(store.count(&query, None).await.expect("a count").events, count as u64, "count at {seconds}");
        let by_id = Query::of(Filter::new().with_ids([ending.id, lasting.id]), Viewer::Node, now);
        assert_eq!(store.query(&by_id).await.expect("an answer").events.len(), count, "query by id at {seconds}");
        let found = store.get(&[ending.id, lasting.id], now).await.expect("events");
        assert_eq!(found.iter().flatten().count(), count, "get at {seconds}");
    }
    let ask_for_one = Query::of(Filter::new().with_limit(1), Viewer::Node, later(10));
    assert_eq!(store.query(&ask_for_one).await.expect("an answer").events.len(), 1, "a limit counts what is served");
}

///
pub(super) async fn a_sweep_turns_off_expired_events_and_tells_the_next_expiration<H: Harness>(harness: &H) {
    let [first, second] = [note("first").until(10).build(), note("second").until(20).build()];
    let mut store = Subject::open(harness, StoreRules::default()).await;
    let head = store.send(&[&second, &first]).await.head;

    let next = Some(later(10).seconds());
    assert_eq!(store.expire(later(9)).await.expect("a sweep"), Swept { expired: 0, next, held: false });
    let next = Some(later(20).seconds());
    assert_eq!(store.expire(later(10)).await.expect("a sweep"), Swept { expired: 1, next, held: false });
    assert_eq!(store.expire(later(10)).await.expect("a sweep"), Swept { expired: 0, next, held: false });
    let rows = rows_after(&*store, head).await;
    let gone: Vec<_> = rows.iter().map(|row| (row.event_id, row.op)).collect();
    assert_eq!(gone, [(first.id, Op::Delete(Reason::Expiration))]);
    assert_eq!(effective(&*store, TIMELESS).await, [second.id].into());

    store.reopen().await;
    let explained = store.explain(&first.id).await.expect("an explanation");
    assert_eq!(explained.row, None, "its row may go at once");
    assert_eq!(explained.record.map(|record| record.standing.state()), Some(State::Expired));
    assert_eq!(store.expire(later(20)).await.expect("a sweep"), Swept { expired: 1, next: None, held: false });
}

/// X-1, E-9: an event may expire in the queue before the decision; its id does not become known.
pub(super) async fn expired_event_is_refused_and_changes_nothing<H: Harness>(harness: &H) {
    let [old, ending] = [profile("old").at(1).build(), profile("ending").at(2).until(10).build()];
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&old]).await;
    assert_eq!(store.send_at(10, &ending).await, EXPIRED);
    assert_eq!(store.explain(&ending.id).await.expect("an explanation").record, None, "E-9: it is not known");
    assert_eq!(store.send_at(10, &old).await, DUPLICATE, "D-9: it raised no floor");
    assert_eq!(store.send_at(9, &ending).await, STORED, "it was never decided on");
    assert_eq!(store.send_at(9, &ending).await, DUPLICATE);
    assert_eq!(store.send_at(10, &ending).await, EXPIRED, "E-9: known, ended, not swept yet");
    store.expire(later(10)).await.expect("a sweep");
    assert_eq!(store.send_at(10, &ending).await, EXPIRED, "E-9: known, ended, swept");
    assert_eq!(store.send_at(10, &old).await, REPLACED, "D-9: expiry leaves the floor");
}

///
pub(super) async fn deletion_and_vanish_requests_do_not_expire<H: Harness>(harness: &H) {
    let target = note("target").build();
    let request = deletion().of(&target).until(10).build();
    let farewell = vanish().at(0).until(10).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    assert_eq!(store.send_at(11, &request).await, STORED);
    assert_eq!(store.send_at(11, &target).await, DELETED);
    assert_eq!(store.expire(later(12)).await.expect("a sweep"), Swept::default());
    assert_eq!(effective(&*store, later(12)).await, [request.id].into());
    assert_eq!(store.send_at(12, &farewell).await, STORED);
    assert_eq!(effective(&*store, later(13)).await, [farewell.id].into());
}
