//! A test consumer of the outbox: a snapshot at s plus the rows after s gives the effective set (O-8).

use std::collections::{BTreeMap, BTreeSet};

use kukuri_domain::{Event, EventId, TopicId};

use super::{
    build::admitted,
    probe::{TIMELESS, effective},
};
use crate::{
    error::StoreError,
    outbox::{Op, OutboxRow, Seq, SnapshotCursor, SnapshotPage},
    port::Store,
};

/// The effective events of each topic.
pub(super) type Held = BTreeSet<(TopicId, EventId)>;

/// Rows per read: few, so that reads have to continue from an offset.
const ROWS: usize = 7;

/// A consumer that builds its copy of the effective set while the store keeps changing.
pub(super) struct Follower {
    held: Held,
    seq: Seq,
    next: Option<SnapshotCursor>,
    page: usize,
}

impl Follower {
    /// Reads the first page of a snapshot.
    pub(super) async fn begin(store: &dyn Store, page: usize) -> Self {
        let mut follower = Self { held: Held::new(), seq: Seq::default(), next: Some(SnapshotCursor::default()), page };
        follower.read_page(store).await;
        follower
    }

    /// Reads the next page, if there is one.
    pub(super) async fn read_page(&mut self, store: &dyn Store) {
        let Some(cursor) = self.next else { return };
        let SnapshotPage { seq, events, next } = store.snapshot(cursor, self.page).await.expect("a page");
        assert!(events.len() <= self.page, "a page holds {} events, asked for {}", events.len(), self.page);
        assert!(cursor.seq.is_none_or(|first| first == seq), "all pages of a snapshot carry the first one's sequence");
        for event in events {
            self.held.extend(event.topics.into_iter().map(|topic| (topic, event.event.id)));
        }
        self.seq = seq;
        self.next = next;
    }

    /// Reads the remaining pages, then every row after the snapshot. `None`: some of those rows were dropped, and a
    /// consumer must rebuild.
    pub(super) async fn catch_up(mut self, store: &dyn Store) -> Option<Held> {
        while self.next.is_some() {
            self.read_page(store).await;
        }
        loop {
            match store.outbox(self.seq, ROWS).await {
                Ok(rows) if rows.is_empty() => return Some(self.held),
                Ok(rows) => rows.into_iter().for_each(|row| self.apply(row)),
                Err(StoreError::Truncated { .. }) => return None,
                Err(error) => panic!("the outbox after {}: {error}", self.seq),
            }
        }
    }

    fn apply(&mut self, row: OutboxRow) {
        assert!(row.seq > self.seq, "rows come in order: {} after {}", row.seq, self.seq);
        self.seq = row.seq;
        let entry = (row.topic, row.event_id);
        match row.op {
            Op::Upsert => self.held.insert(entry),
            Op::Delete(_) => self.held.remove(&entry),
        };
    }
}

/// The effective set that results from applying all rows from the first on. `None`: rows were dropped.
///
/// Asserts that every row is a change: an upserted event was not effective before, a deleted one was (O-2).
pub(super) async fn from_start(store: &dyn Store) -> Option<Held> {
    let mut held = Held::new();
    let rows = match store.outbox(Seq::default(), usize::MAX).await {
        Ok(rows) => rows,
        Err(StoreError::Truncated { .. }) => return None,
        Err(error) => panic!("the outbox from the start: {error}"),
    };
    for row in rows {
        let entry = (row.topic.clone(), row.event_id);
        let changes = match row.op {
            Op::Upsert => held.insert(entry),
            Op::Delete(_) => held.remove(&entry),
        };
        assert!(changes, "this row changes nothing: {row:?}");
    }
    Some(held)
}

/// The effective events of each topic that they are bound to, by the store's own answer. Asserts that an event is bound
/// to all topics that it names, and a request to some of them, or to `kukuri:global` alone (T-4, T-9).
pub(super) async fn held_by(store: &dyn Store, named: &BTreeMap<EventId, Named>) -> Held {
    let ids: Vec<EventId> = effective(store, TIMELESS).await.into_iter().collect();
    let mut held = Held::new();
    for bound in store.get(&ids, TIMELESS).await.expect("events").into_iter().flatten() {
        let Named { is_request, topics } = &named[&bound.event.id];
        let is_bound_right = match is_request {
            false => bound.topics == *topics,
            true => bound.topics == [TopicId::global()] || bound.topics.iter().all(|topic| topics.contains(topic)),
        };
        assert!(is_bound_right && !bound.topics.is_empty(), "{bound:?} names {topics:?}");
        held.extend(bound.topics.into_iter().map(|topic| (topic, bound.event.id)));
    }
    assert_eq!(
        held.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().len(),
        ids.len(),
        "every event is found by its id"
    );
    held
}

/// The topics that an event names.
pub(super) struct Named {
    is_request: bool,
    topics: Vec<TopicId>,
}

/// The topics that each event names.
pub(super) fn topics_of(events: &[&Event]) -> BTreeMap<EventId, Named> {
    let named =
        |event: &Event| Named { is_request: event.kind.is_request(), topics: admitted(event).topics().to_vec() };
    events.iter().map(|event| (event.id, named(event))).collect()
}
