//! The routes of the API over a store in memory.

pub(crate) mod person;
mod sse;

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode, request::Parts},
    response::Response,
};
use kukuri_api::{Api, Error, Gate, Identity, RouteCost, StreamPermit, StreamTurn, routes};
use kukuri_bootstrap::{Endpoints, Profile};
use kukuri_control::{
    Control, Database,
    request::{RequestLimits, Service},
};
use kukuri_domain::{
    Event, Kind, Millis, RelayUrls, TopicId, Visibility,
    topic::{TopicPatterns, TopicRules, TopicsMode},
};
use kukuri_search::{Document, DocumentChange, Finder, SearchIndex, document::DEFAULT_KINDS};
use kukuri_search_tantivy::TantivyIndex;
use kukuri_store::{
    Budget, Seq, StoreRules,
    conformance::{
        build::{NOW, TOPIC, admitted},
        faulty::FaultyStore,
    },
    model::ModelStore,
    port::*,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use self::person::key_of;
pub(crate) use self::sse::{Message, Stream};

thread_local!(static TIME: Cell<Millis> = const { Cell::new(NOW) });

/// The time of the test: each test thread has its own.
pub(crate) fn clock() -> Millis {
    TIME.get()
}

pub(crate) fn set_clock(now: Millis) {
    TIME.set(now);
}

/// Refuses every request with the error it is given.
pub(crate) struct TestGate {
    pub(crate) streams: Arc<Semaphore>,
    /// By the network that a stream's request names in [`NETWORK`].
    turns: Mutex<HashMap<String, Arc<StreamTurn>>>,
    /// Of every request.
    pub(crate) deadline: Mutex<Option<Instant>>,
    /// Memory that is reserved for each answer.
    pub(crate) answer_bytes: AtomicUsize,
    pub(crate) refusal: Mutex<Option<Error>>,
    /// Topics that members need to subscribe to, where the node serves members only. `None`: it serves everybody.
    pub(crate) members_topics: Mutex<Option<Vec<String>>>,
    /// Topics that the node does not take in.
    pub(crate) disabled: Mutex<Vec<String>>,
    pub(crate) costs: Mutex<Vec<RouteCost>>,
}

#[async_trait]
impl Gate for TestGate {
    async fn admit(&self, _request: &Parts, cost: RouteCost) -> Result<Identity, Error> {
        self.costs.lock().unwrap().push(cost);
        match self.refusal.lock().unwrap().clone() {
            Some(error) => Err(error),
            None => Ok(Identity::Anonymous),
        }
    }

    fn serves_members_only(&self) -> bool {
        self.members_topics.lock().unwrap().is_some()
    }

    fn is_for_everybody(&self, topic: Option<&TopicId>) -> bool {
        let topics = self.members_topics.lock().unwrap();
        let is_of_members =
            |topics: &Vec<String>| topic.is_none_or(|topic| topics.iter().any(|of| of == topic.as_str()));
        !topics.as_ref().is_some_and(is_of_members)
    }

    fn is_enabled(&self, topic: &TopicId) -> bool {
        !self.disabled.lock().unwrap().iter().any(|disabled| disabled == topic.as_str())
    }

    fn budget(&self, _request: &Parts) -> Budget {
        Budget { deadline: *self.deadline.lock().unwrap(), ..Budget::default() }
    }

    fn answer_bytes(&self, _request: &Parts) -> usize {
        self.answer_bytes.load(Relaxed)
    }

    fn admit_stream(&self, request: &Parts) -> Result<StreamPermit, Error> {
        let share = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| Error::TooManyStreams)?;
        let network = request.headers.get(NETWORK).map_or("", |network| network.to_str().unwrap());
        let turn = Arc::clone(self.turns.lock().unwrap().entry(network.to_owned()).or_default());
        Ok(StreamPermit { turn, share: Box::new(share) })
    }
}

/// A control database of its own. Its file stays open, its name goes: nothing is left of it.
pub(crate) async fn new_control() -> Arc<Control> {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open_sqlite(&directory.path().join("control.db")).await.unwrap();
    Arc::new(Control::open(database, NOW.seconds()).await.unwrap())
}

/// The control database of all nodes whose tests do not look at it.
static UNUSED_CONTROL: LazyLock<Arc<Control>> = LazyLock::new(|| {
    let open = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(new_control())
    };
    std::thread::spawn(open).join().unwrap()
});

/// The public URL of every node.
pub(crate) const PUBLIC_URL: &str = "wss://node.example";
/// The page about larger plans.
pub(crate) const UPGRADE_URL: &str = "https://node.example/plans";
/// The network of names of topics.
pub(crate) const NETWORK_ID: &str = "kukuri:test:";

pub(crate) struct Node {
    pub(crate) control: Arc<Control>,
    pub(crate) model: Arc<ModelStore>,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) router: Router,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) gate: Arc<TestGate>,
    pub(crate) visibility: Arc<Mutex<Visibility>>,
    /// The node's own key is that of author 7.
    pub(crate) profile: Arc<Mutex<Arc<Profile>>>,
    index: Option<(Arc<TantivyIndex>, TempDir)>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// Status and code of an error.
    pub(crate) fn code(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    /// The parameter to blame, if the answer is a 400.
    pub(crate) fn refused_parameter(&self) -> Option<String> {
        assert_eq!(self.code(), (400, "INVALID_REQUEST".to_owned()), "{self:?}");
        let error = &self.json()["error"];
        assert!(!error["message"].as_str().unwrap().is_empty());
        error["details"]["parameter"].as_str().map(str::to_owned)
    }
}

/// A header of a stream's request: the network of its client.
const NETWORK: &str = "x-test-network";
/// Permits for streams.
pub(crate) const STREAMS: usize = 3;

