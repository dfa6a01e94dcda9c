//! `GET /v1/topics/{topic}/snapshot`: all events of a topic, for a follower to begin with (O-8).

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::request::Service;
use kukuri_domain::{Millis, TopicId, Viewer, Visibility};
use kukuri_store::{BoundEvent, StoreError, StoredEvent, outbox::MAX_SNAPSHOT_PAGE_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::{
    ApiState,
    answer::{Event, stored_json},
    changes::MAX_ANSWER_BYTES,
    cursor::SnapshotPlace,
    error::{Error, ErrorBody},
    extract::{PageLimit, Path, Query},
    position::{Position, epoch_of},
    reader::Reader,
};

/// Events of all topics in one read of the store, which is bounded in bytes as well.
const EVENTS_PER_READ: usize = 50;
const MAX_READS_PER_PAGE: usize = 100;
/// No further read if it might make the page larger than [`MAX_ANSWER_BYTES`].
const MAX_BYTES_BEFORE_READ: usize = MAX_ANSWER_BYTES - MAX_SNAPSHOT_PAGE_BYTES;
/// Bytes of events of all topics that are read for a page.
const MAX_BYTES_READ: usize = 8 << 20;

type Limit = PageLimit<100, 500>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SnapshotParameters {
    /// The `cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<SnapshotPlace>,
    /// Events on a page; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct SnapshotPage {
    #[schema(value_type = Vec<Event>)]
    items: Vec<Box<RawValue>>,
    /// Follow the changes after it; the same on all pages.
    #[schema(value_type = String)]
    seq: Position,
    /// For the next page; null: this is the last one.
    #[schema(required = true)]
    cursor: Option<String>,
}

/// All events visible in a topic, for a follower to begin with.
#[utoipa::path(get, path = "/v1/topics/{topic}/snapshot",
    params(("topic" = String, Path, description = "The topic, by its id or its name."), SnapshotParameters),
    responses(
        (status = 200, description = "A page of events.", body = SnapshotPage),
        (status = 410, description = "The store went back since the first page: begin without a cursor.", body = ErrorBody),
        (status = 503, description = "The store is not available.", body = ErrorBody),
    ))]
pub(crate) async fn read_snapshot(
    State(api): State<Arc<ApiState>>,
    reader: Reader,
    Path(topic): Path<String>,
    Query(parameters): Query<SnapshotParameters>,
) -> Result<Json<SnapshotPage>, Error> {
    let topic = api.read_topic("topic", &topic)?;
    reader.check(&api, std::slice::from_ref(&topic), Service::Relay)?;
    let (viewer, visibility, limit) = (reader.viewer(), (api.visibility)(), parameters.limit.0);
    // Before any row is read.
    let epoch = epoch_of(&*api.store);
    let mut cursor = match parameters.cursor {
        Some(place) if place.epoch != epoch => return Err(Error::OtherEpoch),
        place => place.map(|place| place.cursor).unwrap_or_default(),
    };
    let (mut items, mut reads, mut bytes, mut bytes_read) = (Vec::new(), 0, 0, 0);
    // The store's snapshot is of all topics. A page that is more than half full is sent: reading on for its last few
    // items would cost one read for each.
    let (seq, next) = loop {
        let page = api.store.snapshot(cursor, EVENTS_PER_READ.min(limit - items.len())).await?;
        reads += 1;
        for bound in page.events {
            bytes_read += bound.event.json.len();
            let Some(stored) = visible(bound, &topic, &viewer, &visibility, (api.clock)())? else { continue };
            bytes += stored.json.len();
            items.push(stored_json(&stored)?);
        }
        let has_room = items.len() <= limit / 2 && bytes <= MAX_BYTES_BEFORE_READ;
        match page.next {
            Some(next) if has_room && reads < MAX_READS_PER_PAGE && bytes_read < MAX_BYTES_READ => cursor = next,
            next => break (page.seq, next),
        }
        // The embedded store reads on this thread.
        tokio::task::yield_now().await;
    };
    let next = next.map(|cursor| SnapshotPlace { epoch, cursor }.to_string());
    Ok(Json(SnapshotPage { items, seq: Position { epoch, seq }, cursor: next }))
}

/// The event, if it is in the topic, is shown to the viewer (E-10, M-5), and has not expired.
fn visible(
    bound: BoundEvent,
    topic: &TopicId,
    viewer: &Viewer,
    visibility: &Visibility,
    now: Millis,
) -> Result<Option<StoredEvent>, StoreError> {
    if !bound.topics.contains(topic) {
        return Ok(None);
    }
    let event = bound.event.event()?;
    let is_visible = visibility.shows(&event, &bound.topics, viewer, None) && !event.is_expired(now);
    Ok(is_visible.then_some(bound.event))
}
