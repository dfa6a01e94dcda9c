//! From what an index says to what may be shown: every hit is looked up in the store first (C-1).

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use kukuri_domain::{Event, EventId, Kind, Millis, TopicId, Viewer};
use kukuri_store::{BoundEvent, Op, Store, StoreError, StoredEvent};

use crate::{
    document::Text,
    index::{IndexError, Search, SearchIndex},
};

/// Hits that are looked up at a time, at least.
const FEWEST: usize = 16;
/// So many hits are looked at for one answer; more than a few that are gone are rare.
const MOST_HITS: usize = 2_000;
/// Rows of the outbox that an index may lag behind and still be made up for.
const MOST_ROWS: usize = 4_096;
/// Events of them that are held at a time.
const AT_ONCE: usize = 128;

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Something that was found and is effective.
#[derive(Clone, Debug)]
pub struct Found {
    /// The event, as it is served.
    pub stored: StoredEvent,
    /// The event.
    pub event: Event,
    /// Its topics.
    pub topics: Vec<TopicId>,
    /// How good it is; `None`: it is too new to be in the index.
    pub score: Option<f32>,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The best first, no more than were asked for.
    pub found: Vec<Found>,
    /// Where the next page begins, if there may be one.
    pub next: Option<usize>,
}

/// An index and the store it follows.
#[derive(Clone)]
pub struct Finder {
    index: Arc<dyn SearchIndex>,
    store: Arc<dyn Store>,
    kinds: Arc<BTreeSet<Kind>>,
    measure: Arc<OnceLock<Measure>>,
}

type Measure = Box<dyn Fn(Duration) + Send + Sync>;

impl Finder {
    /// Finds in this index what is in this store. Events of these kinds are indexed.
    pub fn new(index: Arc<dyn SearchIndex>, store: Arc<dyn Store>, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { index, store, kinds: Arc::new(kinds.into_iter().collect()), measure: Arc::default() }
    }

    /// What an event will be found by, once it is in the index. `None`: by nothing, for its kind is not indexed.
    pub fn words_of(&self, event: &Event) -> Option<HashSet<String>> {
        self.kinds.contains(&event.kind).then(|| Text::of(event).tokens().map(|token| token.text).collect())
    }

    /// The index.
    pub fn index(&self) -> &Arc<dyn SearchIndex> {
        &self.index
    }

    /// Has this called with the time that each search takes, also of clones. The first one to ask is heeded.
    pub fn on_found(&self, measure: impl Fn(Duration) + Send + Sync + 'static) {
        let _ = self.measure.set(Box::new(measure));
    }

    /// What answers a search and may be seen, as many as there are up to its limit. `accepts` narrows it further.
    pub async fn find(
        &self,
        search: &Search,
        viewer: &Viewer,
        now: Millis,
        accepts: impl Fn(&Event, &[TopicId]) -> bool,
    ) -> Result<Findings, FindError> {
        let started = Instant::now();
        let findings = self.look_for(search, viewer, now, accepts).await?;
        if let Some(measure) = self.measure.get() {
            measure(started.elapsed());
        }
        Ok(findings)
    }

    async fn look_for(
        &self,
        search: &Search,
        viewer: &Viewer,
        now: Millis,
        accepts: impl Fn(&Event, &[TopicId]) -> bool,
    ) -> Result<Findings, FindError> {
        let mut findings = Findings::default();
        let mut seen = HashSet::new();
        // What the index does not have yet comes first: it is the newest.
        if search.skip == 0 {
            let accepts = |found: &Found| viewer.may_see(&found.event) && accepts(&found.event, &found.topics);
            findings.found = self.newest(search, now, accepts).await?;
        }
        seen.extend(findings.found.iter().map(|found| found.event.id));
        let mut skip = search.skip;
        while findings.found.len() < search.limit && skip - search.skip < MOST_HITS {
            let wanted = (search.limit - findings.found.len()).max(FEWEST);
            let hits = self.index.search(&Search { skip, limit: wanted, ..search.clone() }).await?;
            let ids: Vec<EventId> = hits.iter().map(|hit| hit.id).collect();
            let looked_up = self.store.get(&ids, now).await?;
            let is_end = hits.len() < wanted;
            for (hit, bound) in hits.into_iter().zip(looked_up) {
                if findings.found.len() == search.limit {
                    findings.next = Some(skip);
                    return Ok(findings);
                }
                skip += 1;
                let Some(found) = bound.map(|bound| found(bound, Some(hit.score))).transpose()? else { continue };
                let is_shown = viewer.may_see(&found.event) && accepts(&found.event, &found.topics);
                if is_shown && seen.insert(hit.id) {
                    findings.found.push(found);
                }
            }
            if is_end {
                return Ok(findings);
            }
        }
        findings.next = (search.limit > 0).then_some(skip);
        Ok(findings)
    }

    /// What has become effective since the index was written, and matches, the newest first. An index that is far behind
    /// is not made up for.
    async fn newest(
        &self,
        search: &Search,
        now: Millis,
        accepts: impl Fn(&Found) -> bool,
    ) -> Result<Vec<Found>, FindError> {
        let head = *self.store.watch_outbox().borrow();
        let reached = self.index.reached().await?.unwrap_or_default().seq;
        if head.0.saturating_sub(reached.0) > MOST_ROWS as u64 {
            return Ok(Vec::new());
        }
        let rows = match self.store.outbox(reached, MOST_ROWS).await {
            Err(StoreError::Truncated { .. }) => return Ok(Vec::new()),
            rows => rows?,
        };
        let mut ids: Vec<EventId> = rows.iter().filter(|row| row.op == Op::Upsert).map(|row| row.event_id).collect();
        ids.reverse();
        let mut once = HashSet::new();
        ids.retain(|id| once.insert(*id));
        let mut newest = Vec::new();
        for some in ids.chunks(AT_ONCE) {
            for bound in self.store.get(some, now).await?.into_iter().flatten() {
                let found = found(bound, None)?;
                let has_words = self.words_of(&found.event).is_some_and(|words| search.query.is_in(&words));
                if has_words && found.meets(search) && accepts(&found) && newest.len() < search.limit {
                    newest.push(found);
                }
            }
            if newest.len() >= search.limit {
                break;
            }
        }
        Ok(newest)
    }
}

fn found(bound: BoundEvent, score: Option<f32>) -> Result<Found, StoreError> {
    let BoundEvent { event: stored, topics, .. } = bound;
    Ok(Found { event: stored.event()?, stored, topics, score })
}

impl Found {
    /// Whether it meets what a search asks for beside words.
    fn meets(&self, search: &Search) -> bool {
        let event = &self.event;
        search.topics.as_ref().is_none_or(|topics| topics.iter().any(|topic| self.topics.contains(topic)))
            && search.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
            && search.authors.as_ref().is_none_or(|authors| authors.contains(&event.pubkey))
            && search.since.is_none_or(|since| event.created_at >= since)
            && search.until.is_none_or(|until| event.created_at <= until)
    }
}
