//! The routes of the front: WebSocket, information document and status page on `/`, `/healthz`, `/metrics`.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{any, get},
};
use kukuri_engine::{StoreUnavailable, backlog::ConsumerHealth};
use kukuri_relay::nip11;
use serde_json::{Map, json};

use crate::{
    front::HttpFront,
    listener::Connection,
    page,
    websocket::{RELAY_PATH, is_upgrade, upgrade},
};

/// The routes, to be merged with those of other crates.
pub fn routes(front: Arc<HttpFront>) -> Router {
    Router::new().route(RELAY_PATH, any(root)).merge(monitored()).with_state(front)
}

/// The routes, if metrics are served elsewhere.
pub fn routes_without_metrics(front: Arc<HttpFront>) -> Router {
    Router::new().route(RELAY_PATH, any(root)).route("/healthz", get(healthz)).with_state(front)
}

/// The routes of a listener for monitors alone.
pub fn monitor_routes(front: Arc<HttpFront>) -> Router {
    monitored().with_state(front)
}

fn monitored() -> Router<Arc<HttpFront>> {
    Router::new().route("/healthz", get(healthz)).route("/metrics", get(metrics))
}

async fn root(
    State(front): State<Arc<HttpFront>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    if is_upgrade(request.headers()) {
        return upgrade(&front, &connection, request);
    }
    if let Err(refused) = front.admit_status(&connection, request.headers()) {
        return *refused;
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Method::GET | Method::HEAD if wants_information(request.headers()) => {
            let document = nip11::document(&front.relay).to_string();
            ([(header::CONTENT_TYPE, "application/nostr+json")], document).into_response()
        }
        Method::GET | Method::HEAD => match status_page(&front).await {
            Ok(page) => page.into_response(),
            Err(StoreUnavailable) => unavailable(),
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

async fn status_page(front: &HttpFront) -> Result<Html<String>, StoreUnavailable> {
    let (health, topics) = (front.engine().health().await?, front.engine().busiest_topics().await?);
    Ok(Html(page::status(front, &health, &topics).into_string()))
}

/// A stable JSON document, described in docs/operating.md. A node is ready when its store answers: a consumer that is
/// behind or stuck does not change that.
async fn healthz(
    State(front): State<Arc<HttpFront>>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = front.admit_status(&connection, &headers) {
        return *refused;
    }
    let Ok(health) = front.engine().health().await else { return unavailable() };
    let consumer = |one: &ConsumerHealth| (one.name.to_owned(), json!({ "state": one.state, "backlog": one.backlog }));
    let mut document = json!({
        "status": "ready",
        "store": "ready",
        "events": health.stats.effective,
        "connections": front.relay.connections(),
        "subscriptions": health.subscriptions,
        "topics": health.topics,
        "capacity": health.stats.stage.as_str(),
        "permanent": health.permanent.as_str(),
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

async fn metrics(
    State(front): State<Arc<HttpFront>>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = front.admit_status(&connection, &headers) {
        return *refused;
    }
    // Reading the engine's health sets its gauges.
    if front.engine().health().await.is_err() {
        return unavailable();
    }
    front.metrics.streams.set(front.streams.open_count() as f64);
    front.metrics.connections.set(front.relay.connections() as f64);
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, front.exporter.render()).into_response()
}

fn unavailable() -> Response {
    let document = json!({ "status": "unavailable", "store": "does not answer" });
    (StatusCode::SERVICE_UNAVAILABLE, Json(document)).into_response()
}
