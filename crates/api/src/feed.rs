//! `GET /v1/topics/{topic}/changes`: one page of changes, or a stream of them (W-8).

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use kukuri_store::Seq;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    ApiState,
    changes::{self, Change},
    error::{Error, ErrorBody},
    extract::{ExactInteger, PageLimit, Path, Query},
    gate::Identity,
    stream,
};

type Limit = PageLimit<100, 500>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesParameters {
    /// Changes after this `seq`; without it, from the first on.
    #[param(schema_with = ExactInteger::schema, required = false)]
    after: Option<ExactInteger>,
    /// Changes on a page; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
}

/// Its place is a sequence, not an opaque cursor: streams, pages and snapshots share it (W-8).
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangesPage {
    items: Vec<Change>,
    /// The `after` of the next page.
    next: u64,
    /// The last `seq` of the node.
    head: u64,
}

/// Events that became visible in a topic, and events that are visible no more, in order.
#[utoipa::path(get, path = "/v1/topics/{topic}/changes",
    params(
        ("topic" = String, Path, description = "A topic id."),
        ("accept" = Option<String>, Header, description = "`text/event-stream` for a stream, which has no `limit`."),
        ("last-event-id" = Option<String>, Header, description = "Resumes a stream; overrides `after`."),
        ChangesParameters,
    ),
    responses(
        (status = 200, description = "A page, or a stream whose `data` is one change and whose `id` is its `seq`.",
            content((ChangesPage = "application/json"), (Change = "text/event-stream"))),
        (status = 410, description = "The changes after this `seq` are gone: take a snapshot.", body = ErrorBody),
        (status = 503, description = "The store is not available, or there are too many streams.", body = ErrorBody),
    ))]
pub(crate) async fn list_changes(
    State(api): State<Arc<ApiState>>,
    _: Identity,
    Path(topic): Path<String>,
    Query(parameters): Query<ChangesParameters>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let topic = api.read_topic("topic", &topic)?;
    let is_stream = accepts_stream(&headers);
    let after = match headers.get("last-event-id").filter(|_| is_stream) {
        Some(id) => Some(last_event_id(id.to_str().unwrap_or_default())?),
        None => parameters.after,
    };
    let after = Seq(after.map_or(0, |after| after.0));
    changes::check_sequence(&*api.store, after).await?;
    if is_stream {
        return stream::begin(api, topic, after).await;
    }
    let batch = changes::read(&api, &topic, after, parameters.limit.0, None).await?;
    let head = (*api.store.watch_outbox().borrow()).max(batch.next);
    Ok(Json(ChangesPage { items: batch.changes, next: batch.next.0, head: head.0 }).into_response())
}

fn last_event_id(text: &str) -> Result<ExactInteger, Error> {
    ExactInteger::try_from(text.to_owned()).map_err(|error| Error::invalid_parameter("Last-Event-ID", error))
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream")))
}
