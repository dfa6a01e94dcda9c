//! Any service can be listed, paused, resumed, rebuilt and verified: here a service that counts events, beside another one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use kukuri_domain::{EventId, Millis};
use kukuri_outbox::{
    Batch, Change, ConsumerSettings, Figure, Reached, Service, ServiceError, ServiceInfo, Services, Sink, SinkError,
    State, Target, Verification,
};
use kukuri_store::{
    StoreRules,
    conformance::build::{NOW, admitted, deletion, note},
    model::ModelStore,
    port::*,
};
use parking_lot::Mutex;
use proptest::prelude::*;

const COUNT: ServiceInfo = ServiceInfo { name: "count-v1", description: "counts events" };
const OTHER: ServiceInfo = ServiceInfo { name: "other-v1", description: "another service" };

fn clock() -> Millis {
    thread_local!(static START: tokio::time::Instant = tokio::time::Instant::now());
    Millis(NOW.0 + START.with(|start| tokio::time::Instant::now().saturating_duration_since(*start)).as_millis() as u64)
}

/// Counts upserts and deletes, with the ids that it has counted (O-7).
#[derive(Clone, Default)]
struct Counts {
    upserts: BTreeSet<EventId>,
    deletes: BTreeSet<EventId>,
    count: i64,
}

impl Counts {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Upsert(bound) => self.count += i64::from(self.upserts.insert(bound.event.id)),
            Change::Delete(id, _) if self.upserts.contains(id) => self.count -= i64::from(self.deletes.insert(*id)),
            Change::Delete(..) => {}
        }
    }
}

#[derive(Clone, Default)]
struct CountingSink {
    current: Arc<Mutex<Counts>>,
    next: Arc<Mutex<Counts>>,
}

#[async_trait]
impl Sink for CountingSink {
    async fn reached(&self) -> Result<Reached, SinkError> {
        Ok(Reached::NotKept)
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        tokio::task::yield_now().await;
        let mut counts = if target == Target::Current { self.current.lock() } else { self.next.lock() };
        batch.changes.iter().for_each(|change| counts.apply(change));
        Ok(())
    }

    async fn begin(&self) -> Result<(), SinkError> {
        *self.next.lock() = Counts::default();
        Ok(())
    }

    async fn switch(&self) -> Result<(), SinkError> {
        *self.current.lock() = self.next.lock().clone();
        Ok(())
    }
}

struct CountingService(ServiceInfo, CountingSink);

#[async_trait]
impl Service for CountingService {
    fn info(&self) -> ServiceInfo {
        self.0
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.1.clone())
    }

    fn consumer_settings(&self) -> ConsumerSettings {
        ConsumerSettings { batch_rows: 2, clock, ..ConsumerSettings::default() }
    }

    async fn figures(&self) -> Result<Vec<Figure>, ServiceError> {
        Ok(vec![Figure { name: "events", value: self.1.current.lock().count.unsigned_abs() }])
    }

    async fn verify(&self) -> Result<Verification, ServiceError> {
        match self.0 {
            COUNT => {
                let compared = self.1.current.lock().count.unsigned_abs();
                Ok(Verification { records: "events", compared, ..Verification::default() })
            }
            other => Err(ServiceError::NotVerifiable(other.name)),
        }
    }
}

async fn start(store: &Arc<ModelStore>, sink: &CountingSink) -> Services {
    let services: Vec<Arc<dyn Service>> =
        vec![Arc::new(CountingService(COUNT, sink.clone())), Arc::new(CountingService(OTHER, CountingSink::default()))];
    Services::start(services, &(Arc::clone(store) as Arc<dyn Store>)).await
}

async fn publish(store: &ModelStore, number: u32) {
    store.ingest(vec![admitted(&note(&number.to_string()).build())], NOW).await.unwrap();
}

fn state(services: &Services, name: &str) -> State {
    services.get(name).unwrap().status().borrow().state.clone()
}

#[tokio::test(start_paused = true)]
async fn services_are_controlled_by_name_one_at_a_time() {
    let store = Arc::new(ModelStore::new(StoreRules::default()));
    let sink = CountingSink::default();
    let services = start(&store, &sink).await;
    let names: Vec<&str> = services.iter().map(|service| service.info().name).collect();
    assert_eq!(names, ["count-v1", "other-v1"]);
    let count = services.get("count-v1").unwrap();
    count.pause().await.unwrap();
    assert_eq!((state(&services, "count-v1"), state(&services, "other-v1")), (State::Paused, State::Following));
    publish(&store, 1).await;
    assert_eq!(
        services.get("other-v1").unwrap().verify().await.unwrap_err().to_string(),
        "other-v1 has no verification"
    );
    let refused = count.verify().await.unwrap_err().to_string();
    assert_eq!(refused, "count-v1 does not follow the outbox: see kukuri-node service status count-v1");

    count.resume().await.unwrap();
    count.status().wait_for(|status| status.state == State::Following).await.unwrap();
    assert_eq!(count.verify().await.unwrap().compared, 1);
    sink.current.lock().count = 7;
    let builds = count.rebuild().await.unwrap();
    count.status().wait_for(|status| status.builds > builds).await.unwrap();
    assert_eq!(count.figures().await.unwrap(), [Figure { name: "events", value: 1 }]);
    services.stop().await;
    assert_eq!((state(&services, "count-v1"), state(&services, "other-v1")), (State::Stopped, State::Stopped));
}

#[tokio::test(start_paused = true)]
async fn unknown_name_is_refused_with_all_names() {
    let store = Arc::new(ModelStore::new(StoreRules::default()));
    let services = start(&store, &CountingSink::default()).await;
    let refused = services.get("index").err().unwrap().to_string();
    assert_eq!(refused, "no service is called `index`; the services are: count-v1, other-v1");
    services.stop().await;
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u32),
    Delete(u32),
    Pause,
    Resume,
    Restart,
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u32..40).prop_map(Step::Publish),
        2 => (0_u32..40).prop_map(Step::Delete),
        2 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => Just(Step::Restart),
        4 => (0_u16..3_000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..60)
}

async fn run(steps: Vec<Step>) {
    let store = Arc::new(ModelStore::new(StoreRules::default()));
    let sink = CountingSink::default();
    let mut services = start(&store, &sink).await;
    for step in steps {
        match step {
            Step::Publish(number) => publish(&store, number).await,
            Step::Delete(number) => {
                let target = note(&number.to_string()).build();
                store.ingest(vec![admitted(&deletion().of(&target).at(900).build())], NOW).await.unwrap();
            }
            Step::Pause => services.get("count-v1").unwrap().pause().await.unwrap(),
            Step::Resume => services.get("count-v1").unwrap().resume().await.unwrap(),
            Step::Restart => {
                services.stop().await;
                services = start(&store, &sink).await;
            }
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis.into())).await,
        }
    }
    let count = services.get("count-v1").unwrap();
    count.resume().await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let stats = store.stats().await.unwrap();
    assert_eq!(count.status().borrow().offset, stats.head);
    assert_eq!(sink.current.lock().count.unsigned_abs(), stats.effective, "nothing lost, nothing counted twice");
    services.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn pauses_and_restarts_neither_lose_nor_repeat_a_count(steps in steps()) {
        // O-6, O-7
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}
