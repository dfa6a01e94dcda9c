//! `GET /v1/topics`, `GET /v1/communities/suggest`: topics that the node takes in, by name (S-8). A topic without a known name is not
//! listed: its id alone tells nobody what it is.

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::topic_name::{self, NamedTopic};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Api, ApiState,
    answer::Page,
    cursor::TopicPlace,
    error::{Error, ErrorBody},
    extract::{PageLimit, Query},
    read_name,
    reader::Reader,
};

/// Names that are looked at for one page, most of which may be of topics that are not taken in.
const MAX_NAMES_PER_PAGE: usize = 1_000;

type ListLimit = PageLimit<50, 200>;
type SuggestLimit = PageLimit<10, 50>;

#[derive(Serialize, ToSchema)]
pub(crate) struct TopicItem {
    topic_id: String,
    name: String,
    /// Events that are visible in it.
    events: u64,
    /// People who subscribe to it.
    members: u64,
}

async fn items_of(api: &Api, topics: Vec<NamedTopic>) -> Result<Vec<TopicItem>, Error> {
    let ids: Vec<_> = topics.iter().map(|topic| topic.topic.clone()).collect();
    let stats = api.store.topic_stats(&ids).await?;
    let item = |(topic, stats): (NamedTopic, Option<kukuri_store::TopicStats>)| TopicItem {
        topic_id: topic.topic.to_string(),
        name: topic.name,
        events: stats.map_or(0, |stats| stats.effective),
        members: topic.members,
    };
    Ok(topics.into_iter().zip(stats).map(item).collect())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TopicsParameters {
    /// A part of the name. Upper and lower case, full and half width are the same.
    q: Option<String>,
    /// Topics on a page; clamped.
    #[serde(default)]
    #[param(schema_with = ListLimit::schema, required = false)]
    limit: ListLimit,
    /// The `cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<TopicPlace>,
}

/// The topics of the node that have a known name, by name.
#[utoipa::path(get, path = "/v1/topics", params(TopicsParameters), responses(
    (status = 200, description = "A page of topics.", body = Page<TopicItem>),
    (status = 503, description = "The store or the database of accounts is not available.", body = ErrorBody),
))]
pub(crate) async fn list_topics(
    State(api): State<Arc<ApiState>>,
    _: Reader,
    Query(parameters): Query<TopicsParameters>,
) -> Result<Json<Page<TopicItem>>, Error> {
    let limit = parameters.limit.0;
    let containing = parameters.q.as_deref().map(|text| read_name("q", text)).transpose()?;
    let mut after = parameters.cursor.map(|place| (place.folded_name, place.topic));
    let (mut listed, mut names_seen) = (Vec::new(), 0);
    let last = loop {
        // One more than asked for tells whether there is another page.
        let wanted = limit + 1 - listed.len();
        let found = topic_name::list(api.control.database(), containing, after, wanted).await?;
        names_seen += found.len();
        let is_end = found.len() < wanted;
        after = found.last().map(|last| (last.folded_name.clone(), last.topic.to_string()));
        listed.extend(found.into_iter().filter(|topic| api.gate.is_enabled(&topic.topic)));
        if is_end {
            break None;
        }
        if listed.len() > limit {
            listed.truncate(limit);
            break listed.last().map(|last| (last.folded_name.clone(), last.topic.to_string()));
        }
        if names_seen >= MAX_NAMES_PER_PAGE {
            break after;
        }
    };
    let cursor = last.map(|(folded_name, topic)| TopicPlace { folded_name, topic }.to_string());
    Ok(Json(Page { items: items_of(&api, listed).await?, cursor }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SuggestParameters {
    /// The part of a name that a person has typed.
    q: String,
    /// Suggestions; clamped.
    #[serde(default)]
    #[param(schema_with = SuggestLimit::schema, required = false)]
    limit: SuggestLimit,
}

/// Topics whose name begins with a text, then those whose name contains it.
#[utoipa::path(get, path = "/v1/communities/suggest", params(SuggestParameters), responses(
    (status = 200, description = "Topics, on one page.", body = Page<TopicItem>),
    (status = 503, description = "The store or the database of accounts is not available.", body = ErrorBody),
))]
pub(crate) async fn suggest_communities(
    State(api): State<Arc<ApiState>>,
    _: Reader,
    Query(parameters): Query<SuggestParameters>,
) -> Result<Json<Page<TopicItem>>, Error> {
    let text = read_name("q", &parameters.q)?;
    let mut found = topic_name::suggest(api.control.database(), text, MAX_NAMES_PER_PAGE).await?;
    found.retain(|topic| api.gate.is_enabled(&topic.topic));
    found.truncate(parameters.limit.0);
    Ok(Json(Page { items: items_of(&api, found).await?, cursor: None }))
}
