//! The upgrade of an HTTP connection to a WebSocket (RFC 6455).

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use hyper_util::rt::TokioIo;
use kukuri_engine::ConnectRefused;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    connections::ConnectionPermit, door::refusal, front::HttpFront, listener::Connection, min_rate::MinRateStream,
};

/// Small, because a node has thousands of connections that send little.
const READ_BUFFER_BYTES: usize = 2 * 1024;
/// tungstenite writes only pongs and answers to a close.
const WRITE_BUFFER_BYTES: usize = 0;

/// The path of the relay.
pub(crate) const RELAY_PATH: &str = "/";

/// Whether a request becomes a WebSocket connection, and is counted as one. Proxies forward the headers of an upgrade to every
/// path.
pub(crate) fn becomes_websocket(request: &Parts) -> bool {
    request.uri.path() == RELAY_PATH
        && request.method == Method::GET
        && is_upgrade(&request.headers)
        && has_supported_version(&request.headers)
        && request.headers.contains_key(header::SEC_WEBSOCKET_KEY)
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    has_token(headers, header::CONNECTION, "upgrade") && has_token(headers, header::UPGRADE, "websocket")
}

fn has_supported_version(headers: &HeaderMap) -> bool {
    has_token(headers, header::SEC_WEBSOCKET_VERSION, "13")
}

fn has_token(headers: &HeaderMap, header: header::HeaderName, token: &str) -> bool {
    let mut values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
}

/// Answers the handshake and hands the socket to the relay.
pub(crate) fn upgrade(front: &Arc<HttpFront>, connection: &Connection, mut request: Request) -> Response {
    let headers = request.headers();
    if request.method() != Method::GET || !has_supported_version(headers) {
        let version = [(header::SEC_WEBSOCKET_VERSION, "13")];
        return (StatusCode::UPGRADE_REQUIRED, version, "this node supports WebSocket version 13 only\n")
            .into_response();
    }
    let Some(accept) = headers.get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes())) else {
        return (StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing\n").into_response();
    };
    let (ip, permit) = match client_and_permit(front, connection, headers) {
        Ok(permitted) => permitted,
        Err(refused) => return refusal(front, refused),
    };
    let upgrading = hyper::upgrade::on(&mut request);
    let max_bytes = front.engine().config().requests.message_bytes;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(max_bytes))
        .max_frame_size(Some(max_bytes));
    let relay = Arc::clone(&front.relay);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrading.await else { return };
        // Under the layers of HTTP is the socket itself.
        let Ok(parts) = upgraded.downcast::<TokioIo<MinRateStream<TcpStream>>>() else { return };
        let stream = parts.io.into_inner().into_inner();
        let socket =
            WebSocketStream::from_partially_read(stream, parts.read_buf.to_vec(), Role::Server, Some(config)).await;
        // A task of its own: this one still holds the memory of the upgrade.
        tokio::spawn(relay.serve(socket, ip, permit));
    });
    let answer =
        [(header::CONNECTION, "upgrade"), (header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_ACCEPT, &accept)];
    (StatusCode::SWITCHING_PROTOCOLS, answer).into_response()
}

fn client_and_permit(
    front: &HttpFront,
    connection: &Connection,
    headers: &HeaderMap,
) -> Result<(IpAddr, ConnectionPermit), ConnectRefused> {
    // A connection that was refused before has given its permit up.
    let mut permit = match connection.take_permit() {
        Some(permit) => permit,
        None => front.connections.acquire(front.engine().config().requests.connections)?,
    };
    let Some(proxy) = front.proxy_at(connection.peer) else { return Ok((connection.peer, permit)) };
    let ip = proxy.client_of(headers).ok_or(ConnectRefused::NoAddress)?;
    permit.set_address(ip, front.engine())?;
    Ok((ip, permit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_handshake_on_the_path_of_the_relay_becomes_a_websocket() {
        // W-4
        let complete = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let becomes = |method: &str, uri: &str, headers: &[(&str, &str)]| {
            let request = axum::http::Request::builder().method(method).uri(uri);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            becomes_websocket(&request.body(()).unwrap().into_parts().0)
        };
        assert!(becomes("GET", "/", &complete) && becomes("GET", "/?x=1", &complete));
        assert!(!becomes("GET", "/v1/search", &complete) && !becomes("GET", "/healthz", &complete));
        assert!(!becomes("POST", "/", &complete));
        for missing in 0..complete.len() {
            let mut headers = complete.to_vec();
            headers.remove(missing);
            assert!(!becomes("GET", "/", &headers), "{}", complete[missing].0);
        }
    }
}
