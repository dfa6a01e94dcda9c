//! One port for everything: WebSocket, information (NIP-11), a page for people, health, metrics; and who may read over
//! HTTP what others serve beside it.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Response},
    routing::{any, get},
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    clock,
    config::Proxy,
    door::{Inside, TurnedAway},
    information, page,
    rates::{Act, Counted},
    relay::Relay,
    server::Caller,
    session,
};

/// A node has thousands of connections that hardly say anything: reading needs little.
const READ_BUFFER: usize = 2 * 1024;
/// The library writes answers to pings and closes only.
const WRITE_BUFFER: usize = 0;

/// What the relay serves.
pub fn routes(relay: Arc<Relay>) -> Router {
    Router::new().route("/", any(root)).route("/healthz", get(health)).route("/metrics", get(metrics)).with_state(relay)
}

async fn root(State(relay): State<Arc<Relay>>, Extension(caller): Extension<Caller>, request: Request) -> Response {
    if is_upgrade(request.headers()) {
        return upgrade(relay, &caller, request);
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Method::GET | Method::HEAD if wants_information(request.headers()) => {
            let document = information::document(&relay.config(), relay.finder.is_some()).to_string();
            ([(header::CONTENT_TYPE, "application/nostr+json")], document).into_response()
        }
        Method::GET | Method::HEAD => match page::status(&relay).await {
            Ok(page) => Html(page.into_string()).into_response(),
            Err(error) => unavailable(&error),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
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

fn wants_information(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.split(',').any(|kind| kind.trim().starts_with("application/nostr+json")))
}

fn names(headers: &HeaderMap, header: header::HeaderName, token: &str) -> bool {
    let mut values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    names(headers, header::CONNECTION, "upgrade") && names(headers, header::UPGRADE, "websocket")
}

/// Turns an HTTP connection into a WebSocket (RFC 6455).
fn upgrade(relay: Arc<Relay>, caller: &Caller, mut request: Request) -> Response {
    let headers = request.headers();
    if request.method() != Method::GET || !names(headers, header::SEC_WEBSOCKET_VERSION, "13") {
        let version = [(header::SEC_WEBSOCKET_VERSION, "13")];
        return (StatusCode::UPGRADE_REQUIRED, version, "WebSocket version 13 is spoken here\n").into_response();
    }
    let Some(accept) = headers.get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes())) else {
        return (StatusCode::BAD_REQUEST, "a WebSocket needs a key\n").into_response();
    };
    let (ip, inside) = match let_in(&relay, caller, headers) {
        Ok(entered) => entered,
        Err(why) => {
            relay.metrics.turned_away(why);
            let status = match why {
                TurnedAway::Denied => StatusCode::FORBIDDEN,
                TurnedAway::NoAddress => StatusCode::BAD_REQUEST,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            return (status, format!("{}\n", why.reason())).into_response();
        }
    };
    let upgrading = hyper::upgrade::on(&mut request);
    let bytes = relay.config().requests.message_bytes;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(bytes))
        .max_frame_size(Some(bytes));
    tokio::spawn(async move {
        let Ok(upgraded) = upgrading.await else { return };
        // Under the layers of HTTP is the socket itself.
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
        let stream = parts.io.into_inner();
        let socket =
            WebSocketStream::from_partially_read(stream, parts.read_buf.to_vec(), Role::Server, Some(config)).await;
        // A task of its own: this one still carries what the upgrade needed.
        tokio::spawn(session::serve(relay, socket, ip, inside));
    });
    let answer =
        [(header::CONNECTION, "upgrade"), (header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_ACCEPT, &accept)];
    (StatusCode::SWITCHING_PROTOCOLS, answer).into_response()
}

/// Finds out where a connection comes from, and takes its place inside.
fn let_in(relay: &Relay, caller: &Caller, headers: &HeaderMap) -> Result<(IpAddr, Inside), TurnedAway> {
    let config = relay.config();
    // Who was refused before on this connection has given its place up.
    let mut place = match caller.take_place() {
        Some(place) => place,
        None => relay.door.enter(config.requests.connections)?,
    };
    let Some(proxy) = config.proxy.as_ref().filter(|proxy| proxy.is_at(caller.peer)) else {
        return Ok((caller.peer, place));
    };
    let ip = client_of(proxy, headers).ok_or(TurnedAway::NoAddress)?;
    place.comes_from(ip, relay)?;
    Ok((ip, place))
}

