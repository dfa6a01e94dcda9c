//! Whether an index holds exactly the effective events of its kinds (C-1), in bounded memory: the ids of a part of the
//! index are held while the store is read through, then those of the next part.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Context, bail};
use kukuri_domain::{EventId, Kind, Millis};
use kukuri_search::SearchIndex;
use kukuri_store::{BoundEvent, Seq, SnapshotCursor, Store};

/// Ids of the index that are held at a time.
const PART: usize = 1 << 18;
const PAGE: usize = 1_000;
/// Of an index that differs by more than this nothing needs to be told but that.
const MOST: usize = 100_000;

/// In what an index and a store differ.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Documents that were compared.
    pub(crate) documents: u64,
    /// Effective, but not in the index.
    pub(crate) missing: BTreeSet<EventId>,
    /// In the index, but not effective, or not of its kinds.
    pub(crate) left_over: BTreeSet<EventId>,
}

/// Compares them. Both may change meanwhile: what did is not counted.
pub(super) async fn verify(
    index: &dyn SearchIndex,
    store: &dyn Store,
    kinds: &BTreeSet<Kind>,
    now: Millis,
) -> anyhow::Result<Differences> {
    let reached = index.reached().await?.context("the index was never filled")?;
    let mut found = Differences::default();
    let mut after = None;
    loop {
        let ids = index.ids(after, PART).await?;
        let last = if ids.len() < PART { None } else { ids.last().copied() };
        found.documents += ids.len() as u64;
        compare_part(store, kinds, (after, last), ids, &mut found).await?;
        if found.missing.len() + found.left_over.len() > MOST {
            bail!("more than {MOST} differences: rebuild it with kukuri-node index rebuild");
        }
        match last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    leave_out_changed(store, reached.seq, &mut found).await?;
    leave_out_expired(store, now, &mut found).await?;
    Ok(found)
}

/// Compares what lies after one id and up to another.
async fn compare_part(
    store: &dyn Store,
    kinds: &BTreeSet<Kind>,
    (after, last): (Option<EventId>, Option<EventId>),
    ids: Vec<EventId>,
    found: &mut Differences,
) -> anyhow::Result<()> {
    let mut unseen: HashSet<EventId> = ids.into_iter().collect();
    let is_in_part = |id: &EventId| after.is_none_or(|after| *id > after) && last.is_none_or(|last| *id <= last);
    let is_indexed = |bound: &BoundEvent| anyhow::Ok(kinds.contains(&bound.event.event()?.kind));
    let mut cursor = SnapshotCursor::default();
    loop {
        let page = store.snapshot(cursor, PAGE).await?;
        for bound in page.events.iter().filter(|bound| is_in_part(&bound.event.id)) {
            if is_indexed(bound)? && !unseen.remove(&bound.event.id) && found.missing.len() <= MOST {
                found.missing.insert(bound.event.id);
            }
        }
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    found.left_over.extend(unseen.into_iter().take(MOST + 1));
    Ok(())
}

/// What has a row since the index was looked at may be in one and not yet, or no more, in the other.
async fn leave_out_changed(store: &dyn Store, reached: Seq, found: &mut Differences) -> anyhow::Result<()> {
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

/// What has expired and waits for its sweep is in the snapshot, but for nobody to see.
async fn leave_out_expired(store: &dyn Store, now: Millis, found: &mut Differences) -> anyhow::Result<()> {
    let missing: Vec<EventId> = std::mem::take(&mut found.missing).into_iter().collect();
    for some in missing.chunks(PAGE) {
        let looked_up = store.get(some, now).await?;
        found.missing.extend(some.iter().zip(looked_up).filter(|(_, bound)| bound.is_some()).map(|(id, _)| *id));
    }
    Ok(())
}
