//! Accepting connections: each is counted or refused, and has to send its request in time.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::Request};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use kukuri_engine::ConnectRefused;
use parking_lot::Mutex;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
};

use crate::{
    connections::{ConnectionCounter, ConnectionPermit},
    door,
    front::HttpFront,
    min_rate::MinRateStream,
};

/// Time for a client to send its request (slow loris).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for any handshake; a connection costs its buffers until it is upgraded.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Pause after an error of the listener, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The system's buffer for what a client has not taken yet. A larger one would use more memory for each slow client, and hide for
/// longer how little it takes.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;
/// Connections that the system holds until they are accepted.
const BACKLOG: u32 = 1_024;

/// Listens on an address, with a bounded send buffer for each connection.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The connection that a request came over. An extension of every request.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The other end, which may be a proxy.
    pub(crate) peer: IpAddr,
    permit: Arc<Mutex<Option<ConnectionPermit>>>,
    /// The client that a proxy has named, while its request is answered.
    client: Arc<Mutex<Weak<IpAddr>>>,
    has_sent_request: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) fn new(peer: IpAddr, permit: ConnectionPermit) -> Self {
        let permit = Arc::new(Mutex::new(Some(permit)));
        Self { peer, permit, client: Arc::default(), has_sent_request: Arc::default() }
    }

    /// Takes the permit, for as long as a WebSocket lives.
    pub(crate) fn take_permit(&self) -> Option<ConnectionPermit> {
        self.permit.lock().take()
    }

    /// Names the client of the request that is answered now. It is forgotten when the returned handle is dropped.
    pub(crate) fn name_client(&self, ip: IpAddr) -> Arc<IpAddr> {
        let client = Arc::new(ip);
        *self.client.lock() = Arc::downgrade(&client);
        client
    }

    fn is_denied(&self, front: &HttpFront) -> bool {
        let client = self.client.lock().upgrade();
        let config = front.engine().config();
        config.deny.covers_ip(self.peer) || client.is_some_and(|client| config.deny.covers_ip(*client))
    }
}

/// Serves clients until the engine stops.
pub async fn serve(front: Arc<HttpFront>, listener: TcpListener, routes: Router) {
    let folding = front.exporter.fold_regularly();
    let serving = serve_counted(&front, listener, routes, &front.connections);
    tokio::select! {
        () = serving => {}
        () = folding => {}
    }
}

/// Serves an operator's monitors until the engine stops. Their connections do not count among those of clients.
pub async fn serve_monitors(front: Arc<HttpFront>, listener: TcpListener, routes: Router) {
    serve_counted(&front, listener, routes, &Arc::default()).await;
}

async fn serve_counted(
    front: &Arc<HttpFront>,
    listener: TcpListener,
    routes: Router,
    connections: &Arc<ConnectionCounter>,
) {
    let stopped = front.engine().stopped();
    tokio::pin!(stopped);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => return,
        };
        match accepted {
            Ok((stream, peer)) => accept(front, stream, peer, &routes, connections),
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection; the listener pauses for 100 ms");
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

fn accept(
    front: &Arc<HttpFront>,
    stream: TcpStream,
    peer: SocketAddr,
    routes: &Router,
    connections: &Arc<ConnectionCounter>,
) {
    let peer = peer.ip().to_canonical();
    let max = front.engine().config().requests.connections;
    let permit = connections.acquire(max).and_then(|mut permit| {
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
            let connection = Connection::new(peer, permit);
            tokio::spawn(serve_connection(Arc::clone(front), stream, connection, routes.clone()));
        }
        Err(refused) => {
            front.metrics.refused.of(refused).increment(1);
            tokio::spawn(refuse(stream, refused));
        }
    }
}

/// HTTP, with bounds on time and size.
pub(crate) fn http_parser() -> http1::Builder {
    let mut parser = http1::Builder::new();
    parser
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(MAX_REQUEST_BYTES)
        .half_close(false);
    parser
}

/// Speaks HTTP until the connection ends or becomes a WebSocket.
async fn serve_connection(front: Arc<HttpFront>, stream: TcpStream, connection: Connection, routes: Router) {
    let at_door = Arc::clone(&front);
    let (watched, has_sent_request) = (connection.clone(), Arc::clone(&connection.has_sent_request));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        connection.has_sent_request.store(true, Ordering::Relaxed);
        door::answer(Arc::clone(&at_door), connection.clone(), routes.clone(), request)
    });
    let http = http_parser().serve_connection(TokioIo::new(MinRateStream::new(stream)), service).with_upgrades();
    tokio::pin!(http);
    let ended = tokio::select! {
        ended = &mut http => ended,
        () = front.engine().stopped() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
        // A WebSocket is told why by its session.
        () = denied(&front, &watched) => return,
    };
    if ended.is_err() && !has_sent_request.load(Ordering::Relaxed) {
        front.metrics.refused.of(ConnectRefused::NoHandshake).increment(1);
    }
}

/// Returns once a new configuration denies the other end of a connection, or the client whose request is answered.
async fn denied(front: &HttpFront, connection: &Connection) {
    let mut signals = front.engine().signals();
    while signals.changed().await.is_ok() {
        if connection.is_denied(front) {
            return;
        }
    }
    // The engine is gone, and its stop was noticed.
    std::future::pending().await
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
