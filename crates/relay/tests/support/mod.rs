//! A relay on a real store and a real port, and clients that speak to it.
//!
//! `client`: one that keeps the rules of WebSocket. `raw`: one that does not have to. `events`: what they send.
#![allow(dead_code, unused_imports, reason = "not every test file needs all of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod client;
mod events;
mod raw;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use kukuri_domain::{
    Admission, Kind,
    topic::{TopicRules, TopicsMode},
    vanish::RelayUrls,
};
use kukuri_outbox::{Consumer, ConsumerSettings, Handle};
use kukuri_relay::{Relay, RelayConfig, http, server, upkeep};
use kukuri_search::{Finder, IndexSink, SearchIndex, TantivyIndex, document::DEFAULT_KINDS, following::CONSUMER};
use kukuri_store::{Seq, Store};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore, Sync};
use serde_json::Value;

pub(crate) use client::{Client, Ended};
pub(crate) use events::{Draft, TOPIC, as_json, draft, id_of, key_of, millis, note, now, topic};
pub(crate) use raw::{Raw, frame, masked};

/// Longer than anything takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A relay that runs until it is dropped.
pub(crate) struct TestRelay {
    pub(crate) relay: Arc<Relay>,
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
    _index_dir: Option<tempfile::TempDir>,
}

impl TestRelay {
    pub(crate) async fn start(mode: TopicsMode) -> Self {
        Self::start_with(mode, |_| {}).await
    }

    /// A relay without rate limits, changed as a test needs it.
    pub(crate) async fn start_with(mode: TopicsMode, change: impl FnOnce(&mut RelayConfig)) -> Self {
        Self::start_on(LmdbOptions::default(), mode, change).await
    }

    /// The same on a store with other options. No test looks at durability.
    pub(crate) async fn start_on(
        options: LmdbOptions,
        mode: TopicsMode,
        change: impl FnOnce(&mut RelayConfig),
    ) -> Self {
        Self::start_with_finder(options, |_| None, mode, change).await
    }

    /// The same with an index, and what keeps it up to date.
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
        change: impl FnOnce(&mut RelayConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { sync: Sync::Off, reserve: 1 << 20, ..options };
        let store: Arc<dyn Store> = Arc::new(LmdbStore::open(dir.path(), options).unwrap());
        let finder = finder(&store);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("ws://{address}");
        let mut config = RelayConfig {
            admission: Admission {
                topics: TopicRules::new(mode, &[] as &[&str]).unwrap(),
                relay_urls: RelayUrls::new(&[&url]),
                ..Admission::default()
            },
            ..RelayConfig::default()
        };
        change(&mut config);
        let (relay, _) = Relay::start(store, finder, config).await.unwrap();
        tokio::spawn(upkeep::keep_in_order(Arc::clone(&relay)));
        tokio::spawn(server::serve(Arc::clone(&relay), listener, http::routes(Arc::clone(&relay))));
        Self { relay, url, address, _dir: dir, _index_dir: None }
    }

    /// Changes what is set while it runs.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(&mut RelayConfig)) {
        let mut config = RelayConfig::clone(&self.relay.config());
        change(&mut config);
        self.relay.reconfigure(config);
    }

    /// Asks over HTTP: status, headers in lower case, and body.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        self.http("GET", path, headers).await
    }

    /// The same with another method.
    pub(crate) async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut raw = Raw::connect(self.address).await;
        raw.send(format!("{method} {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n{headers}\r\n")).await;
        let answer = String::from_utf8(raw.everything().await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("an answer of HTTP: {answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    /// One figure of `/metrics`.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let (status, _, body) = self.get("/metrics", &[]).await;
        assert_eq!(status, 200);
        let line = body.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{name} in {body}")).parse().unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url).await
    }

    /// What a stranger sees: the ids that answer these filters.
    pub(crate) async fn visible(&self, filters: &[Value]) -> Vec<String> {
        self.client().await.request("visible", filters).await
    }
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Numbers that look random and are the same for the same seed (xorshift).
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
