//! A relay on a real store and a real port. Clients and events come from `kukuri_testing`.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use kukuri_domain::{
    Admission, Kind, RelayUrls,
    topic::{TopicRules, TopicsMode},
};
use kukuri_engine::{Engine, EngineConfig, EngineParts, upkeep};
use kukuri_http::{Exporter, HttpFront, Proxy};
use kukuri_outbox::{Consumer, ConsumerSettings, Handle};
use kukuri_relay::{Info, Relay};
use kukuri_search::{Finder, IndexSink, SearchIndex, document::DEFAULT_KINDS, index_consumer::CONSUMER};
use kukuri_search_tantivy::TantivyIndex;
use kukuri_store::{Seq, port::*};
use kukuri_store_lmdb::{Durability, LmdbOptions, LmdbStore};
use serde_json::Value;

pub(crate) use kukuri_testing::{
    Client, Draft, Raw, TOPIC, as_json, draft, eventually, frame, id_of, key_of, masked, millis, note, now, topic,
};

/// Long enough for every step of a test, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A relay that runs until it is dropped.
pub(crate) struct TestRelay {
    pub(crate) engine: Arc<Engine>,
    front: Arc<HttpFront>,
    relay: Arc<Relay>,
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
    _index_dir: Option<tempfile::TempDir>,
}

/// The configuration of all parts. Most tests change the engine's.
#[derive(Clone)]
pub(crate) struct TestConfig {
    engine: EngineConfig,
    pub(crate) info: Info,
    pub(crate) proxy: Option<Proxy>,
}

impl Deref for TestConfig {
    type Target = EngineConfig;

    fn deref(&self) -> &EngineConfig {
        &self.engine
    }
}

impl DerefMut for TestConfig {
    fn deref_mut(&mut self) -> &mut EngineConfig {
        &mut self.engine
    }
}

impl TestRelay {
    pub(crate) async fn start(mode: TopicsMode) -> Self {
        Self::start_with(mode, |_| {}).await
    }

    /// Starts a relay without rate limits; `change` edits its configuration.
    pub(crate) async fn start_with(mode: TopicsMode, change: impl FnOnce(&mut TestConfig)) -> Self {
        Self::start_on(LmdbOptions::default(), mode, change).await
    }

    /// Like `start_with`, on a store with other options. No test depends on durability.
    pub(crate) async fn start_on(options: LmdbOptions, mode: TopicsMode, change: impl FnOnce(&mut TestConfig)) -> Self {
        Self::start_with_finder(options, |_| None, mode, change).await
    }

    /// Starts a relay with a search index and the consumer that updates it.
    pub(crate) async fn start_searching(mode: TopicsMode) -> (Self, Handle) {
        let index_dir = tempfile::tempdir().unwrap();
        let index: Arc<dyn SearchIndex> = Arc::new(TantivyIndex::open(index_dir.path()).unwrap());
        let mut consumer = None;
        let relay = Self::start_with_finder(
            LmdbOptions::default(),
            |store| {
                let sink = Arc::new(IndexSink::with_default_kinds(Arc::clone(&index), Arc::clone(store)));
                consumer = Some(Consumer::start(CONSUMER, Arc::clone(store), sink, ConsumerSettings::default()));
                Some(Finder::new(index, Arc::clone(store), DEFAULT_KINDS.map(Kind)))
            },
            mode,
            |_| {},
        )
        .await;
        let consumer = consumer.unwrap();
        assert!(consumer.caught_up(Seq(0)).await);
        (Self { _index_dir: Some(index_dir), ..relay }, consumer)
    }

    async fn start_with_finder(
        options: LmdbOptions,
        finder: impl FnOnce(&Arc<dyn Store>) -> Option<Finder>,
        mode: TopicsMode,
        change: impl FnOnce(&mut TestConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, reserve: 1 << 20, ..options };
        let store: Arc<dyn Store> = Arc::new(LmdbStore::open(dir.path(), options).unwrap());
        let finder = finder(&store);
        let listener = kukuri_http::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("ws://{address}");
        let engine = EngineConfig {
            admission: Admission {
                topics: TopicRules::new(mode, &[] as &[&str]).unwrap(),
                relay_urls: RelayUrls::new(&[&url]),
                ..Admission::default()
            },
            ..EngineConfig::default()
        };
        let mut config = TestConfig { engine, info: Info::default(), proxy: None };
        change(&mut config);
        let exporter = Exporter::new();
        let recorder = exporter.recorder();
        let parts = EngineParts { store, finder, config: config.engine, policies: Vec::new(), recorder };
        let (engine, _) = Engine::start(parts).await.unwrap();
        let relay = Arc::new(Relay::new(Arc::clone(&engine), config.info));
        let front = Arc::new(HttpFront::new(Arc::clone(&relay), exporter, config.proxy));
        tokio::spawn(upkeep::run(Arc::clone(&engine)));
        tokio::spawn(kukuri_http::serve(Arc::clone(&front), listener, kukuri_http::routes(Arc::clone(&front))));
        Self { engine, front, relay, url, address, _dir: dir, _index_dir: None }
    }

    /// Changes the configuration while the relay runs.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(&mut TestConfig)) {
        let mut config = TestConfig {
            engine: EngineConfig::clone(&self.engine.config()),
            info: Info::clone(&self.relay.info()),
            proxy: self.front.proxy().map(Arc::unwrap_or_clone),
        };
        change(&mut config);
        self.front.set_proxy(config.proxy);
        self.relay.set_info(config.info);
        self.engine.reconfigure(config.engine);
    }

    /// The number of WebSocket connections.
    pub(crate) fn connections(&self) -> usize {
        self.relay.connections()
    }

    /// Waits until all connections have ended.
    pub(crate) async fn wait_until_empty(&self, timeout: Duration) {
        self.relay.wait_until_empty(timeout).await;
    }

    /// Sends a GET over HTTP. Returns status, headers in lower case, and body.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        self.http("GET", path, headers).await
    }

    /// Like `get`, with another method.
    pub(crate) async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut raw = Raw::connect(self.address).await;
        raw.send(format!("{method} {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n{headers}\r\n")).await;
        let answer = String::from_utf8(raw.everything().await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("an answer of HTTP: {answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    /// The value of one metric of `/metrics`.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let (status, _, body) = self.get("/metrics", &[]).await;
        assert_eq!(status, 200);
        let line = body.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{name} in {body}")).parse().unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url).await
    }

    /// The ids that a new, unauthenticated client gets for these filters.
    pub(crate) async fn visible(&self, filters: &[Value]) -> Vec<String> {
        self.client().await.request("visible", filters).await
    }
}

/// A pseudo-random generator with a seed (xorshift).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Less than `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len() as u64) as usize]
    }
}
