//! The outbox, its consumers and snapshots (O-1, O-2, O-8, O-10).

use std::time::Duration;

use kukuri_domain::{
    Event, Reason,
    retention::{Keep, Retention},
};

use super::{
    build::{
        ALICE, NOW, OTHER_TOPIC, admitted, article, deletion, event, later, note, other_topic, profile, topic, vanish,
    },
    fold::{self, Follower},
    probe::rows_after,
    subject::{Harness, Subject},
};
use crate::{
    error::StoreError,
    ingest::StoreRules,
    lease::Holder,
    outbox::{ConsumerOffset, MAX_SNAPSHOT_PAGE_BYTES, Op, OutboxRow, Seq, SnapshotCursor},
};

fn told(rows: &[OutboxRow]) -> Vec<(Op, kukuri_domain::EventId)> {
    rows.iter().map(|row| (row.op, row.event_id)).collect()
}

/// O-1.
pub(super) async fn a_row_tells_what_happened_to_which_event_in_which_topic<H: Harness>(harness: &H) {
    let plain = note("plain").at(1).build();
    let version = article("x", "version").tag(["t", OTHER_TOPIC]).tag(["t", "hashtag"]).at(2).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&plain]).await;
    let ingested = store.ingest(vec![admitted(&version)], later(3)).await.expect("a batch");

    let row = |seq, event: &Event, topic, at| OutboxRow {
        seq: Seq(seq),
        op: Op::Upsert,
        event_id: event.id,
        topic,
        kind: event.kind,
        created_at: event.created_at,
        ingested_at: at,
        effective_key: event.address(),
        written_at: at,
    };
    let mut rows = rows_after(&*store, Seq(0)).await;
    rows[1..].sort_by_key(|row| row.topic.clone());
    rows.iter_mut().zip(1..).for_each(|(row, seq)| row.seq = Seq(seq));
    let expected =
        [row(1, &plain, topic(), NOW), row(2, &version, topic(), later(3)), row(3, &version, other_topic(), later(3))];
    assert_eq!(rows, expected);
    assert_eq!((ingested.head, store.stats().await.expect("figures").head), (Seq(3), Seq(3)));

    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&plain]).await;
    let request = deletion().of(&plain).at(5).build();
    store.ingest(vec![admitted(&request)], later(4)).await.expect("a batch");
    let rows = rows_after(&*store, Seq(1)).await;
    let deleted = OutboxRow { op: Op::Delete(Reason::Nip09), written_at: later(4), ..row(2, &plain, topic(), NOW) };
    assert_eq!(rows[0], deleted, "a delete tells when its event was taken in");
}

/// O-2, O-3, P-8.
pub(super) async fn every_change_of_the_effective_set_is_a_row_and_nothing_else_is<H: Harness>(harness: &H) {
    let text = note("text").at(1).build();
    let [old, new] = [profile("old").at(1).build(), profile("new").at(2).build()];
    let of_text = deletion().of(&text).at(3).build();
    let of_old = deletion().of(&old).at(3).build();
    let farewell = vanish().at(1).build();
    let ephemeral = event(20_001).build();
    let foreign = deletion().of(&text).by(super::build::BOB).at(3).build();
    let gone = |reason, event: &Event| (Op::Delete(reason), event.id);
    let came = |event: &Event| (Op::Upsert, event.id);

    for (why, before, sent, expected) in [
        ("an event", vec![], &text, vec![came(&text)]),
        ("a repeat", vec![&text], &text, vec![]),
        ("an ephemeral event", vec![], &ephemeral, vec![]),
        ("a newer version", vec![&old], &new, vec![gone(Reason::Replaced, &old), came(&new)]),
        ("an older version", vec![&new], &old, vec![]),
        ("a deletion", vec![&text], &of_text, vec![gone(Reason::Nip09, &text), came(&of_text)]),
        ("a deletion of a hidden version", vec![&old, &new], &of_old, vec![came(&of_old)]),
        ("a deletion of something deleted", vec![&text, &of_text], &foreign, vec![came(&foreign)]),
        ("what a deletion keeps out", vec![&of_text], &text, vec![]),
        ("a vanish request", vec![&text], &farewell, vec![gone(Reason::Vanish, &text), came(&farewell)]),
        ("what a vanish request keeps out", vec![&farewell], &text, vec![]),
    ] {
        let store = Subject::open(harness, StoreRules::default()).await;
        let head = store.send(&before).await.head;
        let watch = store.watch_outbox();
        let ingested = store.send(&[sent]).await;
        assert_eq!(told(&rows_after(&*store, head).await), expected, "{why}");
        assert_eq!(ingested.head.0, head.0 + expected.len() as u64, "{why}: the head");
        assert_eq!(watch.has_changed().expect("a store"), !expected.is_empty(), "O-4, {why}: the wake-up");
        assert_eq!(*watch.borrow(), ingested.head, "O-4, {why}: the head it tells");
    }
}

