//! Descriptions of this node and of others (B-3, B-4): `nodes` and `services` are lists of signed events, `community_node` is the
//! document at a well-known place.

pub(crate) mod community_node;
pub(crate) mod nodes;
pub(crate) mod services;

use std::collections::HashMap;

use axum::{
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::Response,
};
use kukuri_bootstrap::listing::next_refresh_at;
use kukuri_domain::{Event, Filter, Timestamp, Viewer};
use kukuri_store::{Budget, Query, StoredEvent};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    ApiState,
    answer::{Event as EventSchema, stored_json},
    conditional::{Validators, respond},
    error::Error,
    gate::Identity,
};

/// Bytes of events in one list.
const MAX_LIST_BYTES: usize = 1 << 20;
/// Lists whose last change is remembered.
const MAX_REMEMBERED: usize = 1_000;
const PUBLIC: &str = "public, max-age=300";
/// An answer for members must not enter a shared cache (RFC 9111).
const PRIVATE: &str = "private, max-age=300";

/// Signed events, as they are stored.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeEvents {
    #[schema(value_type = Vec<EventSchema>)]
    items: Vec<Box<RawValue>>,
    /// When to ask again: before the first of them ends, and after a day at the latest.
    next_refresh_at: u64,
}

/// When lists changed, as far as this process has seen. The events do not tell: one that ends or is taken back leaves no trace.
#[derive(Default)]
pub(crate) struct ChangeTimes(Mutex<HashMap<String, (String, Timestamp)>>);

impl ChangeTimes {
    /// When the list, which has this tag now, changed for the last time.
    fn modified_at(&self, list: &str, etag: &str, now: Timestamp) -> Timestamp {
        let mut known = self.0.lock();
        if let Some((same, modified_at)) = known.get(list)
            && same == etag
        {
            return *modified_at;
        }
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(list.to_owned(), (etag.to_owned(), now));
        now
    }
}

/// The reader of a list (B-5).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Anybody: the list is open.
    Anybody,
    /// A member, of a list that is for members.
    Member,
    /// Somebody else.
    Stranger,
}

impl Reader {
    fn of(api: &ApiState, identity: &Identity) -> Self {
        if !(api.bootstrap)().access.is_for_members((api.clock)()) {
            return Self::Anybody;
        }
        let people = api.control.people();
        let is_member = |key| people.check_served(key, api.now()).is_ok() && people.has_consented(key);
        match identity {
            Identity::Person(key) if is_member(key) => Self::Member,
            _ => Self::Stranger,
        }
    }
}

/// Reads the events that a filter names and `is_listed` accepts.
async fn read_events(
    api: &ApiState,
    filter: Filter,
    request: &Parts,
    is_listed: impl Fn(&Event) -> bool,
) -> Result<Vec<(StoredEvent, Event)>, Error> {
    let query = Query {
        visibility: (api.visibility)(),
        bytes: MAX_LIST_BYTES,
        budget: request.extensions.get::<Budget>().cloned().unwrap_or_default(),
        ..Query::of(filter, Viewer::unauthenticated(), (api.clock)())
    };
    let mut events = Vec::new();
    for stored in api.store.query(&query).await?.events {
        let event = stored.event()?;
        if is_listed(&event) {
            events.push((stored, event));
        }
    }
    Ok(events)
}

/// The answer with a list. Its tag goes by the ids: a client that has these events may keep its `next_refresh_at`.
fn answer(
    api: &ApiState,
    list: &str,
    events: &[(StoredEvent, Event)],
    reader: Reader,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    let ids = events.iter().map(|(stored, _)| *stored.id.as_bytes());
    let etag = Validators::etag_of(ids);
    // Nobody can make the node remember lists of topics that are not served.
    let modified_at = (!events.is_empty()).then(|| api.list_changes.modified_at(list, &etag, api.now()));
    let body = NodeEvents {
        items: events.iter().map(|(stored, _)| stored_json(stored)).collect::<Result<_, _>>()?,
        next_refresh_at: next_refresh_at(events.iter().map(|(_, event)| event), api.now()).0,
    };
    let cache_control = if reader == Reader::Member { PRIVATE } else { PUBLIC };
    let mut response = respond(headers, &Validators { etag, modified_at }, cache_control, &body);
    if reader != Reader::Anybody {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("authorization"));
    }
    Ok(response)
}
