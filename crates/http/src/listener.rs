//! Accepting connections: each is counted or refused, and has to send its request in time.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use kukuri_engine::ConnectRefused;
use parking_lot::Mutex;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;

use crate::{connections::ConnectionPermit, front::HttpFront, min_rate::MinRateStream};

/// Time for a client to send its request (slow loris).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for any handshake; a connection costs its buffers until it is upgraded.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Pause after an error of the listener, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The connection that a request came over. An extension of every request.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The other end, which may be a proxy.
    pub(crate) peer: IpAddr,
    permit: Arc<Mutex<Option<ConnectionPermit>>>,
    has_sent_request: Arc<AtomicBool>,
}

impl Connection {
    /// Takes the permit, for as long as a WebSocket lives.
    pub(crate) fn take_permit(&self) -> Option<ConnectionPermit> {
        self.permit.lock().take()
    }
}

/// Serves until the engine stops.
pub async fn serve(front: Arc<HttpFront>, listener: TcpListener, routes: Router) {
    let stopped = front.engine().stopped();
    let folding = front.exporter.fold_regularly();
    tokio::pin!(stopped, folding);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => return,
            () = &mut folding => return,
        };
        match accepted {
            Ok((stream, peer)) => accept(&front, stream, peer, &routes),
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection; the listener pauses for 100 ms");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

fn accept(front: &Arc<HttpFront>, stream: TcpStream, peer: SocketAddr, routes: &Router) {
    let peer = peer.ip().to_canonical();
    let max = front.engine().config().requests.connections;
    let permit = front.connections.acquire(max).and_then(|mut permit| {
        // Through a proxy, the request names the client.
        if front.proxy_at(peer).is_none() {
            permit.set_address(peer, front.engine())?;
        }
        Ok(permit)
    });
    match permit {
        Ok(permit) => {
            // Answers are small and awaited: Nagle's algorithm would delay them.
            let _ = stream.set_nodelay(true);
            let permit = Arc::new(Mutex::new(Some(permit)));
            let connection = Connection { peer, permit, has_sent_request: Arc::default() };
            tokio::spawn(serve_connection(Arc::clone(front), stream, connection, routes.clone()));
        }
        Err(refused) => {
            front.metrics.refused.of(refused).increment(1);
            tokio::spawn(refuse(stream, refused));
        }
    }
}

/// Speaks HTTP until the connection ends or becomes a WebSocket.
async fn serve_connection(front: Arc<HttpFront>, stream: TcpStream, connection: Connection, routes: Router) {
    let has_sent_request = Arc::clone(&connection.has_sent_request);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        connection.has_sent_request.store(true, Ordering::Relaxed);
        let (routes, connection) = (routes.clone(), connection.clone());
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection);
            routes.oneshot(request).await
        }
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(MAX_REQUEST_BYTES)
        .half_close(false)
        .serve_connection(TokioIo::new(MinRateStream::new(stream)), service)
        .with_upgrades();
    tokio::pin!(http);
    let ended = tokio::select! {
        ended = &mut http => ended,
        () = front.engine().stopped() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if ended.is_err() && !has_sent_request.load(Ordering::Relaxed) {
        front.metrics.refused.of(ConnectRefused::NoHandshake).increment(1);
    }
}

/// Tells the client why, if it reads.
async fn refuse(mut stream: TcpStream, refused: ConnectRefused) {
    let reason = refused.text();
    let status = if refused == ConnectRefused::Denied { "403 Forbidden" } else { "503 Service Unavailable" };
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
