//! Reading: the one place where stored events are queried, counted, listed and searched for a viewer.

use std::{collections::HashSet, ops::RangeInclusive, sync::Arc, time::Instant};

use kukuri_domain::{Event, EventId, Filter, Letter, Sketch, Timestamp, TopicId, topic::claims_to_be_topic};
use kukuri_search::{FindError, Search, SearchQuery, Searching};
use kukuri_store::{Completeness, Count, Query, Seq, StoreError, StoredEvent};

use crate::{
    clock,
    engine::Shared,
    live::{ClientQueue, LiveFilter, LiveIndex, LiveSubscription},
    networks::{AddressLimit, ShareLimits, ShareRefused},
    policies::{Client, ReadKind, ReadRequest},
    refused::ReadRefused,
};

/// A query that takes longer is logged.
const SLOW_QUERY: std::time::Duration = std::time::Duration::from_secs(1);
/// An address may hold the free live filters divided by this: the next address always finds some.
const FILTER_PARTS: usize = 4;

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
        let context = self.shared.context(&config);
        self.shared.policies.ask(|policy| policy.check_read(&context, &ReadRequest { client, kind, filters }))
    }

    /// Whether the policies still let this client have a live subscription. To be asked when a [`crate::engine::Signal`] came.
    pub fn check_live(&self, client: &Client, live: &LiveSubscription) -> Result<(), ReadRefused> {
        let config = self.shared.config.load();
        let context = self.shared.context(&config);
        self.shared.policies.ask(|policy| policy.check_live(&context, client, live))
    }

    /// Filters of a REQ, ready to be subscribed to: limits are clamped, never refused (W-1); words are parsed (NIP-50).
    pub fn prepare(&self, filters: Vec<Filter>) -> Result<Vec<LiveFilter>, ReadRefused> {
        let (max, max_searches) = {
            let config = self.shared.config.load();
            (config.requests.limit, config.requests.search_filters)
        };
        if filters.iter().filter(|filter| filter.search().is_some()).count() > max_searches {
            return Err(ReadRefused::TooManySearches(max_searches));
        }
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

    /// Subscribes a client to live events, if its address and the node have room for the filters (Y-3). To be called before
    /// [`Reads::stored`], so that no event falls between the two (W-2).
    pub fn subscribe(
        &self,
        client: &Client,
        filters: Vec<LiveFilter>,
        queue: &Arc<ClientQueue>,
    ) -> Result<LiveSubscription, ReadRefused> {
        let config = self.shared.config.load();
        let per_address = config.requests.live_filters_per_address;
        let limits = ShareLimits {
            address: match config.rates {
                Some(_) => AddressLimit::FixedOrPartOfFree(per_address, FILTER_PARTS),
                None => AddressLimit::Unlimited,
            },
            total: config.requests.live_filters,
        };
        let weight: usize = filters.iter().map(LiveFilter::weight).sum();
        let share =
            self.shared.live_shares.acquire(client.ip, weight..=weight, limits).map_err(|refused| match refused {
                ShareRefused::Address => ReadRefused::TooManyLiveFilters(per_address),
                ShareRefused::Node => ReadRefused::NoRoomForLiveFilters,
            })?;
        let mut live = self.shared.live.subscribe(filters, &client.viewer(), queue);
        live.share = Some(share);
        Ok(live)
    }

    /// The index of live subscriptions.
    pub fn live(&self) -> &Arc<LiveIndex> {
        &self.shared.live
    }

    /// The bytes that an answer to these filters may have: at least one event for each filter, at most as many as their limits
    /// and `answer_bytes` allow.
    pub fn answer_bytes(&self, filters: &[LiveFilter]) -> RangeInclusive<usize> {
        let config = self.shared.config.load();
        let event_bytes = config.admission.limits.event_bytes;
        let events = filters.iter().map(|live| live.filter.limit().unwrap_or(config.requests.limit));
        let most = events.fold(0, usize::saturating_add).saturating_mul(event_bytes).min(config.requests.answer_bytes);
        most.min(filters.len() * event_bytes)..=most
    }

    /// The stored events that match, with no more than `max_bytes` of JSON.
    pub async fn stored(
        &self,
        filters: Vec<LiveFilter>,
        client: &Client,
        max_bytes: usize,
    ) -> Result<StoredAnswer, FindError> {
        let answer = self.measured("REQ", self.read_stored(filters, client, max_bytes)).await;
        let is_over = match &answer {
            Ok(answer) => answer.rest == Completeness::BudgetSpent,
            Err(error) => ReadRefused::of_find(error) == Some(ReadRefused::TooCostly),
        };
        self.count_over_budget(is_over);
        answer
    }

    async fn read_stored(
        &self,
        filters: Vec<LiveFilter>,
        client: &Client,
        max_bytes: usize,
    ) -> Result<StoredAnswer, FindError> {
        let (searches, plain): (Vec<LiveFilter>, Vec<LiveFilter>) =
            filters.into_iter().partition(|filter| filter.words.is_some());
        let mut query = self.build_query(plain.into_iter().map(|live| live.filter).collect(), client);
        // As in a store, each filter gets an equal share.
        let share = query.bytes.min(max_bytes) / (query.filters.len() + searches.len()).max(1);
        query.bytes = share * query.filters.len();
        // First: an event that is newer than this answer is either a hit or delivered live.
        let answer = self.shared.store.query(&query).await?;
        let mut stored = StoredAnswer { events: Vec::new(), hits: HashSet::new(), seq: answer.seq, rest: answer.rest };
        let Some(finder) = self.shared.finder.as_ref().filter(|_| !searches.is_empty()) else {
            stored.events = answer.events;
            return Ok(stored);
        };
        let mut searching = finder.begin(query.now, &query.budget).await?;
        for search in searches {
            let (hits, has_more) = self.search(&mut searching, search, &query, share).await?;
            if has_more && stored.rest != Completeness::BudgetSpent {
                stored.rest = Completeness::Truncated;
            }
            for event in hits {
                if stored.hits.insert(event.id) {
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
        client: &Client,
        sketch: Option<Sketch>,
    ) -> Result<Count, StoreError> {
        let query = self.build_query(filters, client);
        let count = self.measured("COUNT", self.shared.store.count(&query, sketch)).await;
        self.count_over_budget(matches!(count, Err(StoreError::TooCostly)));
        count
    }

    /// Time and id of each event that matches. `None`: there are more than `max`.
    pub async fn ids(
        &self,
        filters: Vec<Filter>,
        client: &Client,
        max: usize,
    ) -> Result<Option<Vec<(Timestamp, EventId)>>, StoreError> {
        let query = self.build_query(filters, client);
        let ids = self.measured("NEG-OPEN", self.shared.store.ids(&query, max)).await;
        self.count_over_budget(matches!(ids, Err(StoreError::TooCostly)));
        ids
    }

    /// Whether words can be searched for.
    pub fn has_search(&self) -> bool {
        self.shared.finder.is_some()
    }

    /// The hits of one search, with at most `max_bytes` of JSON or one larger event, and whether there may be more.
    async fn search(
        &self,
        searching: &mut Searching<'_>,
        live: LiveFilter,
        query: &Query,
        max_bytes: usize,
    ) -> Result<(Vec<StoredEvent>, bool), FindError> {
        let Some(words) = live.words else { return Ok((Vec::new(), false)) };
        let filter = live.filter;
        // The index knows topics. Other values of `t` are left to the filter itself.
        let topics = filter.tag_values(Letter::T).filter(|values| values.iter().all(|value| claims_to_be_topic(value)));
        let search = Search {
            topics: topics.map(|values| values.iter().map(|value| TopicId::new_unchecked(value)).collect()),
            kinds: filter.kinds().map(<[_]>::to_vec),
            authors: filter.authors().map(<[_]>::to_vec),
            since: filter.since(),
            until: filter.until(),
            ..Search::new(words, query.now.seconds(), filter.limit().unwrap_or_default())
        };
        let shows =
            |event: &Event, topics: &[TopicId]| filter.matches(event, topics) && query.shows(event, topics, &filter);
        let findings = searching.find(&search, max_bytes, shows).await?;
        Ok((findings.found.into_iter().map(|found| found.stored).collect(), findings.has_more))
    }

    fn build_query(&self, filters: Vec<Filter>, client: &Client) -> Query {
        let bytes = self.shared.config.load().requests.answer_bytes;
        let visibility = self.shared.visibility.load().as_ref().clone();
        let budget = self.shared.read_budget(client.ip);
        Query { filters, viewer: client.viewer(), visibility, now: clock::now(), bytes, budget }
    }

    fn count_over_budget(&self, is_over: bool) {
        if is_over {
            self.shared.metrics.queries_over_budget.increment(1);
        }
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
