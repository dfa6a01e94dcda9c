//! What every HTTP request passes: its client's address, which a proxy names, is denied or counted before any route sees the
//! request (W-4), and its answer is held until it is read.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, Response, StatusCode, header, request::Parts},
    response::IntoResponse,
};
use hyper::body::Incoming;
use kukuri_engine::{ConnectRefused, networks::Share};
use tower::ServiceExt;

use crate::{
    front::HttpFront,
    held_answer::{ReservedMemory, hold},
    listener::Connection,
    websocket::becomes_websocket,
};

/// A request through a proxy, counted among those of its client until it is answered.
pub(crate) struct RequestPermit {
    _share: Share,
    /// While it is held, a new deny list ends the connection.
    _client: Arc<IpAddr>,
}

/// Answers one request of a connection.
pub(crate) async fn answer(
    front: Arc<HttpFront>,
    connection: Connection,
    routes: Router,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let ip = front.client_ip(&connection, &parts.headers);
    let permit = match front.enter(&connection, &parts, ip) {
        Ok(permit) => permit,
        Err(refused) => return Ok(refusal(&front, refused)),
    };
    let reserved = ReservedMemory::default();
    let mut request = Request::from_parts(parts, Body::new(body));
    request.extensions_mut().insert(connection);
    request.extensions_mut().insert(reserved.clone());
    let response = routes.oneshot(request).await?;
    Ok(hold(front.engine(), ip, &reserved, permit, response))
}

/// Tells the client of a request why it is refused.
pub(crate) fn refusal(front: &HttpFront, refused: ConnectRefused) -> Response<Body> {
    front.metrics.refused.of(refused).increment(1);
    let status = match refused {
        ConnectRefused::Denied => StatusCode::FORBIDDEN,
        ConnectRefused::NoAddress => StatusCode::BAD_REQUEST,
        _ => StatusCode::TOO_MANY_REQUESTS,
    };
    (status, format!("{}\n", refused.text())).into_response()
}

impl HttpFront {
    /// The client of a request. A request of a proxy that names nobody is the proxy's own, such as a look at `/healthz`.
    pub(crate) fn client_ip(&self, connection: &Connection, headers: &HeaderMap) -> IpAddr {
        let proxy = self.proxy_at(connection.peer);
        proxy.and_then(|proxy| proxy.client_of(headers)).unwrap_or(connection.peer)
    }

    /// Counts a request that came through a proxy among those of its client. A direct client was counted when it connected, a
    /// WebSocket is when it is upgraded.
    fn enter(
        &self,
        connection: &Connection,
        request: &Parts,
        ip: IpAddr,
    ) -> Result<Option<RequestPermit>, ConnectRefused> {
        if self.proxy_at(connection.peer).is_none() || becomes_websocket(request) {
            return Ok(None);
        }
        // Named first: a deny list that is new from here on ends the connection.
        let client = connection.name_client(ip);
        if self.engine().config().deny.covers_ip(ip) {
            return Err(ConnectRefused::Denied);
        }
        // The proxy's own requests have no limit, or a flood through a proxy that names nobody would keep monitors out.
        if ip == connection.peer {
            return Ok(None);
        }
        let share = self.connections.count(ip, self.engine())?;
        Ok(Some(RequestPermit { _share: share, _client: client }))
    }

