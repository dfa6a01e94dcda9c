//! `GET /v1/topics/{topic}/changes`: one page of changes, or a stream of them (W-8).

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse, Response},
};
use kukuri_control::request::Service;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    ApiState,
    changes::{self, Change},
    error::{Error, ErrorBody},
    extract::{PageLimit, Path, Query},
    position::{After, Position, epoch_of},
    reader::Reader,
    stream,
};

type Limit = PageLimit<100, 500>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesParameters {
    /// Changes after this `seq`; without it, or 0, from the first on.
    #[param(schema_with = After::schema, required = false)]
    after: Option<After>,
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
    #[schema(value_type = String)]
    next: Position,
    /// The last `seq` of the node.
    #[schema(value_type = String)]
    head: Position,
}

/// Events that became visible in a topic, and events that are visible no more, in order.
#[utoipa::path(get, path = "/v1/topics/{topic}/changes",
    params(
        ("topic" = String, Path, description = "The topic, by its id or its name."),
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
    reader: Reader,
    Path(topic): Path<String>,
    Query(parameters): Query<ChangesParameters>,
    request: Parts,
) -> Result<Response, Error> {
    let topic = api.read_topic("topic", &topic)?;
    let is_stream = accepts_stream(&request.headers);
    let after = match request.headers.get("last-event-id").filter(|_| is_stream) {
        Some(id) => Some(last_event_id(id.to_str().unwrap_or_default())?),
        None => parameters.after,
    };
    reader.check(&api, std::slice::from_ref(&topic), Service::Relay)?;
    // Before any row is read.
    let epoch = epoch_of(&*api.store);
    let after = after.unwrap_or(After::Start).seq_in(epoch)?;
    changes::check_sequence(&*api.store, after).await?;
    let after = Position { epoch, seq: after };
    if is_stream {
        let permit = api.gate.admit_stream(&request)?;
        return stream::begin(api, topic, reader, after, permit).await;
    }
    let batch = changes::read(&api, &topic, &reader.viewer(), after, parameters.limit.0, None).await?;
    let head = (*api.store.watch_outbox().borrow()).max(batch.next.seq);
    let head = Position { epoch, seq: head };
    Ok(Json(ChangesPage { items: batch.changes, next: batch.next, head }).into_response())
}

fn last_event_id(text: &str) -> Result<After, Error> {
    After::try_from(text.to_owned()).map_err(|error| Error::invalid_parameter("Last-Event-ID", error))
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream")))
}
