//! `GET /v1/bootstrap/topics/{topic}/services`: who serves a topic.

use std::sync::Arc;

use axum::{extract::State, http::request::Parts, response::Response};
use kukuri_bootstrap::listing::is_topic_service;
use kukuri_domain::{Filter, Kind, Letter, TopicId, topic::claims_to_be_topic};

use super::{NodeEvents, Reader, answer, read_events};
use crate::{
    Api, ApiState,
    error::{Error, ErrorBody},
    extract::{Path, first_chars},
    gate::Identity,
};

/// Characters of the reason why a name is refused.
const MAX_REASON_CHARS: usize = 300;

/// The roles in which this node, and other nodes that its operator lists, serve a topic: signed events of kind 39001.
#[utoipa::path(get, path = "/v1/bootstrap/topics/{topic}/services",
    params(("topic" = String, Path, description = "A topic id, or a topic's name.")),
    responses(
        (status = 200, description = "All services that are valid now; none, if nobody serves the topic.", body = NodeEvents),
        (status = 304, description = "Nothing has changed."),
        (status = 503, description = "The store is not available.", body = ErrorBody),
    ))]
pub(crate) async fn list_services(
    State(api): State<Arc<ApiState>>,
    identity: Identity,
    Path(topic): Path<String>,
    request: Parts,
) -> Result<Response, Error> {
    let (profile, now) = ((api.bootstrap)(), api.now());
    let topic = read_topic(&api, &topic)?;
    let authors = std::iter::once(&profile.node).chain(&profile.known).copied();
    let filter = Filter::new().with_authors(authors).with_kinds([Kind::TOPIC_SERVICE]);
    let filter = filter.with_tag(Letter::T, [topic.as_str()]);
    let events = read_events(&api, filter, &request, |event| is_topic_service(event, &topic, now)).await?;
    answer(&api, topic.as_str(), &events, Reader::of(&api, &identity), &request.headers)
}

/// A topic by its id or by its name (U-6).
fn read_topic(api: &Api, text: &str) -> Result<TopicId, Error> {
    if claims_to_be_topic(text) {
        return api.read_topic("topic", text);
    }
    let topic = TopicId::from_name(&api.topic_network, text, &(api.topics)());
    topic.map_err(|error| Error::invalid_parameter("topic", first_chars(&error.to_string(), MAX_REASON_CHARS)))
}
