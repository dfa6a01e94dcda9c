//! The HTTP API. It uses the relay's client addresses, rate limits and authentication.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Router, http::request::Parts};
use kukuri_api::{Api, Error, Gate, Identity, RouteCost, StreamPermit};
use kukuri_bootstrap::Profile;
use kukuri_control::{Control, request::Service};
use kukuri_domain::{PublicKey, TopicId};
use kukuri_engine::ReadKind;
use kukuri_http::{HttpFront, reader::ReaderRefused, streams::AdmittedStream};
use kukuri_search::Finder;
use kukuri_store::{Budget, Store};
use tokio::sync::watch;

use crate::config::Settings;

/// Memory that is reserved for a page while it is prepared: its events, and the JSON around them.
const PAGE_BYTES: usize = 2 << 20;
/// The most that is reserved for a page of hits, which may be large events.
const MAX_SEARCH_BYTES: usize = 8 << 20;
/// Bytes of a page with one hit besides its event: topics, snippet, cursor.
const HIT_FRAME_BYTES: usize = 32 << 10;

struct ReadGate(Arc<HttpFront>);

#[async_trait]
impl Gate for ReadGate {
    async fn admit(&self, request: &Parts, cost: RouteCost) -> Result<Identity, Error> {
        let admitted = match cost {
            RouteCost::Static | RouteCost::Control => self.0.admit_static(request),
            RouteCost::SignIn => self.0.admit_sign_in(request),
            RouteCost::Listing => self.0.admit_list_reader(request, PAGE_BYTES).await,
            RouteCost::Read => self.0.admit_reader(request, PAGE_BYTES..=PAGE_BYTES).await,
            RouteCost::Search => {
                // A page ends earlier if there is less than it may need.
                let least = self.0.engine().config().admission.limits.event_bytes + HIT_FRAME_BYTES;
                self.0.admit_reader(request, least..=least.max(MAX_SEARCH_BYTES)).await
            }
        };
        admitted.map(|()| Identity::Anonymous).map_err(error_of)
    }

    fn admit_key(&self, key: &PublicKey, cost: RouteCost) -> Result<(), Error> {
        let kind = match cost {
            RouteCost::Read | RouteCost::Search => ReadKind::History,
            _ => ReadKind::Recent,
        };
        self.0.admit_key(key, kind).map_err(error_of)
    }

    fn admit_first_visit(&self, request: &Parts) -> Result<(), Error> {
        self.0.admit_sign_in(request).map_err(error_of)
    }

    fn serves_members_only(&self) -> bool {
        self.0.engine().requires_authentication()
    }

    fn is_for_everybody(&self, topic: Option<&TopicId>) -> bool {
        self.0.engine().is_for_everybody(topic)
    }

    fn is_enabled(&self, topic: &TopicId) -> bool {
        self.0.engine().is_topic_enabled(topic)
    }

    fn budget(&self, request: &Parts) -> Budget {
        self.0.read_budget(request)
    }

    fn answer_bytes(&self, request: &Parts) -> usize {
        self.0.answer_bytes(request)
    }

    fn admit_stream(&self, request: &Parts) -> Result<StreamPermit, Error> {
        let AdmittedStream { share, turn } = self.0.admit_stream(request).map_err(error_of)?;
        Ok(StreamPermit { turn, share: Box::new(share) })
    }
}

fn error_of(refused: ReaderRefused) -> Error {
    match refused {
        ReaderRefused::TooFast(too_fast) => Error::RateLimited { retry_after_seconds: too_fast.seconds },
        ReaderRefused::Denied => Error::AddressDenied,
        ReaderRefused::Busy => Error::Busy,
        ReaderRefused::TooManyStreams => Error::TooManyStreams,
    }
}

/// The parts of a node that the API reads, besides its front.
pub(crate) struct ApiParts<'s> {
    pub(crate) settings: &'s Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) finder: Option<Finder>,
    pub(crate) control: Arc<Control>,
    pub(crate) profile: watch::Receiver<Arc<Profile>>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// The routes of the API, to be merged with those of the HTTP front.
