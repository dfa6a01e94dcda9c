//! A relay on a real store and a real port, and clients that speak to it.
#![allow(dead_code, reason = "not every test file needs all of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{SinkExt, StreamExt};
use kukuri_domain::{
    Admission, Event, EventId, Kind, PublicKey, Signature, Timestamp,
    topic::{TopicRules, TopicsMode},
    vanish::RelayUrls,
};
use kukuri_relay::{Relay, RelayConfig, http, server, upkeep};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore, Sync};
use secp256k1::{Keypair, SecretKey, schnorr};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, tungstenite::Message};

pub(crate) const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";

/// A relay that runs until it is dropped.
pub(crate) struct TestRelay {
    pub(crate) relay: Arc<Relay>,
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl TestRelay {
    pub(crate) async fn start(mode: TopicsMode) -> Self {
        Self::start_with(mode, |_| {}).await
    }

    /// A relay without rate limits, changed as a test needs it.
    pub(crate) async fn start_with(mode: TopicsMode, change: impl FnOnce(&mut RelayConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { sync: Sync::Off, reserve: 1 << 20, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
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
        let (relay, _) = Relay::start(Arc::new(store), config).await.unwrap();
        tokio::spawn(upkeep::keep_in_order(Arc::clone(&relay)));
        tokio::spawn(server::serve(Arc::clone(&relay), listener, http::routes(Arc::clone(&relay))));
        Self { relay, url, address, _dir: dir }
    }

    /// Changes what is set while it runs.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(&mut RelayConfig)) {
        let mut config = RelayConfig::clone(&self.relay.config());
        change(&mut config);
        self.relay.reconfigure(config);
    }

    /// Asks over HTTP: status, headers and body.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
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
}

/// A client that says and hears JSON.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) challenge: String,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> Self {
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let mut client = Self { socket, challenge: String::new() };
        let hello = client.hear().await;
        assert_eq!(hello[0], "AUTH");
        client.challenge = hello[1].as_str().unwrap().to_owned();
        client
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.say_text(message.to_string()).await;
    }

    pub(crate) async fn say_text(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// The next message, as JSON. Ten seconds are for a busy machine.
    pub(crate) async fn hear(&mut self) -> Value {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(10), self.socket.next());
            match next.await.expect("an answer").expect("an open connection").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends an event and returns its answer; other messages are passed over.
    pub(crate) async fn publish(&mut self, event: &Event) -> (bool, String) {
        self.say(json!(["EVENT", as_json(event)])).await;
        loop {
            let heard = self.hear().await;
            if heard[0] == "OK" && heard[1] == event.id.to_string() {
                return (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned());
            }
        }
    }

    /// Subscribes and returns the ids of the stored events.
    pub(crate) async fn request(&mut self, id: &str, filters: &[Value]) -> Vec<String> {
        let mut message = vec![json!("REQ"), json!(id)];
        message.extend_from_slice(filters);
        self.say(Value::from(message)).await;
        let mut ids = Vec::new();
        loop {
            let heard = self.hear().await;
            match heard[0].as_str().unwrap() {
                "EVENT" if heard[1] == id => ids.push(heard[2]["id"].as_str().unwrap().to_owned()),
                "EOSE" if heard[1] == id => return ids,
                other => panic!("{other}: {heard}"),
            }
        }
    }

    pub(crate) async fn authenticate(&mut self, author: u8, url: &str) -> (bool, String) {
        let event = draft(author, 22242).tag(["relay", url]).tag(["challenge", &self.challenge.clone()]).sign();
        self.say(json!(["AUTH", as_json(&event)])).await;
        let heard = self.hear().await;
        (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned())
    }
}

pub(crate) fn as_json(event: &Event) -> Value {
    serde_json::from_slice(&event.to_json()).unwrap()
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// An event that is being written.
#[derive(Clone)]
pub(crate) struct Draft {
    author: u8,
    kind: u16,
    created_at: u64,
    tags: Vec<Vec<String>>,
    content: String,
}

/// An event of this kind, without tags, made now.
pub(crate) fn draft(author: u8, kind: u16) -> Draft {
    Draft { author, kind, created_at: now(), tags: Vec::new(), content: String::new() }
}

/// A note in the topic.
pub(crate) fn note(author: u8, content: &str) -> Draft {
    draft(author, 1).tag(["t", TOPIC]).content(content)
}

pub(crate) fn key_of(author: u8) -> String {
    let (key, _) = keypair(author).x_only_public_key();
    PublicKey::from_bytes(key.to_byte_array()).to_string()
}

fn keypair(author: u8) -> Keypair {
    Keypair::from_secret_key(&SecretKey::from_secret_bytes([author; 32]).unwrap())
}

impl Draft {
    pub(crate) fn tag<const N: usize>(mut self, items: [&str; N]) -> Self {
        self.tags.push(items.iter().map(ToString::to_string).collect());
        self
    }

    pub(crate) fn content(mut self, content: &str) -> Self {
        self.content = content.to_owned();
        self
    }

    pub(crate) fn at(mut self, created_at: u64) -> Self {
        self.created_at = created_at;
        self
    }

    pub(crate) fn sign(self) -> Event {
        let pair = keypair(self.author);
        let (key, _) = pair.x_only_public_key();
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: PublicKey::from_bytes(key.to_byte_array()),
            created_at: Timestamp(self.created_at),
            kind: Kind(self.kind),
            tags: self.tags.into_iter().collect(),
            content: self.content,
            sig: Signature::from_bytes([0; 64]),
        };
        event.id = event.true_id();
        let signature = schnorr::sign_no_aux_rand(event.id.as_bytes(), &pair);
        event.sig = Signature::from_bytes(*signature.as_byte_array());
        event
    }
}
