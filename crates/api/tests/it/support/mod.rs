//! The routes of the API over a store in memory.

mod sse;

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode, request::Parts},
    response::Response,
};
use kukuri_api::{Api, Error, Gate, Identity, RouteCost, routes};
use kukuri_domain::{
    Event, Kind, Millis, Visibility,
    topic::{TopicRules, TopicsMode},
};
use kukuri_search::{Document, DocumentChange, Finder, SearchIndex, document::DEFAULT_KINDS};
use kukuri_search_tantivy::TantivyIndex;
use kukuri_store::{
    Seq, StoreRules,
    conformance::{
        build::{NOW, admitted},
        faulty::FaultyStore,
    },
    model::ModelStore,
    port::*,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

pub(crate) use self::sse::{Message, Stream};

thread_local!(static TIME: Cell<Millis> = const { Cell::new(NOW) });

/// The time of the test: each test thread has its own.
pub(crate) fn clock() -> Millis {
    TIME.get()
}

pub(crate) fn set_clock(now: Millis) {
    TIME.set(now);
}

/// Refuses every request with the error it is given. As in a node, a static route never requires authentication.
#[derive(Default)]
pub(crate) struct TestGate {
    pub(crate) refusal: Mutex<Option<Error>>,
    pub(crate) costs: Mutex<Vec<RouteCost>>,
}

#[async_trait]
impl Gate for TestGate {
    async fn admit(&self, _request: &Parts, cost: RouteCost) -> Result<Identity, Error> {
        self.costs.lock().unwrap().push(cost);
        match self.refusal.lock().unwrap().clone() {
            Some(error) if cost != RouteCost::Static || error != Error::AuthRequired => Err(error),
            _ => Ok(Identity::Anonymous),
        }
    }
}

pub(crate) struct Node {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) router: Router,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) gate: Arc<TestGate>,
    pub(crate) visibility: Arc<Mutex<Visibility>>,
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

/// Permits for streams.
pub(crate) const STREAMS: usize = 3;

impl Node {
    /// Without search.
    pub(crate) fn new(mode: TopicsMode) -> Self {
        Self::with_index(mode, None)
    }

    /// With an index that tests fill.
    pub(crate) fn searching(mode: TopicsMode) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let index = Arc::new(TantivyIndex::open(directory.path()).unwrap());
        Self::with_index(mode, Some((index, directory)))
    }

    fn with_index(mode: TopicsMode, index: Option<(Arc<TantivyIndex>, TempDir)>) -> Self {
        let store = Arc::new(FaultyStore::new(Arc::new(ModelStore::new(StoreRules::default()))));
        let finder = index
            .as_ref()
            .map(|(index, _)| Finder::new(Arc::clone(index) as _, Arc::clone(&store) as _, DEFAULT_KINDS.map(Kind)));
        let gate = Arc::new(TestGate::default());
        let (stop, stopping) = watch::channel(false);
        let visibility = Arc::<Mutex<Visibility>>::default();
        let shown = Arc::clone(&visibility);
        let router = routes(Api {
            store: Arc::clone(&store) as _,
            finder,
            topics: Box::new(move || TopicRules::new(mode, &[""; 0]).unwrap()),
            visibility: Box::new(move || shown.lock().unwrap().clone()),
            gate: Arc::clone(&gate) as _,
            clock,
            streams: Arc::new(Semaphore::new(STREAMS)),
            stopping,
        });
        Self { store, router, stop, gate, visibility, index }
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
        let response = self.respond(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub(crate) async fn respond(&self, request: axum::http::request::Builder) -> Response {
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Opens a stream of changes.
    pub(crate) async fn stream(&self, topic: &str, after: u64) -> Result<Stream, Answer> {
        let path = format!("/v1/topics/{topic}/changes?after={after}");
        let response = self.respond(Request::get(path).header("accept", "text/event-stream")).await;
        if response.status() == StatusCode::OK {
            return Ok(Stream::new(response.into_body()));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        Err(Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() })
    }
}

/// A text, percent-encoded.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
