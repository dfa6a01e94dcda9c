//! Any path and query of a request: every endpoint, with its parameters and cursors, on a small store.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, Uri, request::Parts},
};
use kukuri_bootstrap::{Endpoints, Profile};
use kukuri_control::{
    Control, Database,
    request::{RequestLimits, Service},
};
use kukuri_domain::{
    PublicKey, RelayUrls, Visibility,
    topic::{TopicRules, TopicsMode},
};
use kukuri_store::{
    Events as _, StoreRules,
    conformance::build::{NOW, TOPIC, admitted, article, deletion, note},
    model::ModelStore,
};
use serde_json::Value;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};
use tower::ServiceExt;

use crate::{Api, Error, Gate, Identity, RouteCost, StreamPermit, routes};

const RELAY: &str = "wss://node.example";
const MAX_ANSWER_BYTES: usize = 4 << 20;

struct OpenGate;

#[async_trait]
impl Gate for OpenGate {
    async fn admit(&self, _: &Parts, _: RouteCost) -> Result<Identity, Error> {
        Ok(Identity::Anonymous)
    }

    fn admit_stream(&self, _: &Parts) -> Result<StreamPermit, Error> {
        Ok(StreamPermit { turn: Arc::default(), share: Box::new(()) })
    }
}

static ROUTES: LazyLock<Mutex<(Runtime, Router)>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let store = Arc::new(ModelStore::new(StoreRules::default()));
    let (first, second) = (note("first").build(), note("second").at(1).build());
    let events = [&first, &second, &article("a", "third").build(), &deletion().of(&first).build()];
    runtime.block_on(store.ingest(events.map(admitted).to_vec(), NOW)).expect("a batch");
    let control = runtime.block_on(async {
        // The file stays open; its name may go.
        let directory = tempfile::tempdir().expect("a directory");
        let database = Database::open_sqlite(&directory.path().join("control.db")).await.expect("a database");
        Arc::new(Control::open(database, NOW.seconds()).await.expect("its secrets"))
    });
    let (stopping, _) = watch::channel(false);
    let api = Api {
        store,
        finder: None,
        topics: Box::new(|| TopicRules::new(TopicsMode::Global, &[""; 0]).expect("nothing is reserved")),
        visibility: Box::new(Visibility::default),
        gate: Arc::new(OpenGate),
        control,
        relay_urls: Box::new(|| RelayUrls::new(&[RELAY])),
        topic_network: String::new(),
        services: Service::ALL.to_vec(),
        request_limits: RequestLimits::default(),
        bootstrap: Box::new(|| Arc::new(Profile::new(PublicKey::from_bytes([1; 32]), Endpoints::default()))),
        forbidden_topics: Default::default(),
        upgrade_url: None,
        clock: || NOW,
        stopping: stopping.subscribe(),
    };
    Mutex::new((runtime, routes(api)))
});

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // `{topic}` stands for a topic that has events.
    let Ok(uri) = text.replace("{topic}", TOPIC).parse::<Uri>() else { return };
    // Other paths are not the API's.
    if !uri.path().starts_with("/v1/") {
        return;
    }
    let Ok(request) = Request::get(uri).body(Body::empty()) else { return };
    let (runtime, routes) = &*ROUTES.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, body) = runtime.block_on(async {
        let Ok(answer) = routes.clone().oneshot(request).await;
        let status = answer.status();
        (status, to_bytes(answer.into_body(), MAX_ANSWER_BYTES).await.expect("a bounded answer"))
    });
    match status {
        StatusCode::OK => {
            let _: Value = serde_json::from_slice(&body).expect("an answer is JSON");
        }
        StatusCode::BAD_REQUEST
        | StatusCode::UNAUTHORIZED
        | StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::GONE
        | StatusCode::SERVICE_UNAVAILABLE => check_error(text, &body),
        other => panic!("{other} for {text}"),
    }
}

/// The message does not repeat at length what was sent (U-1).
fn check_error(text: &str, body: &[u8]) {
    let body: Value = serde_json::from_slice(body).expect("an error is JSON");
    let message = body["error"]["message"].as_str().expect("an error has a message");
    assert!(!message.is_empty() && message.len() < 500, "{message} for {text}");
    assert!(!message.contains(char::is_control), "{message:?} for {text}");
}
