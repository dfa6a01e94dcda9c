//! Reading: the one place where stored events are queried, counted, listed and searched for a viewer.

use std::{collections::HashSet, sync::Arc, time::Instant};

use kukuri_domain::{Event, EventId, Filter, Letter, Sketch, Timestamp, TopicId, Viewer, topic::claims_to_be_topic};
use kukuri_search::{FindError, Search, SearchQuery};
use kukuri_store::{Completeness, Count, Query, Seq, StoreError, StoredEvent};

use crate::{
    clock,
    engine::Shared,
    live::{LiveFilter, LiveIndex},
    policies::{Client, Context, ReadKind, ReadRequest},
    refused::ReadRefused,
};

/// A query that takes longer is logged.
const SLOW_QUERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Answers readers.
pub struct Reads {
    pub(crate) shared: Arc<Shared>,
}

/// The stored events of a subscription.
pub struct StoredAnswer {
    /// Hits of searches, the best first, then the others, the newest first.
    pub events: Vec<StoredEvent>,
    /// The hits of searches. They may be newer than `seq`.
    pub hits: HashSet<EventId>,
    /// The outbox sequence the others were read at (W-2).
    pub seq: Seq,
    /// Whether limits have left matches out (NIP-67).
    pub rest: Completeness,
}

impl Reads {
    /// Whether the policies let this client read.
    pub fn check(&self, client: &Client, kind: ReadKind, filters: &[Filter]) -> Result<(), ReadRefused> {
        let config = self.shared.config.load();
        let context = Context { config: &config, now: clock::now() };
        self.shared.policies.ask(|policy| policy.check_read(&context, &ReadRequest { client, kind, filters }))
    }

    /// Filters of a REQ, ready to be subscribed to: limits are clamped, never refused (W-1); words are parsed (NIP-50).
    pub fn prepare(&self, filters: Vec<Filter>) -> Result<Vec<LiveFilter>, ReadRefused> {
        let max = self.shared.config.load().requests.limit;
        let prepare = |filter: Filter| {
            let words = match filter.search() {
                None => None,
                Some(_) if self.shared.finder.is_none() => return Err(ReadRefused::NoSearch),
                Some(text) => Some(SearchQuery::parse(text)?),
            };
            let limit = filter.limit().unwrap_or(max).min(max);
            Ok(LiveFilter { filter: filter.with_limit(limit), words })
        };
        filters.into_iter().map(prepare).collect()
    }

    /// Live events. To be subscribed to before [`Reads::stored`], so that no event falls between the two (W-2).
    pub fn live(&self) -> &Arc<LiveIndex> {
        &self.shared.live
    }

    /// The stored events that match.
    pub async fn stored(&self, filters: Vec<LiveFilter>, viewer: &Viewer) -> Result<StoredAnswer, FindError> {
        self.measured("REQ", self.read_stored(filters, viewer)).await
    }

    async fn read_stored(&self, filters: Vec<LiveFilter>, viewer: &Viewer) -> Result<StoredAnswer, FindError> {
        let (searches, plain): (Vec<LiveFilter>, Vec<LiveFilter>) =
            filters.into_iter().partition(|filter| filter.words.is_some());
        let query = self.build_query(plain.into_iter().map(|live| live.filter).collect(), viewer);
        // First: an event that is newer than this answer is either a hit or delivered live.
        let answer = self.shared.store.query(&query).await?;
        let mut stored = StoredAnswer { events: Vec::new(), hits: HashSet::new(), seq: answer.seq, rest: answer.rest };
        let mut bytes = 0;
        for search in searches {
            let (hits, has_more) = self.search(search, viewer).await?;
            if has_more {
                stored.rest = Completeness::Truncated;
            }
            for event in hits {
                if bytes >= query.bytes {
                    stored.rest = Completeness::Truncated;
                } else if stored.hits.insert(event.id) {
                    bytes += event.json.len();
                    stored.events.push(event);
                }
            }
        }
        let others = answer.events.into_iter().filter(|event| !stored.hits.contains(&event.id));
        stored.events.extend(others);
        Ok(stored)
    }

    /// How many events match.
    pub async fn count(
        &self,
        filters: Vec<Filter>,
        viewer: &Viewer,
        sketch: Option<Sketch>,
    ) -> Result<Count, StoreError> {
        let query = self.build_query(filters, viewer);
        self.measured("COUNT", self.shared.store.count(&query, sketch)).await
    }

    /// Time and id of each event that matches. `None`: there are more than `max`.
    pub async fn ids(
        &self,
        filters: Vec<Filter>,
        viewer: &Viewer,
        max: usize,
    ) -> Result<Option<Vec<(Timestamp, EventId)>>, StoreError> {
        let query = self.build_query(filters, viewer);
        self.measured("NEG-OPEN", self.shared.store.ids(&query, max)).await
    }

    /// Whether words can be searched for.
    pub fn has_search(&self) -> bool {
        self.shared.finder.is_some()
    }

    /// The hits of one search, and whether there may be more.
    async fn search(&self, live: LiveFilter, viewer: &Viewer) -> Result<(Vec<StoredEvent>, bool), FindError> {
        let (Some(finder), Some(words)) = (&self.shared.finder, live.words) else { return Ok((Vec::new(), false)) };
        let (filter, now) = (live.filter, clock::now());
        // The index knows topics. Other values of `t` are left to the filter itself.
        let topics = filter.tag_values(Letter::T).filter(|values| values.iter().all(|value| claims_to_be_topic(value)));
        let search = Search {
            topics: topics.map(|values| values.iter().map(|value| TopicId::new_unchecked(value)).collect()),
            kinds: filter.kinds().map(<[_]>::to_vec),
            authors: filter.authors().map(<[_]>::to_vec),
            since: filter.since(),
            until: filter.until(),
            ..Search::new(words, now.seconds(), filter.limit().unwrap_or_default())
        };
        let visibility = self.shared.visibility.load_full();
        let shows = |event: &Event, topics: &[TopicId]| {
            filter.matches(event, topics) && visibility.shows(event, topics, viewer, Some(&filter))
        };
        let findings = finder.find(&search, now, shows).await?;
        let has_more = findings.next.is_some();
        Ok((findings.found.into_iter().map(|found| found.stored).collect(), has_more))
    }

    fn build_query(&self, filters: Vec<Filter>, viewer: &Viewer) -> Query {
        let bytes = self.shared.config.load().requests.answer_bytes;
        let visibility = self.shared.visibility.load().as_ref().clone();
        Query { filters, viewer: viewer.clone(), visibility, now: clock::now(), bytes }
    }

    async fn measured<T, E>(&self, request: &'static str, reading: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let started = Instant::now();
        let read = reading.await?;
        let time = started.elapsed();
        self.shared.metrics.query_seconds.record(time);
        if time > SLOW_QUERY {
            tracing::warn!(request, millis = time.as_millis() as u64, "slow query");
        }
        Ok(read)
    }
}
