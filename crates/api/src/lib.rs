//! The HTTP API: search, and the changes of a topic as pages and as a stream.
//!
//! # Layout
//!
//! - [`routes`]: the list of endpoints. Each handler carries its description; together they are `/v1/openapi.json`.
//! - [`gate`]: rates and identity, asked before every handler. The node implements it.
//! - `search`: hits, looked up in the store (C-1).
//! - `feed`: pages of changes (W-8); `stream`: the same as server-sent events; `changes`: reading them from the outbox;
//!   `tail`: outbox rows shared by streams; `snapshot`: the start of a follower (O-8).
//! - [`extract`]: query, path and body; `cursor`: places in lists; `position`: sequences with their epoch (Y-5); `answer`: parts of answers; [`mod@error`]: errors.
//! - `layers`: request ids, CORS, time limits, panics, logs.
//! - `fuzzing` (a feature): what must hold for any parameters.

mod answer;
mod changes;
mod cursor;
pub mod error;
pub mod extract;
mod feed;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gate;
mod layers;
mod position;
mod search;
mod snapshot;
mod stream;
mod tail;

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::any,
};
use kukuri_domain::{
    Millis, TopicId, Visibility,
    topic::{TopicRules, TopicValue},
};
use kukuri_search::Finder;
use kukuri_store::Store;
use tokio::sync::watch;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes as handlers};

pub use error::Error;
use error::ErrorBody;
use gate::gated;
pub use gate::{Gate, Identity, RouteCost, StreamPermit, StreamTurn};
use tail::OutboxTail;

/// The parts of a node that the API reads.
pub struct Api {
    /// The events.
    pub store: Arc<dyn Store>,
    /// `None`: search is switched off.
    pub finder: Option<Finder>,
    /// The rules of topics now; a reload may change them (T-6).
    pub topics: Box<dyn Fn() -> TopicRules + Send + Sync>,
    /// The visibility now; moderation may change it (M-5).
    pub visibility: Box<dyn Fn() -> Visibility + Send + Sync>,
    /// Admits requests.
    pub gate: Arc<dyn Gate>,
    /// The time now.
    pub clock: fn() -> Millis,
    /// `true` once the node stops: streams end. They also end when the sender is dropped.
    pub stopping: watch::Receiver<bool>,
}

impl Api {
    /// Reads a parameter that names a topic (T-1).
    fn read_topic(&self, parameter: &str, text: &str) -> Result<TopicId, Error> {
        match (self.topics)().read(text) {
            TopicValue::Topic(topic) => Ok(topic),
            TopicValue::Hashtag | TopicValue::Malformed => {
                Err(Error::invalid_parameter(parameter, "not a topic id; one is kukuri:<64 lower-case hex digits>"))
            }
        }
    }
}

/// The state of all handlers.
struct ApiState {
    api: Api,
    tail: OutboxTail,
    /// `/v1/openapi.json`
    description: String,
}

impl Deref for ApiState {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "kukuri-node", description = "Search, and the changes of a topic, beside a Nostr relay."),
    components(schemas(ErrorBody))
)]
struct Description;

/// All endpoints, to be merged with other routes. A new endpoint is a handler in its own file, its `mod` above, and its
/// line here.
pub fn routes(api: Api) -> Router {
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(gated(&api.gate, RouteCost::Search, handlers!(search::search)))
        .routes(gated(&api.gate, RouteCost::Read, handlers!(feed::list_changes)))
        .routes(gated(&api.gate, RouteCost::Read, handlers!(snapshot::read_snapshot)))
        .routes(gated(&api.gate, RouteCost::Static, handlers!(openapi)))
        .split_for_parts();
    let router = router
        .route("/v1/", any(not_found))
        .route("/v1/{*path}", any(not_found))
        .method_not_allowed_fallback(async || Error::MethodNotAllowed);
    // A description is plain data: writing it does not fail.
    let description = description.to_json().unwrap_or_default();
    layers::layered(router).with_state(Arc::new(ApiState { api, tail: OutboxTail::default(), description }))
}

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", responses(
    (status = 200, description = "An OpenAPI document.", body = Object, content_type = "application/json"),
))]
async fn openapi(State(state): State<Arc<ApiState>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], state.description.clone()).into_response()
}

async fn not_found() -> Error {
    Error::NotFound
}
