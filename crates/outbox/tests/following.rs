//! A consumer over a store that lives, with a sink that fails and a process that dies: in the end the sink holds
//! exactly what is effective (O-6 to O-8).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kukuri_domain::{Event, EventId, Millis, TopicId, retention::Retention};
use kukuri_outbox::{Batch, Change, Consumer, ConsumerSettings, Handle, Reached, Sink, SinkError, State, Target};
use kukuri_store::{
    BoundEvent, Seq, SnapshotCursor, Store, StoreRules,
    conformance::build::{NOW, OTHER_TOPIC, admitted, article, deletion, later, note, profile},
    model::ModelStore,
};

/// Documents and how far they reach, changed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Copy {
    documents: BTreeMap<EventId, Vec<TopicId>>,
    reached: Option<Seq>,
}

/// A sink that survives crashes, and fails when it is told to.
struct TestSink {
    keeps_offset: bool,
    current: Mutex<Copy>,
    next: Mutex<Option<Copy>>,
    /// One in so many calls fails.
    fails: AtomicU32,
    calls: AtomicU32,
    poison: Mutex<Option<EventId>>,
}

impl TestSink {
    fn new(keeps_offset: bool) -> Arc<Self> {
        Arc::new(Self {
            keeps_offset,
            current: Mutex::default(),
            next: Mutex::default(),
            fails: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            poison: Mutex::default(),
        })
    }

    fn ids(&self) -> BTreeSet<EventId> {
        self.current.lock().unwrap().documents.keys().copied().collect()
    }

    async fn stumble(&self) -> Result<(), SinkError> {
        // Where a process may die.
        tokio::task::yield_now().await;
        let fails = self.fails.load(Ordering::Relaxed);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if fails > 0 && call % fails == fails - 1 { Err(SinkError::passing("it stumbled")) } else { Ok(()) }
    }
}

#[async_trait]
impl Sink for TestSink {
    async fn reached(&self) -> Result<Reached, SinkError> {
        if !self.keeps_offset {
            return Ok(Reached::NotKept);
        }
        Ok(self.current.lock().unwrap().reached.map_or(Reached::Nothing, Reached::Row))
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        self.stumble().await?;
        let poison = *self.poison.lock().unwrap();
        let is_poisoned = |change: &Change| matches!(change, Change::Upsert(bound) if Some(bound.event.id) == poison);
        if batch.changes.iter().any(is_poisoned) {
            return Err(SinkError::Poison("it can't be read".to_owned()));
        }
        {
            let (mut current, mut next) = (self.current.lock().unwrap(), self.next.lock().unwrap());
            let copy = match target {
                Target::Current => &mut *current,
                Target::Next => next.as_mut().expect("one was begun"),
            };
            for change in &batch.changes {
                match change {
                    Change::Upsert(BoundEvent { event, topics, .. }) => {
                        copy.documents.insert(event.id, topics.clone());
                    }
                    Change::Delete(id, _) => drop(copy.documents.remove(id)),
                }
            }
            copy.reached = batch.last.or(copy.reached);
        }
        self.stumble().await
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.stumble().await?;
        *self.next.lock().unwrap() = Some(Copy::default());
        Ok(())
    }

    async fn switch(&self) -> Result<(), SinkError> {
        self.stumble().await?;
        let next = self.next.lock().unwrap().take().expect("one was begun");
        *self.current.lock().unwrap() = next;
        Ok(())
    }
}

/// Goes on with the time of the tests, which does not wait.
fn clock() -> Millis {
    thread_local!(static START: tokio::time::Instant = tokio::time::Instant::now());
    Millis(NOW.0 + START.with(|start| tokio::time::Instant::now().saturating_duration_since(*start)).as_millis() as u64)
}

/// Long enough for a command to be heeded; it costs nothing.
const A_WHILE: Duration = Duration::from_secs(1);

fn settings() -> ConsumerSettings {
    ConsumerSettings { batch_rows: 4, clock, ..ConsumerSettings::default() }
}

fn start(store: &Arc<ModelStore>, sink: &Arc<TestSink>) -> Handle {
    Consumer::start("index-v1", Arc::clone(store) as _, Arc::clone(sink) as _, settings())
}

async fn effective(store: &ModelStore) -> BTreeSet<EventId> {
    let page = store.snapshot(SnapshotCursor::default(), usize::MAX).await.unwrap();
    page.events.iter().map(|bound| bound.event.id).collect()
}

async fn head(store: &ModelStore) -> Seq {
    store.stats().await.unwrap().head
}

async fn send(store: &ModelStore, events: &[Event]) {
    store.ingest(events.iter().map(admitted).collect(), NOW).await.unwrap();
}

fn store() -> Arc<ModelStore> {
    Arc::new(ModelStore::new(StoreRules::default()))
}

