//! A node's routes over a store in memory, and what tests ask of them.
#![allow(dead_code, unused_imports, reason = "no test file needs all of it")]

mod sse;
mod store;

use std::{
    cell::Cell,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode, request::Parts},
    response::Response,
};
use kukuri_api::{Act, Api, Gate, Refused, routes};
use kukuri_domain::{
    Event, Kind, Millis,
    topic::{TopicRules, TopicsMode},
};
use kukuri_search::{Change, Document, Finder, SearchIndex, TantivyIndex, document::DEFAULT_KINDS};
use kukuri_store::{
    Seq, Store,
    conformance::build::{NOW, admitted},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

pub(crate) use self::{
    sse::{Message, Stream},
    store::TestStore,
};

thread_local!(static TIME: Cell<Millis> = const { Cell::new(NOW) });

/// The time of the tests; each has its own.
pub(crate) fn clock() -> Millis {
    TIME.get()
}

pub(crate) fn set_clock(now: Millis) {
    TIME.set(now);
}

/// Refuses what it is told to.
#[derive(Default)]
pub(crate) struct TestGate {
    pub(crate) refused: Mutex<Option<Refused>>,
    pub(crate) asked: Mutex<Vec<Act>>,
}

impl Gate for TestGate {
    fn admit(&self, _request: &Parts, act: Act) -> Result<(), Refused> {
        self.asked.lock().unwrap().push(act);
        self.refused.lock().unwrap().map_or(Ok(()), Err)
    }
}

pub(crate) struct Node {
    pub(crate) store: Arc<TestStore>,
    pub(crate) router: Router,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) gate: Arc<TestGate>,
    index: Option<(Arc<TantivyIndex>, TempDir)>,
}

/// What came back.
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

    pub(crate) fn code(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

/// Places for streams in tests.
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
        let store = Arc::new(TestStore::new());
        let finder = index
            .as_ref()
            .map(|(index, _)| Finder::new(Arc::clone(index) as _, Arc::clone(&store) as _, DEFAULT_KINDS.map(Kind)));
        let gate = Arc::new(TestGate::default());
        let (stop, stopping) = watch::channel(false);
        let router = routes(Api {
            store: Arc::clone(&store) as _,
            finder,
            topics: Box::new(move || TopicRules::new(mode, &[""; 0]).unwrap()),
            gate: Some(Arc::clone(&gate) as _),
            clock,
            streams: Arc::new(Semaphore::new(STREAMS)),
            stopping,
        });
        Self { store, router, stop, gate, index }
    }

    /// The store does not answer any more.
    pub(crate) fn lose_store(&self) {
        self.store.is_away.store(true, Relaxed);
    }

    pub(crate) async fn send(&self, events: &[Event]) {
        let admitted = events.iter().map(admitted).collect();
        self.store.ingest(admitted, clock()).await.unwrap();
    }

    pub(crate) async fn head(&self) -> Seq {
        self.store.stats().await.unwrap().head
    }

    /// Puts events into the index, which then has followed all there is.
    pub(crate) async fn index(&self, events: &[Event]) {
        let topics = |event: &Event| admitted(event).topics().to_vec();
        let put = |event: &Event| Change::Put(Box::new(Document::new(event, topics(event))));
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

/// A text as it stands in a query string.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
