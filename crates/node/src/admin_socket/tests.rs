//! Every service takes the same commands over the socket: a service that counts events runs beside the search index.
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kukuri_domain::EventId;
use kukuri_engine::{Engine, EngineParts};
use kukuri_http::Exporter;
use kukuri_outbox::{
    Batch, Change, Figure, Reached, Service, ServiceError, ServiceInfo, Services, Sink, SinkError, Target,
};
use nostr_sdk::{EventBuilder, Keys, Tag};
use serde::de::DeserializeOwned;

use super::{
    AdminContext, AdminRequest, LineOutcome,
    client::AdminClient,
    server,
    service::{ServiceReport, ServiceRequest, VerifyReport},
};
use crate::{
    config::Settings,
    wiring::{
        self, search_index,
        services::{REGISTRY, ServiceParts},
        stores,
    },
};

const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";

/// A service that counts the effective events, each once (O-7).
#[derive(Clone, Default)]
struct CountingService {
    current: Arc<Mutex<BTreeSet<EventId>>>,
    next: Arc<Mutex<BTreeSet<EventId>>>,
}

#[async_trait]
impl Sink for CountingService {
    async fn reached(&self) -> Result<Reached, SinkError> {
        Ok(Reached::NotKept)
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        let counted = if target == Target::Current { &self.current } else { &self.next };
        let mut counted = counted.lock().unwrap();
        for change in &batch.changes {
            match change {
                Change::Upsert(bound) => drop(counted.insert(bound.event.id)),
                Change::Delete(id, _) => drop(counted.remove(id)),
            }
        }
        Ok(())
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.next.lock().unwrap().clear();
        Ok(())
    }

    async fn switch(&self) -> Result<(), SinkError> {
        *self.current.lock().unwrap() = std::mem::take(&mut self.next.lock().unwrap());
        Ok(())
    }
}

#[async_trait]
impl Service for CountingService {
    fn info(&self) -> ServiceInfo {
        ServiceInfo { name: "count-v1", description: "counts events" }
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    async fn figures(&self) -> Result<Vec<Figure>, ServiceError> {
        Ok(vec![Figure { name: "events", value: self.current.lock().unwrap().len() as u64 }])
    }
}

async fn send<R: DeserializeOwned>(client: &mut AdminClient, request: fn(String) -> ServiceRequest) -> R {
    client.ask(AdminRequest::Service(request("count-v1".to_owned()))).await.unwrap()
}

async fn status(client: &mut AdminClient) -> ServiceReport {
    send(client, ServiceRequest::Status).await
}

async fn wait_until(client: &mut AdminClient, is_met: impl Fn(&ServiceReport) -> bool) -> ServiceReport {
    for _ in 0..600 {
        let report = status(client).await;
        if is_met(&report) {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", status(client).await);
}

async fn import(client: &mut AdminClient, count: u32) {
    let keys = Keys::generate();
    let event = |number| EventBuilder::text_note(format!("{number}")).tag(Tag::hashtag(TOPIC)).sign_with_keys(&keys);
    let lines = (0..count).map(|number| serde_json::to_string(&event(number).unwrap()).unwrap()).collect();
    client.ask::<Vec<LineOutcome>>(AdminRequest::Import { lines }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_takes_the_same_commands() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { data: directory.path().to_owned(), ..Settings::default() };
    let store = stores::for_serving(&settings).await.unwrap();
    let parts = EngineParts {
        store: Arc::clone(&store),
        finder: None,
        config: wiring::engine_config(&settings, "ws://127.0.0.1:7777").unwrap(),
        policies: Vec::new(),
        recorder: Exporter::new().recorder(),
    };
    let (engine, _writer) = Engine::start(parts).await.unwrap();
    let index = search_index::open(&settings, settings.postgres.migrate).await.unwrap();
    let parts = ServiceParts { settings: &settings, store: Arc::clone(&store), index };
    let index = (REGISTRY[0].open)(&parts).unwrap();
    let counting = CountingService::default();
    let services = Arc::new(Services::start(vec![index, Arc::new(counting.clone())], &store).await);
    let context = AdminContext { engine, services: Arc::clone(&services), bridge: None };
    tokio::spawn(server::serve(server::listen(directory.path()).unwrap(), Arc::new(context)));
    let mut client = AdminClient::connect(directory.path()).await.unwrap();

    let reports: Vec<ServiceReport> = client.ask(AdminRequest::Service(ServiceRequest::List)).await.unwrap();
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names, ["index-v1", "count-v1"]);

    let enable = AdminRequest::Topic { topic: TOPIC.to_owned(), enabled: Some(true), policy: None };
    client.ask::<()>(enable).await.unwrap();
    import(&mut client, 3).await;
    wait_until(&mut client, |report| report.figures["events"] == 3).await;
    send::<()>(&mut client, ServiceRequest::Pause).await;
    import(&mut client, 2).await;
    let paused = wait_until(&mut client, |report| report.backlog == 2).await;
    assert_eq!((paused.state.as_str(), paused.figures["events"]), ("paused", 3));
    assert!(paused.needs_operator && paused.paused_since.is_some());
    let verify = AdminRequest::Service(ServiceRequest::Verify("count-v1".to_owned()));
    assert!(client.ask::<VerifyReport>(verify).await.is_err());
    send::<()>(&mut client, ServiceRequest::Resume).await;
    let resumed = wait_until(&mut client, |report| report.backlog == 0).await;
    assert_eq!((resumed.figures["events"], resumed.paused_since), (5, None));

    counting.current.lock().unwrap().clear();
    let before: u64 = send(&mut client, ServiceRequest::Rebuild).await;
    let rebuilt = wait_until(&mut client, |report| report.rebuilds > before).await;
    assert_eq!(rebuilt.figures["events"], 5);
    let pause = AdminRequest::Service(ServiceRequest::Pause("count".to_owned()));
    let unknown = client.ask::<()>(pause).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no service is called `count`; the services are: index-v1, count-v1");
    services.stop().await;
}