    /// Admits a look at the status page, health or metrics (Y-4).
    pub(crate) fn admit_status(&self, connection: &Connection, headers: &HeaderMap) -> Result<(), Box<Response<Body>>> {
        let ip = self.client_ip(connection, headers);
        if self.engine().config().deny.covers_ip(ip) {
            return Err(Box::new(refusal(self, ConnectRefused::Denied)));
        }
        // A proxy that names nobody: a monitor beside it, which must not be kept out by others.
        if ip == connection.peer && self.proxy_at(connection.peer).is_some() {
            return Ok(());
        }
        self.engine().count_status_request(ip).map_err(|too_fast| {
            let wait = [(header::RETRY_AFTER, too_fast.seconds.to_string())];
            Box::new((StatusCode::TOO_MANY_REQUESTS, wait, format!("{too_fast}\n")).into_response())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use axum::routing::get;
    use futures_util::{StreamExt, stream};
    use hyper_util::rt::TokioIo;
    use kukuri_engine::{Engine, EngineConfig, EngineParts, config::Rates};
    use kukuri_relay::{Info, Relay};
    use kukuri_store::{StoreRules, model::ModelStore};
    use kukuri_testing::Raw;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        task::JoinHandle,
        time::Instant,
    };

    use super::*;
    use crate::{Exporter, Proxy, listener, min_rate::MinRateStream};

    const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const LARGE_BYTES: usize = 1 << 20;

    /// A front behind a proxy. An address may have this many connections.
    async fn front(connections_per_ip: usize) -> Arc<HttpFront> {
        let rates = Some(Rates { connections_per_ip, ..Rates::default() });
        let exporter = Exporter::new();
        let parts = EngineParts {
            store: Arc::new(ModelStore::new(StoreRules::default())),
            finder: None,
            config: EngineConfig { rates, ..EngineConfig::default() },
            policies: Vec::new(),
            recorder: exporter.recorder(),
        };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        let proxy = Proxy { header: "x-forwarded-for".to_owned(), trusted: vec![PROXY.into()] };
        Arc::new(HttpFront::new(Arc::new(Relay::new(engine, Info::default())), exporter, Some(proxy)))
    }

    fn routes() -> Router {
        let endless = || {
            let first = stream::once(async { Ok::<_, Infallible>(":\n\n") });
            Body::from_stream(first.chain(stream::pending()))
        };
        Router::new()
            .route("/stream", get(async move || endless()))
            .route("/large", get(async || vec![b'x'; LARGE_BYTES]))
            .route("/small", get(async || "small"))
    }

    async fn serve(front: &Arc<HttpFront>) -> SocketAddr {
        let listener = listener::listen(SocketAddr::from((PROXY, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listener::serve(Arc::clone(front), listener, routes()));
        address
    }

    fn request(path: &str, client: &str, headers: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: node\r\nx-forwarded-for: {client}\r\n{headers}\r\n")
    }

    /// A connection of the proxy with one request. Returns it with the status of the answer.
    async fn ask(address: SocketAddr, path: &str, client: &str, headers: &str) -> (Raw, String) {
        let mut raw = Raw::connect(address).await;
        raw.send(request(path, client, headers)).await;
        let head = raw.head().await;
        (raw, head[9..12].to_owned())
    }

    #[tokio::test]
    async fn requests_through_a_proxy_count_among_those_of_their_client_whatever_their_headers() {
        // W-4: a common proxy forwards `Upgrade`, and writes `Connection: upgrade`, on every path.
        let address = serve(&front(2).await).await;
        let upgrade =
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n";
        let (_first, status) = ask(address, "/stream", "192.0.2.1", "").await;
        assert_eq!(status, "200");
        let (second, status) = ask(address, "/stream", "192.0.2.1", upgrade).await;
        assert_eq!(status, "200");
        for headers in ["", upgrade] {
            assert_eq!(ask(address, "/stream", "192.0.2.1", headers).await.1, "429", "{headers}");
            assert_eq!(ask(address, "/small", "192.0.2.2", headers).await.1, "200", "another client: {headers}");
        }
        drop(second);
        let has_room = async || ask(address, "/small", "192.0.2.1", upgrade).await.1 == "200";
        kukuri_testing::eventually("an ended request makes room", has_room).await;
    }

    #[tokio::test]
    async fn a_new_deny_list_ends_the_open_answers_of_a_client_behind_a_proxy() {
        // Y-4
        let front = front(10).await;
        let address = serve(&front).await;
        let (mut denied, _) = ask(address, "/stream", "192.0.2.1", "").await;
        let (mut other, _) = ask(address, "/stream", "192.0.2.2", "").await;
        let (mut kept_alive, _) = ask(address, "/small", "192.0.2.1", "").await;
        kept_alive.body("small").await;
        let mut config = EngineConfig::clone(&front.engine().config());
        config.deny.ips = vec!["192.0.2.1/32".parse().unwrap()];
        front.engine().reconfigure(config);
        denied.everything().await;
        other.body("3\r\n:\n\n\r\n").await;
        let more = tokio::time::timeout(Duration::from_millis(50), other.stream.read_u8()).await;
        assert!(more.is_err(), "the answer to another client goes on: {more:?}");
        kept_alive.send(request("/small", "192.0.2.2", "")).await;
        assert!(
            kept_alive.head().await.starts_with("HTTP/1.1 200"),
            "the proxy keeps a connection that answers nobody"
        );
    }

    /// A connection of the proxy.
    fn connect(front: &Arc<HttpFront>) -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = duplex(16 * 1024);
        let connection = Connection::new(PROXY, front.connections.acquire(usize::MAX).unwrap());
        let front = Arc::clone(front);
        let service = hyper::service::service_fn(move |request| {
            answer(Arc::clone(&front), connection.clone(), routes(), request)
        });
        let served = listener::http_parser().serve_connection(TokioIo::new(MinRateStream::new(server)), service);
        (client, tokio::spawn(async { drop(served.await) }))
    }

    /// Sends a request and reads no more than the status of its answer.
    async fn status_of(connection: &mut DuplexStream, path: &str) -> String {
        connection.write_all(request(path, "192.0.2.1", "").as_bytes()).await.unwrap();
        let mut start = [0; 12];
        connection.read_exact(&mut start).await.unwrap();
        String::from_utf8_lossy(&start[9..]).into_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_holds_memory_and_its_permit_until_it_is_cut_off() {
        // Y-2, W-4, U-4
        let front = front(1).await;
        let held = async || front.engine().health().await.unwrap().answer_bytes;
        let begun = Instant::now();
        let (mut idle, served) = connect(&front);
        assert_eq!(status_of(&mut idle, "/large").await, "200");
        assert_eq!(held().await, LARGE_BYTES);
        let (mut second, _) = connect(&front);
        assert_eq!(status_of(&mut second, "/small").await, "429");
        served.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 30);
        assert_eq!(held().await, 0);
        let (mut third, _) = connect(&front);
        assert_eq!(status_of(&mut third, "/small").await, "200");
    }
}
