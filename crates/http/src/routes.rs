//! The routes of the front: WebSocket, information document and status page on `/`, `/healthz`, `/metrics`.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{any, get},
};
use kukuri_engine::backlog::ConsumerHealth;
use kukuri_relay::nip11;
use kukuri_store::StoreError;
use serde_json::{Map, json};

use crate::{
    front::HttpFront,
    listener::Connection,
    page,
    websocket::{is_upgrade, upgrade},
};

/// The routes, to be merged with those of other crates.
pub fn routes(front: Arc<HttpFront>) -> Router {
    Router::new()
        .route("/", any(root))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .with_state(front)
}

async fn root(
    State(front): State<Arc<HttpFront>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    if is_upgrade(request.headers()) {
        return upgrade(&front, &connection, request);
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Method::GET | Method::HEAD if wants_information(request.headers()) => {
            let document = nip11::document(&front.relay).to_string();
            ([(header::CONTENT_TYPE, "application/nostr+json")], document).into_response()
        }
        Method::GET | Method::HEAD => match front.engine().health().await {
            Ok(health) => Html(page::status(&front, &health).into_string()).into_response(),
            Err(error) => unavailable(&error),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    // NIP-11 asks for CORS headers.
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static("*"));
    }
    response
}

fn wants_information(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.split(',').any(|kind| kind.trim().starts_with("application/nostr+json")))
}

/// A stable JSON document, described in docs/operating.md. A node is ready when its store answers: a consumer that is
/// behind or stuck does not change that.
async fn healthz(State(front): State<Arc<HttpFront>>) -> Response {
    let health = match front.engine().health().await {
        Ok(health) => health,
        Err(error) => return unavailable(&error),
    };
    let consumer = |one: &ConsumerHealth| (one.name.to_owned(), json!({ "state": one.state, "backlog": one.backlog }));
    let mut document = json!({
        "status": "ready",
        "store": "ready",
        "events": health.stats.effective,
        "connections": front.relay.connections(),
        "subscriptions": health.subscriptions,
        "topics": health.topics,
        "capacity": health.stats.stage.as_str(),
        "disk": health.disk.as_str(),
        "backlog": health.backlog.as_str(),
        "consumers": health.consumers.iter().map(consumer).collect::<Map<_, _>>(),
        "clock_held": health.stats.clock_held,
        "uptime_seconds": health.uptime.as_secs(),
    });
    for (name, report) in health.reports {
        document[name] = report;
    }
    Json(document).into_response()
}

async fn metrics(State(front): State<Arc<HttpFront>>) -> Response {
    // Reading the engine's health sets its gauges.
    if let Err(error) = front.engine().health().await {
        return unavailable(&error);
    }
    front.metrics.connections.set(front.relay.connections() as f64);
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, front.exporter.render()).into_response()
}

fn unavailable(error: &StoreError) -> Response {
    tracing::error!(%error, "the store failed; answering 503");
    let document = json!({ "status": "unavailable", "store": "does not answer" });
    (StatusCode::SERVICE_UNAVAILABLE, Json(document)).into_response()
}