pub(crate) fn routes(front: &Arc<HttpFront>, parts: ApiParts<'_>) -> Router {
    let ApiParts { settings, store, finder, control, profile, stopping } = parts;
    let (engine, visibility) = (Arc::clone(front.engine()), front.engine().visibility().clone());
    let of_urls = Arc::clone(&engine);
    let services = finder.iter().map(|_| Service::Index).collect();
    kukuri_api::routes(Api {
        store,
        finder,
        control,
        relay_urls: Box::new(move || of_urls.config().admission.relay_urls.clone()),
        topic_network: settings.topics.network.clone(),
        services,
        request_limits: settings.subscriptions.limits(),
        bootstrap: Box::new(move || Arc::clone(&profile.borrow())),
        forbidden_topics: settings.topics.forbidden(),
        upgrade_url: settings.subscriptions.upgrade_url.as_ref().map(|url| url.as_ref().to_owned()),
        topics: Box::new(move || engine.config().admission.topics.clone()),
        visibility: Box::new(move || visibility.load().as_ref().clone()),
        gate: Arc::new(ReadGate(Arc::clone(front))),
        clock: super::now,
        stopping,
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use kukuri_bootstrap::Endpoints;
    use kukuri_domain::PublicKey;
    use kukuri_engine::{Engine, EngineParts};
    use kukuri_http::{Exporter, Proxy};
    use kukuri_relay::Relay;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::{
        config::ByteSize,
        wiring::{engine_config, stores},
    };

    /// A node's HTTP API, until it is dropped.
    struct Served {
        address: SocketAddr,
        _directory: tempfile::TempDir,
        _stop: watch::Sender<bool>,
    }

    impl Served {
        async fn start(change: impl FnOnce(&mut Settings), proxy: Option<Proxy>) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let mut settings = Settings { data: directory.path().to_owned(), ..Settings::default() };
            change(&mut settings);
            let store = stores::for_serving(&settings).await.unwrap();
            let exporter = Exporter::new();
            let parts = EngineParts {
                store: Arc::clone(&store),
                finder: None,
                config: engine_config(&settings, "ws://127.0.0.1:7777").unwrap(),
                policies: Vec::new(),
                recorder: exporter.recorder(),
            };
            let (engine, _writer) = Engine::start(parts).await.unwrap();
            let relay = Arc::new(Relay::new(engine, settings.relay.info(None)));
            let front = Arc::new(HttpFront::new(relay, exporter, proxy));
            let listener = kukuri_http::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopping) = watch::channel(false);
            let control = crate::wiring::control::for_serving(&settings).await.unwrap();
            let own_key = PublicKey::from_bytes([1; 32]);
            let (_, profile) = watch::channel(Arc::new(Profile::new(own_key, Endpoints::default())));
            let parts = ApiParts { settings: &settings, store, finder: None, control, profile, stopping };
            let routes = routes(&front, parts);
            tokio::spawn(kukuri_http::serve(Arc::clone(&front), listener, routes));
            Self { address, _directory: directory, _stop: stop }
        }

        async fn send(&self, path: &str, headers: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\n{headers}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream
        }

        /// Opens a stream through the proxy. Returns it with its status.
        async fn stream_of(&self, client: &str) -> (TcpStream, String) {
            let headers = format!("accept: text/event-stream\r\nx-forwarded-for: {client}\r\n");
            let mut stream = self.send("/v1/topics/kukuri:global/changes", &headers).await;
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.unwrap();
            (stream, String::from_utf8_lossy(&start[9..]).into_owned())
        }
    }

    fn local_proxy() -> Option<Proxy> {
        Some(Proxy { header: "x-forwarded-for".to_owned(), trusted: vec!["127.0.0.0/8".parse().unwrap()] })
    }

    #[tokio::test]
    async fn a_search_needs_memory_for_one_hit_only() {
        // Y-2: an address has a quarter of it.
        let little = |settings: &mut Settings| settings.limits.answer_memory = ByteSize(4 << 20);
        let served = Served::start(little, None).await;
        let mut stream = served.send("/v1/search?topic=kukuri:global&q=tea", "connection: close\r\n").await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("SEARCH_UNAVAILABLE"), "it is admitted: {answer}");
    }

    #[tokio::test]
    async fn description_of_the_api_has_a_rate() {
        // U-3
        let rates = |settings: &mut Settings| {
            (settings.rates.requests_per_minute, settings.rates.requests_burst) = (1, 2);
        };
        let served = Served::start(rates, None).await;
        for expected in ["200", "200", "429"] {
            let mut stream = served.send("/v1/openapi.json", "connection: close\r\n").await;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
        }
    }

    #[tokio::test]
    async fn attempts_to_sign_in_have_a_rate_of_their_own() {
        // U-3
        let served = Served::start(|settings| settings.rates.sign_ins_per_minute = 2, None).await;
        for expected in ["400", "400", "429"] {
            let mut stream = TcpStream::connect(served.address).await.unwrap();
            let head =
                "POST /v1/auth/challenge HTTP/1.1\r\nhost: node\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
        }
        let mut stream = served.send("/v1/openapi.json", "connection: close\r\n").await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "other requests go on: {answer}");
    }

    #[tokio::test]
    async fn requests_through_a_proxy_count_among_the_connections_of_their_client() {
        // W-4, U-4
        let few = |settings: &mut Settings| settings.rates.connections_per_ip = 3;
        let served = Served::start(few, local_proxy()).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            let (stream, status) = served.stream_of("192.0.2.1").await;
            assert_eq!(status, "200");
            open.push(stream);
        }
        assert_eq!(served.stream_of("192.0.2.1").await.1, "429");
        assert_eq!(served.stream_of("192.0.2.2").await.1, "200", "another client of the same proxy");
        open.clear();
        let reopened = async || served.stream_of("192.0.2.1").await.1 == "200";
        kukuri_testing::eventually("ended streams make room", reopened).await;
    }

    #[tokio::test]
    async fn one_address_gets_a_part_of_the_streams() {
        // Y-1
        let many = |settings: &mut Settings| {
            settings.rates.connections_per_ip = 1_000;
            (settings.rates.backfill_per_minute, settings.rates.backfill_burst) = (10_000, 10_000);
        };
        let served = Served::start(many, local_proxy()).await;
        let mut open = Vec::new();
        let refused = loop {
            let (stream, status) = served.stream_of("192.0.2.1").await;
            if status != "200" {
                break status;
            }
            open.push(stream);
        };
        assert_eq!((refused.as_str(), (40..=64).contains(&open.len())), ("503", true), "{}", open.len());
        assert_eq!(served.stream_of("192.0.2.2").await.1, "200", "another address");
    }
}