/// Why a reader over HTTP is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderRefused {
    /// Only who has authenticated is served here, and over HTTP nobody can (W-7).
    Unauthenticated,
    /// Its address is denied.
    Denied,
    /// It asks too often.
    TooFast {
        /// When it may ask again.
        seconds: u64,
    },
}

impl Relay {
    /// Counts a request over HTTP that reads as much as a REQ for history does, or refuses it (W-4).
    pub fn admit_reader(&self, request: &Parts) -> Result<(), ReaderRefused> {
        let config = self.config();
        if config.auth.is_demanded(clock::now(), clock::now()) {
            return Err(ReaderRefused::Unauthenticated);
        }
        let caller = request.extensions.get::<Caller>().ok_or(ReaderRefused::Denied)?;
        let proxy = config.proxy.as_ref().filter(|proxy| proxy.is_at(caller.peer));
        let ip = match proxy {
            None => caller.peer,
            Some(proxy) => client_of(proxy, &request.headers).ok_or(ReaderRefused::Denied)?,
        };
        if config.deny.covers_ip(ip) {
            return Err(ReaderRefused::Denied);
        }
        let who = Counted { ip, keys: &[] };
        self.check_rate(Act::Backfill, who).map_err(|too_fast| ReaderRefused::TooFast { seconds: too_fast.seconds })
    }
}

/// Whom the proxy speaks for. Its header lists hops, the nearest last: the last one that is no proxy of ours is the
/// client. What lies behind a hop that can't be read was written by nobody we trust.
fn client_of(proxy: &Proxy, headers: &HeaderMap) -> Option<IpAddr> {
    let values = headers.get_all(proxy.header.as_str()).iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    let readable = hops.iter().rev().map_while(|hop| address(hop.trim()));
    let mut nearest_proxy = None;
    for hop in readable {
        if !proxy.is_at(hop) {
            return Some(hop);
        }
        nearest_proxy = Some(hop);
    }
    nearest_proxy
}

/// An address as proxies write it: bare, with a port, in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.trim_matches(['[', ']', '"']).parse::<IpAddr>().ok();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    bare().or_else(with_port).map(|ip| ip.to_canonical())
}

async fn health(State(relay): State<Arc<Relay>>) -> Response {
    match relay.store.stats().await {
        Ok(stats) => {
            // What they do comes after: a node whose index is behind, or stuck, is ready all the same.
            let consumers: serde_json::Map<_, _> = relay
                .consumers
                .look(stats.head)
                .into_iter()
                .map(|one| (one.name.to_owned(), json!({ "state": one.state, "backlog": one.backlog })))
                .collect();
            let mut body = json!({
                "status": "ready",
                "store": "ready",
                "events": stats.effective,
                "connections": relay.connections(),
                "subscriptions": relay.hub.len(),
                "topics": relay.topics.enabled(),
                "capacity": format!("{:?}", stats.stage),
                "disk": format!("{:?}", relay.disk_level()),
                "backlog": format!("{:?}", relay.lag()),
                "consumers": consumers,
                "clock_held": stats.clock_held,
                "uptime_seconds": relay.started.elapsed().as_secs(),
            });
            if let Some(body) = body.as_object_mut() {
                body.extend(relay.parts.look());
            }
            ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

async fn metrics(State(relay): State<Arc<Relay>>) -> Response {
    match relay.measures().await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => unavailable(&error),
    }
}

fn unavailable(error: &kukuri_store::StoreError) -> Response {
    tracing::error!(%error, "the store does not answer");
    let body = json!({ "status": "unavailable", "store": "does not answer" });
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_proxies_write_them() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:4711", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected.map(|ip| ip.parse().unwrap()), "{text}");
        }
    }
}
