//! `GET /v1/bootstrap/topics/{topic}/services`: who serves a topic.

use std::sync::Arc;

use axum::{extract::State, http::request::Parts, response::Response};
use kukuri_bootstrap::listing::is_topic_service;
use kukuri_domain::{Filter, Kind, Letter};

use super::{NodeEvents, Reader, answer, read_events};
use crate::{
    ApiState,
    error::{Error, ErrorBody},
    extract::Path,
    gate::Identity,
};

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
    // By its id or by its name (U-6).
    let topic = api.read_topic("topic", &topic)?;
    let authors = std::iter::once(&profile.node).chain(&profile.known).copied();
    let filter = Filter::new().with_authors(authors).with_kinds([Kind::TOPIC_SERVICE]);
    let filter = filter.with_tag(Letter::T, [topic.as_str()]);
    let events = read_events(&api, filter, &request, |event| is_topic_service(event, &topic, now)).await?;
    answer(&api, topic.as_str(), &events, Reader::of(&api, &identity), &request.headers)
}
