//! `GET /v1/trending`: the topics in which most people do something, of the last 24 hours (S-8).
//!
//! Posts and reactions are counted from the outbox, by hours of their `created_at`: each row is read once, at most [`MAX_ROWS_PER_REFRESH`]
//! for one refresh, so that no request walks all events or all topics (T-10, Y-2). Only the topics with the highest counts are looked
//! at closer: how many authors their last events have.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use axum::{Json, extract::State};
use kukuri_control::{metric::Metric, topic_name};
use kukuri_domain::{Filter, Kind, Letter, Millis, PublicKey, Timestamp, TopicId, Viewer};
use kukuri_store::{Budget, Epoch, Op, OutboxRow, Query as StoreQuery, Seq, StoreError};
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::Instant};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Api, ApiState,
    answer::Page,
    error::{Error, ErrorBody},
    extract::{PageLimit, Query},
    position::epoch_of,
    quota,
    reader::Reader,
};

/// Kinds that count as posts.
const POSTS: [Kind; 6] = [Kind(1), Kind(11), Kind(1063), Kind(1111), Kind(30023), Kind(30818)];
const REACTION: Kind = Kind(7);

const HOUR: u64 = 3_600;
/// The hours that count.
const WINDOW_HOURS: u64 = 24;
/// How long an answer stands.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Outbox rows that one refresh reads. If there are more, it reads the last of them.
const MAX_ROWS_PER_REFRESH: u64 = 100_000;
const ROWS_PER_READ: usize = 1_000;
/// Topics that are counted at a time; further ones are not, until others have been quiet for a day.
const MAX_COUNTED_TOPICS: usize = 10_000;
/// Topics whose authors are counted.
const MAX_RANKED_TOPICS: usize = 50;
/// Events of a topic whose authors are counted: the last ones.
const EVENTS_PER_TOPIC: usize = 200;
/// Bytes of them.
const BYTES_PER_TOPIC: usize = 256 << 10;
/// Rows that looking for them may cost, and how long (Y-2).
const QUERY_ROWS: usize = 5_000;
const QUERY_TIME: Duration = Duration::from_secs(1);
/// Time for the authors of all topics; those of further topics are not counted.
const RANKING_TIME: Duration = Duration::from_secs(5);

type Limit = PageLimit<20, 50>;

/// Counters of the last day, and the answer made from them.
#[derive(Default)]
pub(crate) struct Trending(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    counts: Counts,
    ranked: Option<(Instant, Arc<Vec<RankedTopic>>)>,
}

/// Activity in topics, by hours.
#[derive(Default)]
struct Counts {
    epoch: Epoch,
    /// The last row that was counted.
    read_to: Seq,
    by_topic: HashMap<TopicId, HashMap<u64, Activity>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    posts: u64,
    reactions: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RankedTopic {
    topic: TopicId,
    activity: Activity,
    authors: usize,
}

impl Trending {
    /// The topics in their order, at most a minute old. One caller reads for all.
    async fn ranked(&self, api: &Api) -> Result<Arc<Vec<RankedTopic>>, Error> {
        let mut state = self.0.lock().await;
        if let Some((made_at, ranked)) = &state.ranked
            && made_at.elapsed() < REFRESH_INTERVAL
        {
            return Ok(Arc::clone(ranked));
        }
        let now = (api.clock)();
        state.counts.read_on(api, now.seconds()).await?;
        let ranked = Arc::new(rank(api, state.counts.highest(api, now.seconds()), now).await?);
        state.ranked = Some((Instant::now(), Arc::clone(&ranked)));
        Ok(ranked)
    }
}

impl Counts {
    /// Counts the rows that were written since the last time.
    async fn read_on(&mut self, api: &Api, now: Timestamp) -> Result<(), StoreError> {
        let epoch = epoch_of(&*api.store);
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::default() };
        }
        let head = *api.store.watch_outbox().borrow();
        self.read_to = self.read_to.max(Seq(head.0.saturating_sub(MAX_ROWS_PER_REFRESH)));
        for _ in 0..MAX_ROWS_PER_REFRESH.div_ceil(ROWS_PER_READ as u64) {
            let rows = match api.store.outbox(self.read_to, ROWS_PER_READ).await {
                Err(StoreError::Truncated { first, .. }) => {
                    self.read_to = Seq(first.0.saturating_sub(1));
                    continue;
                }
                rows => rows?,
            };
            rows.iter().for_each(|row| self.count(row, now));
            self.read_to = rows.last().map_or(self.read_to, |row| row.seq);
            if rows.len() < ROWS_PER_READ {
                break;
            }
            // The embedded store reads on this thread.
            tokio::task::yield_now().await;
        }
        let oldest = oldest_hour(now);
        self.by_topic.retain(|_, hours| {
            hours.retain(|hour, _| *hour >= oldest);
            !hours.is_empty()
        });
        Ok(())
    }

    fn count(&mut self, row: &OutboxRow, now: Timestamp) {
        let hour = row.created_at.0 / HOUR;
        let (is_post, is_reaction) = (POSTS.contains(&row.kind), row.kind == REACTION);
        if !(oldest_hour(now)..=now.0 / HOUR + 1).contains(&hour) || !(is_post || is_reaction) {
            return;
        }
        if !self.by_topic.contains_key(&row.topic) && self.by_topic.len() >= MAX_COUNTED_TOPICS {
            return;
        }
        let activity = self.by_topic.entry(row.topic.clone()).or_default().entry(hour).or_default();
        let counter = if is_post { &mut activity.posts } else { &mut activity.reactions };
        *counter = match row.op {
            Op::Upsert => *counter + 1,
            Op::Delete(_) => counter.saturating_sub(1),
        };
    }

    /// The topics that the node takes in with the highest counts.
    fn highest(&self, api: &Api, now: Timestamp) -> Vec<(TopicId, Activity)> {
        let oldest = oldest_hour(now);
        let total = |hours: &HashMap<u64, Activity>| {
            let counted = hours.iter().filter(|(hour, _)| **hour >= oldest).map(|(_, activity)| *activity);
            counted.fold(Activity::default(), |sum, one| Activity {
                posts: sum.posts + one.posts,
                reactions: sum.reactions + one.reactions,
            })
        };
        let counted = self.by_topic.iter().filter(|(topic, _)| api.gate.is_enabled(topic));
        let mut highest: Vec<_> = counted.map(|(topic, hours)| (topic.clone(), total(hours))).collect();
        highest.retain(|(_, activity)| activity.total() > 0);
        highest.sort_unstable_by(|one, other| other.1.total().cmp(&one.1.total()).then_with(|| one.0.cmp(&other.0)));
        highest.truncate(MAX_RANKED_TOPICS);
        highest
    }
}

