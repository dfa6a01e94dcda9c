//! A policy of another crate is asked on every side: connections, reads, and events of every origin.
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

use std::{net::IpAddr, sync::Arc};

use kukuri_domain::{Event, Filter, Millis, Origin, PublicKey, admission::Screened};
use kukuri_engine::{
    Client, ConnectRefused, Engine, EngineConfig, EngineParts, PublishRefused, ReadKind, ReadRefused,
    intake::Submitted,
    live::client_queue,
    policies::{Context, Policy, ReadRequest},
};
use kukuri_store::{
    StoreRules,
    conformance::build::{note, topic},
    model::ModelStore,
};
use parking_lot::Mutex;

/// The author that the policy refuses, and the sides it was asked on.
#[derive(Default)]
struct State {
    refused_author: Mutex<Option<PublicKey>>,
    asked: Mutex<Vec<&'static str>>,
}

struct TestPolicy(Arc<State>);

impl Policy for TestPolicy {
    fn check_connect(&self, _: &Context<'_>, ip: IpAddr) -> Result<(), ConnectRefused> {
        self.0.asked.lock().push("connect");
        if ip.is_loopback() { Ok(()) } else { Err(ConnectRefused::Denied) }
    }

    fn check_read(&self, _: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        self.0.asked.lock().push("read");
        if request.kind == ReadKind::History { Err(ReadRefused::NoSearch) } else { Ok(()) }
    }

    fn check_event_text(&self, _: &Context<'_>, _: &Client, _: usize) -> Result<(), PublishRefused> {
        self.0.asked.lock().push("publish_text");
        Ok(())
    }

    fn check_event(&self, _: &Context<'_>, event: &Event, _: &Origin) -> Result<(), PublishRefused> {
        self.0.asked.lock().push("publish");
        if *self.0.refused_author.lock() == Some(event.pubkey) { Err(PublishRefused::Denied) } else { Ok(()) }
    }

    fn check_new_event(&self, _: &Context<'_>, _: &Screened, _: Option<&Client>) -> Result<(), PublishRefused> {
        self.0.asked.lock().push("publish_new");
        Err(PublishRefused::Behind)
    }
}

async fn start() -> (Arc<Engine>, Arc<State>) {
    let state = Arc::new(State::default());
    let parts = EngineParts {
        store: Arc::new(ModelStore::new(StoreRules::default())),
        finder: None,
        config: EngineConfig::default(),
        policies: vec![Box::new(TestPolicy(Arc::clone(&state)))],
        recorder: Arc::new(metrics::NoopRecorder),
    };
    let (engine, _writer) = Engine::start(parts).await.unwrap();
    (engine, state)
}

fn client() -> Client {
    Client { ip: [127, 0, 0, 1].into(), keys: Arc::default(), connected_at: Millis(0) }
}

#[tokio::test]
async fn connections_and_reads_ask_every_policy() {
    let (engine, state) = start().await;
    assert_eq!(engine.check_connection([127, 0, 0, 1].into()), Ok(()));
    assert_eq!(engine.check_connection([192, 0, 2, 1].into()), Err(ConnectRefused::Denied));
    let filter = Filter::from_json(r##"{"#t":["kukuri:global"]}"##).unwrap();
    assert_eq!(engine.reads().check(&client(), ReadKind::Recent, std::slice::from_ref(&filter)), Ok(()));
    assert_eq!(engine.reads().check(&client(), ReadKind::History, &[filter]), Err(ReadRefused::NoSearch));
    assert_eq!(*state.asked.lock(), ["connect", "connect", "read", "read"]);
}

#[tokio::test]
async fn events_of_every_origin_ask_the_same_policies_in_the_same_order() {
    let (engine, state) = start().await;
    let (queue, _receiver) = client_queue();
    let event = note("asked about").build();
    let json = event.to_json();
    let text = std::str::from_utf8(&json).unwrap();
    let answer = engine.intake().submit_event(text, &client(), &queue).await;
    assert!(matches!(answer, Submitted::Answered(Err(PublishRefused::Behind))), "{answer:?}");
    assert_eq!(std::mem::take(&mut *state.asked.lock()), ["publish_text", "publish", "publish_new"]);

    let gossip = Origin::Gossip { peer: [7; 32], topic: topic() };
    for origin in [gossip, Origin::Sync { peer: [7; 32] }, Origin::Import, Origin::Node] {
        let answers = engine.intake().submit_batch(vec![(json.clone(), origin.clone())]).await;
        assert!(matches!(answers[..], [Err(PublishRefused::Behind)]), "{origin:?}: {answers:?}");
        assert_eq!(std::mem::take(&mut *state.asked.lock()), ["publish", "publish_new"], "{origin:?}");
        *state.refused_author.lock() = Some(event.pubkey);
        let answers = engine.intake().submit_batch(vec![(json.clone(), origin.clone())]).await;
        assert!(matches!(answers[..], [Err(PublishRefused::Denied)]), "{origin:?}: {answers:?}");
        assert_eq!(std::mem::take(&mut *state.asked.lock()), ["publish"], "{origin:?}");
        *state.refused_author.lock() = None;
    }
}
