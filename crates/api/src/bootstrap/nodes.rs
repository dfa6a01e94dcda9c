//! `GET /v1/bootstrap/nodes`: this node, and others that it knows.

use std::sync::Arc;

use axum::{extract::State, http::request::Parts, response::Response};
use kukuri_bootstrap::{listing::is_descriptor, statement::DESCRIPTOR};
use kukuri_domain::{Filter, Kind, Letter};

use super::{NodeEvents, Reader, answer, read_events};
use crate::{
    ApiState,
    error::{Error, ErrorBody},
    gate::Identity,
};

/// The descriptor of this node, and those of other nodes that its operator lists: signed events of kind 39000.
#[utoipa::path(get, path = "/v1/bootstrap/nodes", responses(
    (status = 200, description = "All descriptors that are valid now.", body = NodeEvents),
    (status = 304, description = "Nothing has changed."),
    (status = 503, description = "The store is not available.", body = ErrorBody),
))]
pub(crate) async fn list_nodes(
    State(api): State<Arc<ApiState>>,
    identity: Identity,
    request: Parts,
) -> Result<Response, Error> {
    let (profile, now) = ((api.bootstrap)(), api.now());
    let reader = Reader::of(&api, &identity);
    // A stranger finds out how to become a member (B-5).
    let known = profile.known.iter().filter(|_| reader != Reader::Stranger);
    let authors = std::iter::once(&profile.node).chain(known).copied();
    let filter = Filter::new().with_authors(authors).with_kinds([Kind::NODE_DESCRIPTOR]);
    let filter = filter.with_tag(Letter::D, [DESCRIPTOR]);
    let events = read_events(&api, filter, &request, |event| is_descriptor(event, now)).await?;
    let list = if reader == Reader::Stranger { "own node" } else { "nodes" };
    answer(&api, list, &events, reader, &request.headers)
}
