//! HTTP beside the relay: search, and what happens in a topic, as pages and as a stream.
//!
//! # Layout
//!
//! - [`routes`]: what is served. [`gate`]: who may ask, which the relay knows.
//! - `search`: hits, looked up in the store (C-1).
//! - `changes`: the outbox seen from outside (W-8); `feed`: pages of it; `stream`: as it comes; `tail`: what streams
//!   share; `snapshot`: where a follower begins (O-8).
//! - `parameters`, `cursor`: what is asked; `answer`, `error`: what is answered. `openapi`: all of it, described.

mod answer;
mod changes;
mod cursor;
mod error;
mod feed;
pub mod gate;
mod openapi;
mod parameters;
mod search;
mod snapshot;
mod stream;
mod tail;

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, header},
    middleware::map_response,
    response::Response,
    routing::{MethodRouter, get},
};
use kukuri_domain::{Millis, topic::TopicRules};
use kukuri_search::Finder;
use kukuri_store::Store;
use tokio::sync::{Semaphore, watch};

use error::Problem;
pub use gate::{Act, Gate, Refused};
use tail::Tail;

/// What is served, and from where.
pub struct Api {
    /// Where events are.
    pub store: Arc<dyn Store>,
    /// What finds them; `None`: search is switched off.
    pub finder: Option<Finder>,
    /// How topics are read now, and whether they have to be named (T-6).
    pub topics: Box<dyn Fn() -> TopicRules + Send + Sync>,
    /// Who may ask; `None`: everybody.
    pub gate: Option<Arc<dyn Gate>>,
    /// What time it is.
    pub clock: fn() -> Millis,
    /// Places for streams: how many there may be at a time.
    pub streams: Arc<Semaphore>,
    /// `true` once the node stops: streams end then. They end as well when its sender is gone.
    pub stopping: watch::Receiver<bool>,
}

/// What routes work with.
struct Served {
    api: Api,
    tail: Tail,
}

impl Deref for Served {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Api {
    fn now(&self) -> Millis {
        (self.clock)()
    }

    fn topics(&self) -> TopicRules {
        (self.topics)()
    }
}

/// What is served, to be merged with other routes.
pub fn routes(api: Api) -> Router {
    let preflight = |routes: MethodRouter<Arc<Served>>| routes.options(async || StatusCode::NO_CONTENT);
    Router::new()
        .route(openapi::SEARCH, preflight(get(search::search)))
        .route(openapi::CHANGES, preflight(get(feed::changes)))
        .route(openapi::SNAPSHOT, preflight(get(snapshot::snapshot)))
        .route(openapi::DESCRIPTION, preflight(get(openapi::description)))
        .method_not_allowed_fallback(async || Problem::Method)
        .layer(map_response(for_all_origins))
        .with_state(Arc::new(Served { api, tail: Tail::default() }))
}

/// Pages of any site may ask, as they may ask the relay.
async fn for_all_origins(mut response: Response) -> Response {
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static("*"));
    }
    response
}
