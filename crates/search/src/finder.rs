//! From hits to events that may be shown: every hit is read from the store first (C-1), and events that are too new for the
//! index are added from the outbox.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use kukuri_domain::{Event, EventId, Kind, Millis, TopicId};
use kukuri_store::{BoundEvent, Budget, Epoch, ReadStage, Store, StoreError, StoredEvent};
use tokio::sync::Mutex;

use crate::{
    document::Text,
    index::{IndexError, Search, SearchIndex, SearchPermit},
    unindexed::{UnindexedEvent, UnindexedTokens},
};

/// Minimum number of hits requested from the index at a time.
const MIN_HITS: usize = 16;
/// Each further search for the same words asks for this many times as many hits.
const HITS_GROWTH: usize = 8;
/// Maximum number of hits examined for one request, over all its searches (Y-2).
pub const MAX_HITS: usize = 2_000;
/// Maximum bytes of their events.
const MAX_HIT_BYTES: usize = 32 << 20;
/// Events that the index has not reached get at most the budget divided by this: the index is always asked, too.
const UNINDEXED_PART: usize = 2;
/// Maximum lag of the index, in outbox rows, that is made up for by reading the outbox.
const MAX_LAG_ROWS: usize = 4_096;
/// Maximum bytes of the events of those rows that a request reads the words of, the newest first.
const MAX_LAG_BYTES: usize = 4 << 20;
/// Events looked up at a time.
const LOOKUP_BATCH: usize = 32;
/// Bytes of events that are parsed before other tasks get the thread.
const YIELD_BYTES: usize = 64 << 10;

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
    /// Whether limits may have left out matches: those of the next page, or events that the index has not reached.
    pub has_more: bool,
}

/// Searches an index and reads the hits from the store.
#[derive(Clone)]
pub struct Finder {
    index: Arc<dyn SearchIndex>,
    store: Arc<dyn Store>,
    kinds: Arc<BTreeSet<Kind>>,
    measure: Arc<OnceLock<Measure>>,
    tokens: Arc<Mutex<UnindexedTokens>>,
}

type Measure = Box<dyn Fn(Duration) + Send + Sync>;

impl Finder {
    /// `kinds`: the kinds that are indexed.
    pub fn new(index: Arc<dyn SearchIndex>, store: Arc<dyn Store>, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self {
            index,
            store,
            kinds: Arc::new(kinds.into_iter().collect()),
            measure: Arc::default(),
            tokens: Arc::new(Mutex::new(UnindexedTokens::new(2 * MAX_LAG_BYTES))),
        }
    }

    /// The tokens of an event; `None`: its kind is not indexed.
    pub fn words_of(&self, event: &Event) -> Option<HashSet<String>> {
        self.kinds.contains(&event.kind).then(|| Text::of(event).words())
    }

    /// Calls `measure` with the duration of each search, also of clones. Only the first call has an effect.
    pub fn on_found(&self, measure: impl Fn(Duration) + Send + Sync + 'static) {
        let _ = self.measure.set(Box::new(measure));
    }

    /// The matching events of one search that nothing bounds but [`MAX_HITS`]: see [`Searching::find`].
    pub async fn find(
        &self,
        search: &Search,
        now: Millis,
        shows: impl Fn(&Event, &[TopicId]) -> bool,
    ) -> Result<Findings, FindError> {
        self.begin(now, &Budget::default()).await?.find(search, usize::MAX, shows).await
    }

    /// Begins the searches of one request, once it is the client's turn.
    pub async fn begin(&self, now: Millis, budget: &Budget) -> Result<Searching<'_>, FindError> {
        let permit = budget.enter(ReadStage::Search, self.index.max_searches()).await?;
        Ok(Searching {
            finder: self,
            now,
            deadline: budget.deadline,
            permit: permit.into(),
            lookups: LookupBudget { hits: MAX_HITS, bytes: MAX_HIT_BYTES },
            unindexed_lookups: LookupBudget { hits: MAX_HITS / UNINDEXED_PART, bytes: MAX_HIT_BYTES / UNINDEXED_PART },
            bytes_since_yield: 0,
            unindexed: None,
        })
    }

    /// The events after the index's position; none if the index lags by more than [`MAX_LAG_ROWS`].
    async fn unindexed(&self) -> Result<Unindexed, FindError> {
        // Before the rows are read: tokens of a former epoch are not kept, those of a newer one would be.
        let epoch = *self.store.watch_epoch().borrow();
        let head = *self.store.watch_outbox().borrow();
        let reached = self.index.reached().await?.unwrap_or_default().seq;
        self.tokens.lock().await.forget_until(epoch, reached);
        let mut unindexed = Unindexed { epoch, events: Vec::new(), bytes_left: MAX_LAG_BYTES };
        if head.0.saturating_sub(reached.0) > MAX_LAG_ROWS as u64 {
            return Ok(unindexed);
        }
        let rows = match self.store.outbox(reached, MAX_LAG_ROWS).await {
            Err(StoreError::Truncated { .. }) => return Ok(unindexed),
            rows => rows?,
        };
        unindexed.events = UnindexedEvent::of_rows(rows, &self.kinds);
        Ok(unindexed)
    }
}

