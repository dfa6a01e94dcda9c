//! Compares an index with the effective events of its kinds (C-1) in bounded memory: the ids of one range of the index are
//! held while the store is read through, then the ids of the next range.

use std::collections::{BTreeSet, HashSet};

use kukuri_domain::{EventId, Kind, Millis};
use kukuri_outbox::{ServiceError, Verification};
use kukuri_store::{BoundEvent, Seq, SnapshotCursor, Store};

use crate::index_consumer::IndexSink;

/// Ids of the index held at a time.
const RANGE_IDS: usize = 1 << 18;
const PAGE: usize = 1_000;
/// The comparison ends early at this number of differences.
const MAX_DIFFERENCES: usize = 100_000;

/// Maximum number of differences reported one by one, of each sort.
const MAX_EXAMPLES: usize = 20;

/// The differences between an index and a store.
#[derive(Default)]
struct Differences {
    /// Effective, but not in the index.
    missing: BTreeSet<EventId>,
    /// In the index, but not effective, or not of an indexed kind.
    left_over: BTreeSet<EventId>,
}

/// Compares index and store. Events that change meanwhile are left out.
pub(crate) async fn compare(sink: &IndexSink, now: Millis) -> Result<Verification, ServiceError> {
    let IndexSink { index, store, kinds } = sink;
    let store = &**store;
    let reached = index.reached().await.map_err(ServiceError::storage)?;
    let reached = reached.ok_or_else(|| ServiceError::storage("the index was never filled"))?;
    let (mut found, mut compared) = (Differences::default(), 0);
    let mut after = None;
    loop {
        let ids = index.ids(after, RANGE_IDS).await.map_err(ServiceError::storage)?;
        let last = if ids.len() < RANGE_IDS { None } else { ids.last().copied() };
        compared += ids.len() as u64;
        compare_range(store, kinds, (after, last), ids, &mut found).await?;
        if found.missing.len() + found.left_over.len() > MAX_DIFFERENCES {
            let many = format!("more than {MAX_DIFFERENCES} differences: rebuild it with kukuri-node index rebuild");
            return Err(ServiceError::storage(many));
        }
        match last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    leave_out_changed(store, reached.seq, &mut found).await?;
    leave_out_expired(store, now, &mut found).await?;
    let Differences { missing, left_over } = found;
    let not_indexed = missing.iter().map(|id| format!("{id} is visible, but not in the index"));
    let not_visible = left_over.iter().map(|id| format!("{id} is in the index, but should not be"));
    Ok(Verification {
        records: "documents",
        compared,
        differences: (missing.len() + left_over.len()) as u64,
        examples: not_indexed.take(MAX_EXAMPLES).chain(not_visible.take(MAX_EXAMPLES)).collect(),
    })
}

/// Compares the ids above `after` up to `last`.
async fn compare_range(
    store: &dyn Store,
    kinds: &BTreeSet<Kind>,
    (after, last): (Option<EventId>, Option<EventId>),
    ids: Vec<EventId>,
    found: &mut Differences,
) -> Result<(), ServiceError> {
    let mut unseen: HashSet<EventId> = ids.into_iter().collect();
    let is_in_range = |id: &EventId| after.is_none_or(|after| *id > after) && last.is_none_or(|last| *id <= last);
    let is_indexed = |bound: &BoundEvent| bound.event.event().map(|event| kinds.contains(&event.kind));
    let mut cursor = SnapshotCursor::default();
    loop {
        let page = store.snapshot(cursor, PAGE).await?;
        for bound in page.events.iter().filter(|bound| is_in_range(&bound.event.id)) {
            if is_indexed(bound)? && !unseen.remove(&bound.event.id) && found.missing.len() <= MAX_DIFFERENCES {
                found.missing.insert(bound.event.id);
            }
        }
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    found.left_over.extend(unseen.into_iter().take(MAX_DIFFERENCES + 1));
    Ok(())
}

/// An event with a row after the compared position may be in one and not yet, or no longer, in the other.
async fn leave_out_changed(store: &dyn Store, reached: Seq, found: &mut Differences) -> Result<(), ServiceError> {
    let head = store.stats().await?.head;
    let mut seq = reached;
    while seq < head {
        let rows = store.outbox(seq, PAGE).await?;
        let Some(last) = rows.last() else { break };
        seq = last.seq;
        for row in &rows {
            found.missing.remove(&row.event_id);
            found.left_over.remove(&row.event_id);
        }
    }
    Ok(())
}

/// An expired event that no sweep has removed yet is in the snapshot, but not visible.
async fn leave_out_expired(store: &dyn Store, now: Millis, found: &mut Differences) -> Result<(), ServiceError> {
    let missing: Vec<EventId> = std::mem::take(&mut found.missing).into_iter().collect();
    for page in missing.chunks(PAGE) {
        let looked_up = store.get(page, now).await?;
        found.missing.extend(page.iter().zip(looked_up).filter(|(_, bound)| bound.is_some()).map(|(id, _)| *id));
    }
    Ok(())
}