impl Activity {
    fn total(self) -> u64 {
        self.posts + self.reactions
    }
}

/// The first hour that counts.
fn oldest_hour(now: Timestamp) -> u64 {
    (now.0 / HOUR + 1).saturating_sub(WINDOW_HOURS)
}

/// Orders topics: a topic of many people comes before one in which few do much.
async fn rank(api: &Api, topics: Vec<(TopicId, Activity)>, now: Millis) -> Result<Vec<RankedTopic>, StoreError> {
    let mut ranked = Vec::with_capacity(topics.len());
    let end = Instant::now() + RANKING_TIME;
    for (topic, activity) in topics {
        let authors = if Instant::now() < end { count_authors(api, &topic, now).await? } else { 0 };
        ranked.push(RankedTopic { topic, activity, authors });
    }
    // The order by activity stays among those with as many authors.
    ranked.sort_by_key(|topic| std::cmp::Reverse(topic.authors));
    Ok(ranked)
}

/// The authors of a topic's last posts and reactions.
async fn count_authors(api: &Api, topic: &TopicId, now: Millis) -> Result<usize, StoreError> {
    let since = Timestamp(oldest_hour(now.seconds()) * HOUR);
    let filter = Filter::new()
        .with_tag(Letter::T, [topic.as_str()])
        .with_kinds(POSTS.into_iter().chain([REACTION]))
        .with_since(since)
        .with_limit(EVENTS_PER_TOPIC);
    let query = StoreQuery {
        visibility: (api.visibility)(),
        bytes: BYTES_PER_TOPIC,
        budget: Budget { rows: QUERY_ROWS, deadline: std::time::Instant::now().checked_add(QUERY_TIME), gate: None },
        ..StoreQuery::of(filter, Viewer::unauthenticated(), now)
    };
    match api.store.query(&query).await {
        Ok(answer) => {
            let authors = answer.events.iter().filter_map(|stored| stored.event().ok()).map(|event| event.pubkey);
            Ok(authors.collect::<HashSet<PublicKey>>().len())
        }
        Err(StoreError::TooCostly | StoreError::Busy) => Ok(0),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrendingParameters {
    /// Topics; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TrendingItem {
    topic_id: String,
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Posts of the last 24 hours.
    posts: u64,
    /// Reactions of the last 24 hours.
    reactions: u64,
    /// Authors of the last 200 of these posts and reactions.
    authors: usize,
}

/// The topics in which most people have posted and reacted within 24 hours.
#[utoipa::path(get, path = "/v1/trending", params(TrendingParameters), responses(
    (status = 200, description = "Topics, on one page.", body = Page<TrendingItem>),
    (status = 402, description = "The caller's plan has no more of these requests today.", body = ErrorBody),
    (status = 503, description = "The store or the database of accounts is not available.", body = ErrorBody),
))]
pub(crate) async fn list_trending(
    State(api): State<Arc<ApiState>>,
    reader: Reader,
    Query(parameters): Query<TrendingParameters>,
) -> Result<Json<Page<TrendingItem>>, Error> {
    let read = async {
        let ranked = api.trending.ranked(&api).await?;
        let shown = &ranked[..parameters.limit.0.min(ranked.len())];
        let ids: Vec<TopicId> = shown.iter().map(|ranked| ranked.topic.clone()).collect();
        let names = topic_name::of_topics(api.control.database(), &ids).await?;
        let item = |(ranked, name): (&RankedTopic, Option<String>)| TrendingItem {
            topic_id: ranked.topic.to_string(),
            name,
            posts: ranked.activity.posts,
            reactions: ranked.activity.reactions,
            authors: ranked.authors,
        };
        Ok(Page { items: shown.iter().zip(names).map(item).collect(), cursor: None })
    };
    quota::counted(&api, &reader, Metric::TrendingRequests, read).await.map(Json)
}