/// The searches of one request, which share a budget of hits and bytes looked at (Y-2).
pub struct Searching<'f> {
    finder: &'f Finder,
    now: Millis,
    deadline: Option<Instant>,
    permit: SearchPermit,
    lookups: LookupBudget,
    /// The part of `lookups` that events may take that the index has not reached.
    unindexed_lookups: LookupBudget,
    bytes_since_yield: usize,
    /// `None`: no search has needed them yet.
    unindexed: Option<Unindexed>,
}

/// How many hits may still be looked at, and how many bytes of their events.
struct LookupBudget {
    hits: usize,
    bytes: usize,
}

impl LookupBudget {
    fn take(&mut self, bytes: usize) {
        self.hits = self.hits.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(&self) -> bool {
        self.hits == 0 || self.bytes == 0
    }
}

/// The events that the index has not reached, as one request sees them.
struct Unindexed {
    epoch: Epoch,
    /// The newest first.
    events: Vec<UnindexedEvent>,
    /// Of [`MAX_LAG_BYTES`].
    bytes_left: usize,
}

/// The events that one search has found so far, within its limits.
struct Collected {
    limit: usize,
    max_bytes: usize,
    found: Vec<Found>,
    ids: HashSet<EventId>,
    bytes: usize,
    is_full: bool,
    /// Whether limits left out events that the index has not reached.
    has_left_out: bool,
}

impl Collected {
    fn new(limit: usize, max_bytes: usize) -> Self {
        let (found, ids) = (Vec::new(), HashSet::new());
        Self { limit, max_bytes, found, ids, bytes: 0, is_full: limit == 0, has_left_out: false }
    }

    /// Adds an event, once. Returns `false` if it does not fit: it is left to the next page. The first one always fits.
    fn add(&mut self, found: Found) -> bool {
        if self.ids.contains(&found.stored.id) {
            return true;
        }
        let bytes = self.bytes + found.stored.json.len();
        let fits = self.found.is_empty() || bytes <= self.max_bytes;
        if fits {
            self.bytes = bytes;
            self.ids.insert(found.stored.id);
            self.found.push(found);
        }
        self.is_full = !fits || self.found.len() >= self.limit;
        fits
    }
}

impl Searching<'_> {
    /// Matching events, with at most `max_bytes` of JSON, or one event that is larger. `shows` has to ask the visibility for the
    /// viewer (E-10, M-5); it may narrow the search as well.
    pub async fn find(
        &mut self,
        search: &Search,
        max_bytes: usize,
        shows: impl Fn(&Event, &[TopicId]) -> bool,
    ) -> Result<Findings, FindError> {
        let started = Instant::now();
        let mut collected = Collected::new(search.limit, max_bytes);
        // Events that are not in the index yet are the newest: they come first.
        if search.skip == 0 {
            self.find_unindexed(search, &shows, &mut collected).await?;
        }
        let next = self.find_indexed(search, &shows, &mut collected).await?;
        if let Some(measure) = self.finder.measure.get() {
            measure(started.elapsed());
        }
        let has_more = next.is_some() || collected.has_left_out;
        Ok(Findings { found: collected.found, next, has_more })
    }

