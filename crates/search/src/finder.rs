//! From hits to events that may be shown: every hit is read from the store first (C-1), and events that are too new for the
//! index are added from the outbox.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use kukuri_domain::{Event, EventId, Kind, Millis, TopicId};
use kukuri_store::{BoundEvent, Op, Store, StoreError, StoredEvent};

use crate::{
    document::Text,
    index::{IndexError, Search, SearchIndex},
};

/// Minimum number of hits requested from the index at a time.
const MIN_HITS: usize = 16;
/// Maximum number of hits examined for one answer.
const MAX_HITS: usize = 2_000;
/// Maximum lag of the index, in outbox rows, that is made up for by reading the outbox.
const MAX_LAG_ROWS: usize = 4_096;
/// Events of those rows held in memory at a time.
const LOOKUP_BATCH: usize = 128;

/// A failed search.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FindError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An effective event that matches a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// The event in its stored form, as it is served.
    pub stored: StoredEvent,
    /// The event, parsed.
    pub event: Event,
    /// The topics in which the event is effective.
    pub topics: Vec<TopicId>,
    /// The index's score; `None`: the event is not in the index yet.
    pub score: Option<f32>,
}

/// The answer to a search.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The best first; at most `Search::limit`.
    pub found: Vec<Found>,
    /// `Search::skip` of the next page, if there may be one.
    pub next: Option<usize>,
}

/// Searches an index and reads the hits from the store.
#[derive(Clone)]
pub struct Finder {
    index: Arc<dyn SearchIndex>,
    store: Arc<dyn Store>,
    kinds: Arc<BTreeSet<Kind>>,
    measure: Arc<OnceLock<Measure>>,
}

type Measure = Box<dyn Fn(Duration) + Send + Sync>;

impl Finder {
    /// `kinds`: the kinds that are indexed.
    pub fn new(index: Arc<dyn SearchIndex>, store: Arc<dyn Store>, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { index, store, kinds: Arc::new(kinds.into_iter().collect()), measure: Arc::default() }
    }

    /// The tokens of an event; `None`: its kind is not indexed.
    pub fn words_of(&self, event: &Event) -> Option<HashSet<String>> {
        self.kinds.contains(&event.kind).then(|| Text::of(event).words())
    }

    /// Calls `measure` with the duration of each search, also of clones. Only the first call has an effect.
    pub fn on_found(&self, measure: impl Fn(Duration) + Send + Sync + 'static) {
        let _ = self.measure.set(Box::new(measure));
    }

    /// Matching events. `shows` has to ask the visibility for the viewer (E-10, M-5); it may narrow the search as well.
    pub async fn find(
        &self,
        search: &Search,
        now: Millis,
        shows: impl Fn(&Event, &[TopicId]) -> bool,
    ) -> Result<Findings, FindError> {
        let started = Instant::now();
        let mut found_events = Vec::new();
        // Events that are not in the index yet are the newest: they come first.
        if search.skip == 0 {
            found_events = self.not_yet_indexed(search, now, &shows).await?;
        }
        let mut seen: HashSet<EventId> = found_events.iter().map(|found| found.event.id).collect();
        let mut skip = search.skip;
        let next = loop {
            if found_events.len() >= search.limit || skip - search.skip >= MAX_HITS {
                break (search.limit > 0).then_some(skip);
            }
            let requested = (search.limit - found_events.len()).max(MIN_HITS);
            let hits = self.index.search(&Search { skip, limit: requested, ..search.clone() }).await?;
            let ids: Vec<EventId> = hits.iter().map(|hit| hit.id).collect();
            let mut looked_up = hits.iter().zip(self.store.get(&ids, now).await?);
            while found_events.len() < search.limit
                && let Some((hit, bound)) = looked_up.next()
            {
                skip += 1;
                let Some(found) = bound.map(|bound| found(bound, Some(hit.score))).transpose()? else { continue };
                if shows(&found.event, &found.topics) && seen.insert(hit.id) {
                    found_events.push(found);
                }
            }
            if hits.len() < requested && looked_up.next().is_none() {
                break None;
            }
        };
        if let Some(measure) = self.measure.get() {
            measure(started.elapsed());
        }
        Ok(Findings { found: found_events, next })
    }

    /// Matching events of outbox rows after the index's position, the newest first; none if the index lags by more than
    /// [`MAX_LAG_ROWS`].
    async fn not_yet_indexed(
        &self,
        search: &Search,
        now: Millis,
        shows: &impl Fn(&Event, &[TopicId]) -> bool,
    ) -> Result<Vec<Found>, FindError> {
        let head = *self.store.watch_outbox().borrow();
        let reached = self.index.reached().await?.unwrap_or_default().seq;
        if head.0.saturating_sub(reached.0) > MAX_LAG_ROWS as u64 {
            return Ok(Vec::new());
        }
        let rows = match self.store.outbox(reached, MAX_LAG_ROWS).await {
            Err(StoreError::Truncated { .. }) => return Ok(Vec::new()),
            rows => rows?,
        };
        let mut once = HashSet::new();
        let upserts = rows.iter().rev().filter(|row| row.op == Op::Upsert).map(|row| row.event_id);
        let ids: Vec<EventId> = upserts.filter(|id| once.insert(*id)).collect();
        let mut found_events = Vec::new();
        for batch in ids.chunks(LOOKUP_BATCH) {
            for bound in self.store.get(batch, now).await?.into_iter().flatten() {
                let found = found(bound, None)?;
                let has_words = self.words_of(&found.event).is_some_and(|words| search.query.is_in(&words));
                if has_words && found.meets(search) && shows(&found.event, &found.topics) {
                    found_events.push(found);
                }
            }
            if found_events.len() >= search.limit {
                break;
            }
        }
        found_events.truncate(search.limit);
        Ok(found_events)
    }
}

fn found(bound: BoundEvent, score: Option<f32>) -> Result<Found, StoreError> {
    let BoundEvent { event: stored, topics, .. } = bound;
    Ok(Found { event: stored.event()?, stored, topics, score })
}

impl Found {
    /// Whether the event meets the restrictions of a search, words aside.
    fn meets(&self, search: &Search) -> bool {
        let event = &self.event;
        search.topics.as_ref().is_none_or(|topics| topics.iter().any(|topic| self.topics.contains(topic)))
            && search.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
            && search.authors.as_ref().is_none_or(|authors| authors.contains(&event.pubkey))
            && search.since.is_none_or(|since| event.created_at >= since)
            && search.until.is_none_or(|until| event.created_at <= until)
    }
}
