//! One port for everything: WebSocket, the relay's information document (NIP-11), its health.

use std::sync::Arc;

use axum::{
    Router,
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use crate::{message::SubscriptionId, relay::Relay, session};

/// Small buffers: a node has thousands of connections that hardly say anything.
const SOCKET_BUFFER: usize = 4 * 1024;
const NIPS: [u16; 8] = [1, 9, 11, 40, 42, 45, 62, 70];

/// What the relay serves.
pub fn routes(relay: Arc<Relay>) -> Router {
    Router::new().route("/", get(root)).route("/healthz", get(health)).with_state(relay)
}

async fn root(
    State(relay): State<Arc<Relay>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if let Ok(upgrade) = upgrade {
        let bytes = relay.config.requests.message_bytes;
        return upgrade
            .read_buffer_size(SOCKET_BUFFER)
            .write_buffer_size(SOCKET_BUFFER)
            .max_message_size(bytes)
            .max_frame_size(bytes)
            .on_upgrade(move |socket| session::serve(relay, socket));
    }
    let wants_information =
        headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"application/nostr+json"));
    let mut response = if wants_information {
        (StatusCode::OK, [(header::CONTENT_TYPE, "application/nostr+json")], information(&relay)).into_response()
    } else {
        let info = &relay.config.info;
        let text = format!("{}: {}\nA Nostr relay. Connect with a Nostr client.\n", info.name, info.description);
        (StatusCode::OK, text).into_response()
    };
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static("*"));
    }
    response
}

fn information(relay: &Relay) -> String {
    let (info, limits, requests) = (&relay.config.info, &relay.config.admission.limits, &relay.config.requests);
    json!({
        "name": info.name,
        "description": info.description,
        "contact": info.contact,
        "supported_nips": NIPS,
        "software": "kukuri-node",
        "version": env!("CARGO_PKG_VERSION"),
        "limitation": {
            "max_message_length": requests.message_bytes,
            "max_subscriptions": requests.subscriptions,
            "max_limit": requests.limit,
            "max_subid_length": SubscriptionId::LONGEST,
            "max_event_tags": limits.tag_count,
            "max_content_length": limits.content_bytes,
            "created_at_upper_limit": limits.ahead.as_secs(),
            "auth_required": false,
            "payment_required": false,
            "default_limit": requests.limit,
        },
    })
    .to_string()
}

async fn health(State(relay): State<Arc<Relay>>) -> Response {
    match relay.store.stats().await {
        Ok(stats) => {
            let body = json!({
                "status": "ready",
                "events": stats.effective,
                "connections": relay.connections(),
                "subscriptions": relay.hub.len(),
            });
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
        }
        Err(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("the store does not answer: {error}\n")).into_response()
        }
    }
}
