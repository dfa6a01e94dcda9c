//! Accepting connections: each is let in or turned away at the door, and has to say what it wants in time.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;

use crate::{
    door::{Inside, TurnedAway},
    relay::Relay,
    session::stopped,
};

/// A client that has not sent its request by then is cut off (slow loris).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for any handshake; a connection costs its buffers until it is upgraded.
const REQUEST_BYTES: usize = 16 * 1024;
/// After an error of the listener, such as too many open files, others get a moment to leave.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Where a request comes from, and its place inside. Goes with every request.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The other end of the connection, which may be a proxy.
    pub(crate) peer: IpAddr,
    place: Arc<Mutex<Option<Inside>>>,
    has_asked: Arc<AtomicBool>,
}

impl Caller {
    /// Takes the place for as long as a WebSocket lives.
    pub(crate) fn take_place(&self) -> Option<Inside> {
        self.place.lock().ok()?.take()
    }
}

/// Serves until the relay stops.
pub async fn serve(relay: Arc<Relay>, listener: TcpListener, routes: Router) {
    let mut stopping = relay.signals.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => return,
        };
        match accepted {
            Ok((stream, peer)) => receive(&relay, stream, peer, &routes),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

fn receive(relay: &Arc<Relay>, stream: TcpStream, peer: SocketAddr, routes: &Router) {
    let peer = peer.ip().to_canonical();
    let config = relay.config();
    let entered = relay.door.enter(config.requests.connections).and_then(|mut inside| {
        // Through a proxy, the request itself says who comes.
        if !config.proxy.as_ref().is_some_and(|proxy| proxy.is_at(peer)) {
            inside.comes_from(peer, relay)?;
        }
        Ok(inside)
    });
    match entered {
        Ok(inside) => {
            // Answers are small and awaited; they must not wait for more.
            let _ = stream.set_nodelay(true);
            let caller = Caller { peer, place: Arc::new(Mutex::new(Some(inside))), has_asked: Arc::default() };
            tokio::spawn(talk(Arc::clone(relay), stream, caller, routes.clone()));
        }
        Err(why) => {
            relay.metrics.turned_away(why);
            tokio::spawn(turn_away(stream, why));
        }
    }
}

/// Speaks HTTP until the connection ends or becomes a WebSocket.
async fn talk(relay: Arc<Relay>, stream: TcpStream, caller: Caller, routes: Router) {
    let has_asked = Arc::clone(&caller.has_asked);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        caller.has_asked.store(true, Ordering::Relaxed);
        let (routes, caller) = (routes.clone(), caller.clone());
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(caller);
            routes.oneshot(request).await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(REQUEST_BYTES)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut stopping = relay.signals.subscribe();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if ended.is_err() && !has_asked.load(Ordering::Relaxed) {
        relay.metrics.turned_away(TurnedAway::NoHandshake);
    }
}

/// Says why, if the client listens.
async fn turn_away(mut stream: TcpStream, why: TurnedAway) {
    let reason = why.reason();
    let status = if why == TurnedAway::Denied { "403 Forbidden" } else { "503 Service Unavailable" };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}