/// O-2: in every topic of both.
pub(super) async fn replacing_writes_the_delete_before_the_upsert<H: Harness>(harness: &H) {
    let old = profile("old").at(1).build();
    let new = profile("new").tag(["t", OTHER_TOPIC]).at(2).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    let head = store.send(&[&old]).await.head;
    store.send(&[&new]).await;
    let ops: Vec<_> = rows_after(&*store, head).await.iter().map(|row| row.op).collect();
    assert_eq!(ops, [Op::Delete(Reason::Replaced), Op::Upsert, Op::Upsert]);
}

/// O-6: one instance at a time runs a consumer; an instance that lost its lease can't move the offset.
pub(super) async fn one_instance_at_a_time_runs_a_consumer<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&note("one").build()]).await;
    let (first, second) = (Holder(1), Holder(2));
    let name = "index-v1";
    assert!(store.lease(name, first, later(10), NOW).await.expect("a lease"), "nobody has it");
    assert!(!store.lease(name, second, later(12), later(2)).await.expect("a lease"), "somebody has it");
    assert!(store.lease("trust-v1", second, later(12), later(2)).await.expect("a lease"), "another consumer");
    assert!(store.lease(name, first, later(20), later(9)).await.expect("a lease"), "it is kept");
    store.advance(name, first, Seq(1), later(15)).await.expect("an offset");

    // The lease has expired. Its holder may continue until another instance takes the lease.
    store.advance(name, first, Seq(0), later(25)).await.expect("nobody has overtaken it");
    assert!(store.lease(name, second, later(35), later(25)).await.expect("a lease"), "it is over");
    let overtaken = store.advance(name, first, Seq(1), later(26)).await;
    assert!(matches!(overtaken, Err(StoreError::LeaseLost { .. })), "{overtaken:?}");
    assert!(!store.lease(name, first, later(36), later(26)).await.expect("a lease"));
    let ahead = store.advance(name, second, Seq(9), later(26)).await;
    assert!(matches!(ahead, Err(StoreError::OffsetAhead { .. })), "{ahead:?}");
    assert_eq!(store.offsets().await.expect("offsets").first().map(|offset| offset.last_seq), Some(Seq(0)));

    store.release(name, first).await.expect("not its own");
    assert!(!store.lease(name, first, later(37), later(27)).await.expect("a lease"), "another's is not given back");
    store.release(name, second).await.expect("an end");
    assert!(store.lease(name, first, later(37), later(27)).await.expect("a lease"), "it was given back");
}

/// O-6, O-8.
pub(super) async fn rows_are_read_on_from_any_place_and_offsets_are_kept<H: Harness>(harness: &H) {
    let events: Vec<_> = (0..5).map(|number| note(&number.to_string()).build()).collect();
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&events.iter().collect::<Vec<_>>()).await;
    for (after, limit, expected) in
        [(0, 2, vec![1, 2]), (3, 9, vec![4, 5]), (5, 9, vec![]), (9, 9, vec![]), (0, 0, vec![])]
    {
        let rows = store.outbox(Seq(after), limit).await.expect("rows");
        let places: Vec<_> = rows.iter().map(|row| row.seq.0).collect();
        assert_eq!(places, expected, "after {after}, at most {limit}");
    }

    let offset =
        |consumer: &str, seq, at| ConsumerOffset { consumer: consumer.into(), last_seq: Seq(seq), updated_at: at };
    store.set_offset("trust-v1", Seq(5), NOW).await.expect("an offset");
    store.set_offset("index-v1", Seq(3), NOW).await.expect("an offset");
    store.set_offset("index-v1", Seq(1), later(1)).await.expect("a replay");
    store.reopen().await;
    let expected = [offset("index-v1", 1, later(1)), offset("trust-v1", 5, NOW)];
    assert_eq!(store.offsets().await.expect("offsets"), expected);

    let ahead = store.set_offset("index-v1", Seq(6), NOW).await;
    assert!(matches!(ahead, Err(StoreError::OffsetAhead { offset: Seq(6), head: Seq(5) })), "{ahead:?}");
    assert_eq!(store.offsets().await.expect("offsets"), expected, "a refused offset changes nothing");
}