    /// Adds the index's hits after `Search::skip`. Returns the `skip` of the next page, if there may be one.
    async fn find_indexed(
        &mut self,
        search: &Search,
        shows: &impl Fn(&Event, &[TopicId]) -> bool,
        collected: &mut Collected,
    ) -> Result<Option<usize>, FindError> {
        let mut skip = search.skip;
        let mut wanted = search.limit.saturating_sub(collected.found.len()).max(MIN_HITS);
        loop {
            if collected.is_full || self.is_spent() {
                return Ok((search.limit > 0).then_some(skip));
            }
            let requested = wanted.min(self.lookups.hits);
            // Every search scores all documents that match, so a few large ones cost less than many small ones.
            wanted = wanted.saturating_mul(HITS_GROWTH);
            let page = Search { skip, limit: requested, ..search.clone() };
            let hits = self.finder.index.search_with_permit(&page, self.permit.clone()).await?;
            let before = skip;
            'hits: for batch in hits.chunks(LOOKUP_BATCH) {
                let ids: Vec<EventId> = batch.iter().map(|hit| hit.id).collect();
                for (hit, bound) in batch.iter().zip(self.finder.store.get(&ids, self.now).await?) {
                    if collected.is_full || self.lookups.bytes == 0 {
                        break 'hits;
                    }
                    let size = json_bytes(bound.as_ref());
                    self.lookups.take(size);
                    self.yield_after(size).await;
                    if let Some(BoundEvent { event: stored, topics, .. }) = bound
                        && shows(&stored.event()?, &topics)
                        && !collected.add(Found { stored, topics, score: Some(hit.score) })
                    {
                        break 'hits;
                    }
                    skip += 1;
                }
            }
            if hits.len() < requested && skip - before == hits.len() {
                return Ok(None);
            }
        }
    }

    /// Adds matching events that the index has not reached, the newest first.
    async fn find_unindexed(
        &mut self,
        search: &Search,
        shows: &impl Fn(&Event, &[TopicId]) -> bool,
        collected: &mut Collected,
    ) -> Result<(), FindError> {
        let mut unindexed = match self.unindexed.take() {
            Some(unindexed) => unindexed,
            None => self.finder.unindexed().await?,
        };
        let matching = self.match_unindexed(&mut unindexed, search, collected).await?;
        self.unindexed = Some(unindexed);
        for ids in matching.chunks(LOOKUP_BATCH) {
            for bound in self.finder.store.get(ids, self.now).await?.into_iter().flatten() {
                if collected.is_full {
                    return Ok(());
                }
                if self.unindexed_lookups.is_spent() || self.is_spent() {
                    collected.has_left_out = true;
                    return Ok(());
                }
                let size = json_bytes(Some(&bound));
                self.lookups.take(size);
                self.unindexed_lookups.take(size);
                self.yield_after(size).await;
                let BoundEvent { event: stored, topics, .. } = bound;
                let event = stored.event()?;
                let meets = search.topics.as_ref().is_none_or(|asked| asked.iter().any(|topic| topics.contains(topic)))
                    && search.authors.as_ref().is_none_or(|authors| authors.contains(&event.pubkey));
                if meets && shows(&event, &topics) {
                    collected.add(Found { stored, topics, score: None });
                }
            }
        }
        Ok(())
    }

    /// The events that may meet the search by their rows and have its words. Reads and tokenises those that no request has met
    /// yet, none beyond [`MAX_LAG_BYTES`].
    async fn match_unindexed(
        &mut self,
        unindexed: &mut Unindexed,
        search: &Search,
        collected: &mut Collected,
    ) -> Result<Vec<EventId>, FindError> {
        let hashes = self.finder.tokens.lock().await.hashes_of(&search.query);
        let mut matching = Vec::new();
        let mut candidates: Vec<&mut UnindexedEvent> =
            unindexed.events.iter_mut().filter(|event| event.may_meet(search)).collect();
        for batch in candidates.chunks_mut(LOOKUP_BATCH) {
            if unindexed.bytes_left > 0 && !self.is_late() {
                let bytes = self.load_tokens(unindexed.epoch, batch).await?;
                unindexed.bytes_left = unindexed.bytes_left.saturating_sub(bytes);
            }
            for event in batch {
                match &event.tokens {
                    Some(tokens) if tokens.has_all(&hashes) => matching.push(event.id),
                    Some(_) => {}
                    None => collected.has_left_out = true,
                }
            }
        }
        Ok(matching)
    }

    /// Sets the tokens of those events that have none: known ones, or new ones from the store. Returns the bytes of these events.
    async fn load_tokens(&mut self, epoch: Epoch, events: &mut [&mut UnindexedEvent]) -> Result<usize, FindError> {
        let finder = self.finder;
        // Held while tokens are made: other requests would make the same ones.
        let mut tokens = finder.tokens.lock().await;
        let mut bytes = 0;
        let mut unknown = Vec::new();
        for event in events.iter_mut().filter(|event| event.tokens.is_none()) {
            match tokens.get(event.seq, event.id) {
                Some(known) => {
                    bytes += known.bytes;
                    event.tokens = Some(known);
                }
                None => unknown.push(event),
            }
        }
        let ids: Vec<EventId> = unknown.iter().map(|event| event.id).collect();
        let bounds = if ids.is_empty() { Vec::new() } else { finder.store.get(&ids, self.now).await? };
        for (event, bound) in unknown.into_iter().zip(bounds) {
            let size = json_bytes(bound.as_ref());
            let parsed = bound.map(|bound| bound.event.event()).transpose()?;
            let words = parsed.and_then(|parsed| finder.words_of(&parsed)).unwrap_or_default();
            event.tokens = Some(tokens.insert(epoch, event, size, words.iter().map(String::as_str)));
            bytes += size;
            self.yield_after(size).await;
        }
        Ok(bytes)
    }

    fn is_spent(&self) -> bool {
        self.lookups.is_spent() || self.is_late()
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Gives the thread back after every [`YIELD_BYTES`] that were parsed.
    async fn yield_after(&mut self, bytes: usize) {
        self.bytes_since_yield += bytes;
        if self.bytes_since_yield >= YIELD_BYTES {
            self.bytes_since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
}

fn json_bytes(bound: Option<&BoundEvent>) -> usize {
    bound.map_or(0, |bound| bound.event.json.len())
}
