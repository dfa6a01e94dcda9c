//! `GET /v1/topics/{id}/changes`: a page of changes, or all of them as they come.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, header, request::Parts},
    response::Response,
};
use kukuri_store::Seq;
use serde::Serialize;

use crate::{
    Served,
    answer::json,
    changes::{self, Change, ChangeBody, Source},
    error::Problem,
    gate::Act,
    parameters::{Asked, Form, Limit, Parameter, number, topic},
    stream,
};

const PAGE: Limit = Limit { most: 500, default: 100 };
const AFTER: Parameter =
    Parameter::new("after", Form::Number, "What comes after this seq; without it from the first on.");
const LIMIT: Parameter = Parameter::new("limit", Form::Limit(PAGE), "Changes of a page; brought into range.");
/// What can be asked with.
pub(crate) const PARAMETERS: [Parameter; 2] = [AFTER, LIMIT];
/// What a stream that broke off is resumed by; it counts more than `after`.
pub(crate) const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Serialize)]
struct Page<'p> {
    changes: Vec<ChangeBody<'p>>,
    next: u64,
    head: u64,
}

pub(crate) async fn changes(
    State(api): State<Arc<Served>>,
    id: Result<Path<String>, PathRejection>,
    request: Parts,
) -> Result<Response, Problem> {
    api.admit(&request, Act::Follow)?;
    let Path(id) = id.map_err(|_| Problem::InvalidTopic)?;
    let topic = topic(&api.topics(), &id)?;
    let asked = Asked::read(&request, &PARAMETERS)?;
    let limit = asked.limit(&LIMIT, PAGE)?;
    let is_stream = wants_stream(&request.headers);
    let last = request.headers.get(LAST_EVENT_ID).filter(|_| is_stream);
    let after = match last {
        Some(id) => Some(number("Last-Event-ID", id.to_str().unwrap_or_default())?),
        None => asked.number(&AFTER)?,
    };
    let after = Seq(after.unwrap_or_default());
    changes::check_place(&*api.store, after).await?;
    if is_stream {
        return stream::begin(api, topic, after).await;
    }
    let part = changes::read(&*api.store, Source::Store, &topic, after, limit, api.now()).await?;
    let head = (*api.store.watch_outbox().borrow()).max(part.next);
    let changes = part.changes.iter().map(Change::body).collect::<Result<_, _>>()?;
    json(&Page { changes, next: part.next.0, head: head.0 })
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream")))
}
