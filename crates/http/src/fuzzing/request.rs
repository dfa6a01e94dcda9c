//! Any bytes that a client sends before its connection is a WebSocket: the routes of the front answer them, behind the same
//! HTTP parser, with the same limits.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use axum::{Router, body::Body};
use hyper::{Request, body::Incoming};
use hyper_util::rt::TokioIo;
use kukuri_engine::{Engine, EngineConfig, EngineParts};
use kukuri_relay::{Info, Relay};
use kukuri_store::{StoreRules, model::ModelStore};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::{Builder, Runtime},
};
use tower::ServiceExt;

use crate::{
    client_address::Proxy,
    exporter::Exporter,
    front::HttpFront,
    listener::{Connection, http_parser},
    routes::routes,
};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const STATUSES: [&str; 12] = ["101", "200", "204", "400", "404", "405", "413", "414", "426", "429", "431", "505"];

struct Front {
    runtime: Runtime,
    front: Arc<HttpFront>,
    routes: Router,
}

static FRONT: LazyLock<Mutex<Front>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let front = runtime.block_on(async {
        let exporter = Exporter::new();
        let parts = EngineParts {
            store: Arc::new(ModelStore::new(StoreRules::default())),
            finder: None,
            config: EngineConfig::default(),
            policies: Vec::new(),
            recorder: exporter.recorder(),
        };
        let (engine, _writer) = Engine::start(parts).await.expect("an engine");
        let proxy = Proxy { header: "x-forwarded-for".to_owned(), trusted: vec![PROXY.into()] };
        Arc::new(HttpFront::new(Arc::new(Relay::new(engine, Info::default())), exporter, Some(proxy)))
    });
    let routes = routes(Arc::clone(&front));
    Mutex::new(Front { runtime, front, routes })
});

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Front { runtime, front, routes } = &*FRONT.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = runtime.block_on(serve(front, routes, bytes));
    if !answer.is_empty() {
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = str::from_utf8(line).expect("a status line is text");
        let status = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "));
        let status = status.and_then(|rest| rest.get(..3)).expect("an HTTP answer");
        assert!(STATUSES.contains(&status), "{line}");
    }
    assert_eq!(front.connections.open_count(), 0, "the connection is not counted any more");
}

/// The answers to one connection.
async fn serve(front: &Arc<HttpFront>, routes: &Router, bytes: &[u8]) -> Vec<u8> {
    let permit = front.connections.acquire(1).expect("there is no other connection");
    let connection = Connection::new(PROXY, permit);
    let (mut client, server) = duplex(bytes.len().max(1));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (routes, connection) = (routes.clone(), connection.clone());
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection);
            routes.oneshot(request).await
        }
    });
    let serving = async move {
        let served = http_parser().serve_connection(TokioIo::new(server), service).with_upgrades();
        let _ = served.await;
    };
    let talking = async move {
        // The node may close the connection before it has read everything.
        let _ = client.write_all(bytes).await;
        let _ = client.shutdown().await;
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        answer
    };
    let ((), answer) = tokio::join!(serving, talking);
    // The task of an upgrade notices that the connection is over.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    answer
}
