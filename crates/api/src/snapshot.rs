//! `GET /v1/topics/{id}/snapshot`: what a follower begins with (O-8).

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::request::Parts,
    response::Response,
};
use kukuri_domain::{Millis, TopicId, Viewer};
use kukuri_store::{BoundEvent, StoreError, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    Served,
    answer::{json, raw},
    cursor::{read_snapshot, snapshot_to_text},
    error::Problem,
    gate::Act,
    parameters::{Asked, Form, Limit, Parameter, topic},
};

/// How often the store is asked for one page, each time for no more than has a place on it.
const MOST_READS: usize = 10;
const PAGE: Limit = Limit { most: 500, default: 100 };
const CURSOR: Parameter = Parameter::new("cursor", Form::Text, "The `cursor` of the page before.");
const LIMIT: Parameter = Parameter::new("limit", Form::Limit(PAGE), "Events of a page; brought into range.");
/// What can be asked with.
pub(crate) const PARAMETERS: [Parameter; 2] = [CURSOR, LIMIT];

#[derive(Serialize)]
struct Page<'p> {
    events: Vec<&'p RawValue>,
    seq: u64,
    cursor: Option<String>,
}

pub(crate) async fn snapshot(
    State(api): State<Arc<Served>>,
    id: Result<Path<String>, PathRejection>,
    request: Parts,
) -> Result<Response, Problem> {
    api.admit(&request, Act::Snapshot)?;
    let Path(id) = id.map_err(|_| Problem::InvalidTopic)?;
    let topic = topic(&api.topics(), &id)?;
    let asked = Asked::read(&request, &PARAMETERS)?;
    let limit = asked.limit(&LIMIT, PAGE)?;
    let mut cursor = asked.one(&CURSOR).map(read_snapshot).transpose()?.unwrap_or_default();
    let (mut events, mut reads) = (Vec::new(), 0);
    // A store's snapshot is of all topics. A page that is half full will do: the last places are not worth a look each.
    let (seq, next) = loop {
        let page = api.store.snapshot(cursor, limit - events.len()).await?;
        reads += 1;
        for bound in page.events {
            events.extend(shown(bound, &topic, api.now())?);
        }
        match page.next {
            Some(next) if reads < MOST_READS && events.len() <= limit / 2 => cursor = next,
            next => break (page.seq, next),
        }
    };
    let events = events.iter().map(raw).collect::<Result<_, _>>()?;
    json(&Page { events, seq: seq.0, cursor: next.map(snapshot_to_text) })
}

/// An event of this topic that may be shown: no private one, and none that has expired (E-10, X-2).
fn shown(bound: BoundEvent, topic: &TopicId, now: Millis) -> Result<Option<StoredEvent>, StoreError> {
    if !bound.topics.contains(topic) {
        return Ok(None);
    }
    let event = bound.event.event()?;
    Ok((Viewer::stranger().may_see(&event) && !event.is_expired(now)).then_some(bound.event))
}