impl Node {
    /// Without search.
    pub(crate) fn new(mode: TopicsMode) -> Self {
        Self::with_parts(mode, None, Arc::clone(&UNUSED_CONTROL))
    }

    /// With a control database of its own.
    pub(crate) async fn with_people() -> Self {
        Self::with_parts(TopicsMode::Required, None, new_control().await)
    }

    /// With a control database of its own and an index, for members only: they subscribe to [`TOPIC`], and everybody has the others.
    pub(crate) async fn for_members() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let index = Arc::new(TantivyIndex::open(directory.path()).unwrap());
        let node = Self::with_parts(TopicsMode::Required, Some((index, directory)), new_control().await);
        *node.gate.members_topics.lock().unwrap() = Some(vec![TOPIC.to_owned()]);
        node
    }

    /// With an index that tests fill.
    pub(crate) fn searching(mode: TopicsMode) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let index = Arc::new(TantivyIndex::open(directory.path()).unwrap());
        Self::with_parts(mode, Some((index, directory)), Arc::clone(&UNUSED_CONTROL))
    }

    fn with_parts(mode: TopicsMode, index: Option<(Arc<TantivyIndex>, TempDir)>, control: Arc<Control>) -> Self {
        let model = Arc::new(ModelStore::new(StoreRules::default()));
        let store = Arc::new(FaultyStore::new(Arc::clone(&model) as _));
        let finder = index
            .as_ref()
            .map(|(index, _)| Finder::new(Arc::clone(index) as _, Arc::clone(&store) as _, DEFAULT_KINDS.map(Kind)));
        let gate = Arc::new(TestGate {
            streams: Arc::new(Semaphore::new(STREAMS)),
            turns: Mutex::default(),
            deadline: Mutex::default(),
            answer_bytes: AtomicUsize::new(usize::MAX),
            refusal: Mutex::default(),
            members_topics: Mutex::default(),
            disabled: Mutex::default(),
            costs: Mutex::default(),
        });
        let (stop, stopping) = watch::channel(false);
        let visibility = Arc::<Mutex<Visibility>>::default();
        let shown = Arc::clone(&visibility);
        let endpoints = Endpoints { http: "https://node.example".to_owned(), ws: PUBLIC_URL.to_owned(), p2p: None };
        let profile = Arc::new(Mutex::new(Arc::new(Profile::new(key_of(7), endpoints))));
        let told = Arc::clone(&profile);
        let router = routes(Api {
            store: Arc::clone(&store) as _,
            finder,
            topics: Box::new(move || TopicRules::new(mode, &[""; 0]).unwrap()),
            visibility: Box::new(move || shown.lock().unwrap().clone()),
            gate: Arc::clone(&gate) as _,
            control: Arc::clone(&control),
            relay_urls: Box::new(|| RelayUrls::new(&[PUBLIC_URL])),
            topic_network: NETWORK_ID.to_owned(),
            services: vec![Service::Relay, Service::Index],
            request_limits: RequestLimits { pending_per_person: 3, topics: 100 },
            bootstrap: Box::new(move || Arc::clone(&told.lock().unwrap())),
            forbidden_topics: TopicPatterns::new(&["kukuri:user:*"]).unwrap(),
            upgrade_url: Some(UPGRADE_URL.to_owned()),
            clock,
            stopping,
        });
        Self { control, model, store, router, stop, gate, visibility, profile, index }
    }

    /// Changes what the configuration says about the node.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Profile)) {
        change(Arc::make_mut(&mut self.profile.lock().unwrap()));
    }

    /// Makes the store fail from now on.
    pub(crate) fn lose_store(&self) {
        self.store.set_away(true);
    }

    pub(crate) async fn send(&self, events: &[Event]) {
        let admitted = events.iter().map(admitted).collect();
        self.store.ingest(admitted, clock()).await.unwrap();
    }

    pub(crate) async fn head(&self) -> Seq {
        self.store.stats().await.unwrap().head
    }

    /// A sequence as this node tells it.
    pub(crate) fn position(&self, seq: u64) -> String {
        format!("{}.{seq}", *self.store.watch_epoch().borrow())
    }

    /// Puts events into the index, and its offset to the end of the outbox.
    pub(crate) async fn index(&self, events: &[Event]) {
        let topics = |event: &Event| admitted(event).topics().to_vec();
        let put = |event: &Event| DocumentChange::Put(Box::new(Document::new(event, topics(event))));
        let index = &self.index.as_ref().unwrap().0;
        index.apply(events.iter().map(put).collect(), self.head().await.into()).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path)).await
    }

    pub(crate) async fn ask(&self, request: axum::http::request::Builder) -> Answer {
        self.send_request(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn send_request(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Answer { status, headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    pub(crate) async fn respond(&self, request: axum::http::request::Builder) -> Response {
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Opens a stream of changes.
    pub(crate) async fn stream(&self, topic: &str, after: u64) -> Result<Stream, Answer> {
        self.stream_from("", topic, after).await
    }

    /// Opens a stream of changes for a client of this network.
    pub(crate) async fn stream_from(&self, network: &str, topic: &str, after: u64) -> Result<Stream, Answer> {
        let path = format!("/v1/topics/{topic}/changes?after={}", self.position(after));
        let request = Request::get(path).header("accept", "text/event-stream").header(NETWORK, network);
        let response = self.respond(request).await;
        if response.status() == StatusCode::OK {
            return Ok(Stream::new(response.into_body()));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Err(Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() })
    }
}

/// The sequence of a position.
pub(crate) fn seq_of(position: &Value) -> u64 {
    sse::seq_of(position.as_str().unwrap())
}

/// A text, percent-encoded.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