fn notes(count: u32) -> Vec<Event> {
    (0..count).map(|number| note(&number.to_string()).build()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_consumer_begins_with_a_snapshot_and_goes_on_with_rows() {
    // O-8
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(10)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(head(&store).await).await);
    assert_eq!(sink.ids(), effective(&store).await);

    let more = [note("two topics").tag(["t", OTHER_TOPIC]).build(), profile("me").build()];
    send(&store, &more).await;
    assert!(handle.caught_up(head(&store).await).await);
    assert_eq!(sink.ids(), effective(&store).await);
    assert_eq!(sink.current.lock().unwrap().documents[&more[0].id].len(), 2, "with all its topics");
    assert_eq!(store.offsets().await.unwrap()[0].last_seq, head(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_can_not_be_taken_stops_it_and_nothing_is_skipped_unless_it_is_said() {
    // O-6
    let (store, sink) = (store(), TestSink::new(false));
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(0)).await);
    let events = notes(9);
    *sink.poison.lock().unwrap() = Some(events[5].id);
    send(&store, &events).await;
    assert!(!handle.caught_up(Seq(9)).await);
    let status = handle.status().borrow().clone();
    assert_eq!(status.state, State::Stuck { at: Seq(6), why: "it can't be read".to_owned() });
    assert_eq!((status.offset, sink.ids().len()), (Seq(5), 5), "all before it is done");

    handle.skip(Seq(3)).await;
    tokio::time::sleep(A_WHILE).await;
    assert!(!handle.caught_up(Seq(9)).await, "not another row than the one it is stuck at");
    handle.skip(Seq(6)).await;
    tokio::time::sleep(A_WHILE).await;
    assert!(handle.caught_up(Seq(9)).await);
    assert_eq!(sink.ids().len(), 8);

    // Mended, a replay brings it in.
    *sink.poison.lock().unwrap() = None;
    handle.replay(Seq(2)).await;
    handle.status().wait_for(|status| status.offset == Seq(2)).await.unwrap();
    assert!(handle.caught_up(Seq(9)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_was_away_for_too_long_says_so_and_is_built_anew() {
    // O-8
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(3)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(3)).await);
    handle.pause().await;
    handle.status().wait_for(|status| status.state == State::Paused).await.unwrap();
    send(&store, &[article("a", "1").build(), deletion().of(&notes(1)[0]).build()]).await;
    let retention =
        Retention { outbox: kukuri_domain::retention::Keep::For(Duration::from_secs(1)), ..Retention::default() };
    let purged = store.purge(&retention, later(3_600)).await.unwrap();
    assert!(purged.outbox > 0, "{purged:?}");
    send(&store, &[note("after").build()]).await;
    handle.resume().await;
    let mut status = handle.status();
    status.wait_for(|status| matches!(status.state, State::TooFarBehind { .. })).await.unwrap();
    assert_eq!(sink.ids().len(), 3, "nothing was skipped");

    handle.rebuild().await;
    assert!(status.wait_for(|status| status.state == State::Following).await.is_ok());
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_instance_runs_and_another_takes_over_when_it_is_gone() {
    // O-6
    let (store, sink) = (store(), TestSink::new(true));
    let first = start(&store, &sink);
    assert!(first.caught_up(Seq(0)).await);
    let second = start(&store, &sink);
    second.status().wait_for(|status| status.state == State::Standby).await.unwrap();
    send(&store, &notes(2)).await;
    assert!(first.caught_up(Seq(2)).await);
    first.stop().await;
    send(&store, &[note("after").build()]).await;
    assert!(second.caught_up(Seq(3)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_runs_beside_what_is_in_use_and_follows_meanwhile() {
    // O-8
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(40)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(40)).await);
    sink.current.lock().unwrap().documents.clear();
    handle.rebuild().await;
    let mut status = handle.status();
    status.wait_for(|status| matches!(status.state, State::Rebuilding { .. })).await.unwrap();
    let late = note("meanwhile").build();
    send(&store, std::slice::from_ref(&late)).await;
    status.wait_for(|status| status.state == State::Following).await.unwrap();
    assert!(handle.caught_up(Seq(41)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

mod lives {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Note(u8),
        Article(u8, u8),
        Delete(u8),
        Fails(u32),
        Crash,
        Rest(u16),
        Replay(u8),
        Rebuild,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<u8>().prop_map(Step::Note),
            4 => (0_u8..4, any::<u8>()).prop_map(|(key, version)| Step::Article(key, version)),
            3 => any::<u8>().prop_map(Step::Delete),
            1 => (0_u32..6).prop_map(Step::Fails),
            2 => Just(Step::Crash),
            3 => (0_u16..400).prop_map(Step::Rest),
            1 => any::<u8>().prop_map(Step::Replay),
            1 => Just(Step::Rebuild),
        ];
        proptest::collection::vec(step, 1..60)
    }

    async fn live(steps: Vec<Step>, keeps_offset: bool) {
        let (store, sink) = (store(), TestSink::new(keeps_offset));
        let mut handle = start(&store, &sink);
        let mut sent: Vec<Event> = Vec::new();
        for step in steps {
            match step {
                Step::Note(number) => sent.push(note(&number.to_string()).tag(["t", OTHER_TOPIC]).build()),
                Step::Article(key, version) => {
                    sent.push(article(&key.to_string(), &version.to_string()).at(u64::from(version)).build());
                }
                Step::Delete(which) if !sent.is_empty() => {
                    let target = sent[usize::from(which) % sent.len()].clone();
                    sent.push(deletion().of(&target).at(900).build());
                }
                Step::Delete(_) => {}
                Step::Fails(fails) => sink.fails.store(fails, Ordering::Relaxed),
                Step::Crash => {
                    handle.abort().await;
                    // Whoever comes after waits until the lease of the dead is over.
                    handle = start(&store, &sink);
                }
                Step::Rest(millis) => tokio::time::sleep(Duration::from_millis(millis.into())).await,
                Step::Replay(back) => {
                    let offset = handle.status().borrow().offset.0;
                    handle.replay(Seq(offset.saturating_sub(back.into()))).await;
                }
                Step::Rebuild => handle.rebuild().await,
            }
            if let Some(event) = sent.last() {
                send(&store, std::slice::from_ref(event)).await;
            }
        }
        sink.fails.store(0, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(handle.caught_up(head(&store).await).await);
        assert_eq!(sink.ids(), effective(&store).await);
        handle.stop().await;
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn whatever_happens_the_sink_ends_with_what_is_effective(steps in steps(), keeps_offset in any::<bool>()) {
            // O-6, O-7, O-8
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            runtime.block_on(live(steps, keeps_offset));
        }
    }
}