/// O-8, O-10.
pub(super) async fn consumer_behind_the_first_row_is_told_to_rebuild<H: Harness>(harness: &H) {
    let [first, second] = [note("first").build(), note("second").build()];
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&first]).await;
    store.ingest(vec![admitted(&second)], later(10)).await.expect("a batch");
    let retention = Retention { outbox: Keep::For(Duration::from_secs(20)), ..Retention::default() };

    assert_eq!(store.purge(&retention, later(19)).await.expect("a purge").outbox, 0);
    assert_eq!(store.purge(&retention, later(20)).await.expect("a purge").outbox, 1);
    store.reopen().await;
    let behind = store.outbox(Seq(0), 9).await;
    assert!(matches!(behind, Err(StoreError::Truncated { after: Seq(0), first: Seq(2) })), "{behind:?}");
    assert_eq!(told(&rows_after(&*store, Seq(1)).await), [(Op::Upsert, second.id)], "who has come so far reads on");
    assert_eq!(store.stats().await.expect("figures").outbox_first, Seq(2));
    store.set_offset("index-v1", Seq(0), later(20)).await.expect("told when it reads");

    assert_eq!(store.purge(&retention, later(30)).await.expect("a purge").outbox, 1);
    let stats = store.stats().await.expect("figures");
    assert_eq!((stats.head, stats.outbox_first), (Seq(2), Seq(3)), "an empty outbox keeps its place");
    assert_eq!(rows_after(&*store, Seq(2)).await, []);
    let third = note("third").build();
    assert_eq!(store.ingest(vec![admitted(&third)], later(31)).await.expect("a batch").head, Seq(3));
    let rebuilt = Follower::begin(&*store, 2).await.catch_up(&*store).await;
    let expected = [&first, &second, &third].map(|event| (topic(), event.id));
    assert_eq!(rebuilt, Some(expected.into()), "a snapshot holds what the outbox has lost");
}

/// O-8: pages are read while the store changes.
pub(super) async fn a_snapshot_read_in_pages_is_made_whole_by_the_rows_after_it<H: Harness>(harness: &H) {
    let events: Vec<_> = (0..6).map(|number| note(&number.to_string()).at(number).build()).collect();
    let version = profile("old").at(1).tag(["t", OTHER_TOPIC]).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    let head = store.send(&events.iter().chain([&version]).collect::<Vec<_>>()).await.head;
    let first = store.snapshot(SnapshotCursor::default(), 2).await.expect("a page");
    assert_eq!((first.seq, first.events.len(), first.next.is_some()), (head, 2, true));

    let mut follower = Follower::begin(&*store, 2).await;
    let newer = profile("new").at(2).build();
    let request = deletion().of(&events[0]).of(&events[3]).at(9).build();
    store.send(&[&request, &newer]).await;
    follower.read_page(&*store).await;
    store.send(&[&note("last").build(), &vanish().at(1).build()]).await;
    let all = [&events[2], &events[4], &events[5], &newer, &request];
    let held = follower.catch_up(&*store).await.expect("nothing was purged");
    assert!(all.iter().all(|event| held.contains(&(topic(), event.id))), "{held:?}");
    assert_eq!(fold::from_start(&*store).await, Some(held));

    let empty = Subject::open(harness, StoreRules::default()).await;
    let page = empty.snapshot(SnapshotCursor::default(), 2).await.expect("a page");
    assert_eq!((page.seq, page.events.len(), page.next), (Seq(0), 0, None));
    let one = note("one").build();
    empty.send(&[&one]).await;
    let page = empty.snapshot(SnapshotCursor::default(), 1).await.expect("a page");
    assert_eq!(page.events[0].event.event().expect("an event").pubkey, ALICE, "it holds whole events");
    assert_eq!((page.events[0].topics.as_slice(), page.events[0].ingested_at), ([topic()].as_slice(), NOW));
}

/// U-4: large events make short pages, and no event is lost between them.
pub(super) async fn a_snapshot_page_is_bounded_in_bytes<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    let large: Vec<_> = (0..20).map(|number| note(&format!("{number:<60000}")).at(number).build()).collect();
    for some in large.chunks(4) {
        store.send(&some.iter().collect::<Vec<_>>()).await;
    }
    let (mut cursor, mut ids, mut pages) = (SnapshotCursor::default(), Vec::new(), 0);
    loop {
        let page = store.snapshot(cursor, 500).await.expect("a page");
        let bytes: usize = page.events.iter().map(|bound| bound.event.json.len()).sum();
        assert!(bytes <= MAX_SNAPSHOT_PAGE_BYTES, "{bytes}");
        ids.extend(page.events.iter().map(|bound| bound.event.id));
        pages += 1;
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!(ids, large.iter().map(|event| event.id).collect::<Vec<_>>());
    assert!(pages >= 3, "{pages}");
}

/// Y-5.
pub(super) async fn an_epoch_survives_reopening_and_each_store_has_its_own<H: Harness>(harness: &H) {
    let mut store = Subject::open(harness, StoreRules::default()).await;
    let epoch = *store.watch_epoch().borrow();
    store.send(&[&note("one").build()]).await;
    store.reopen().await;
    assert_eq!(*store.watch_epoch().borrow(), epoch, "reopening keeps it");
    let other = Subject::open(harness, StoreRules::default()).await;
    assert_ne!(*other.watch_epoch().borrow(), epoch);
}
