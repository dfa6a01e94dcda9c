//! A consumer over a changing store, with a failing sink, crashes and pauses: in the end the sink holds exactly the effective
//! events (O-6 to O-8).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kukuri_domain::{Event, EventId, Millis, TopicId, retention::Retention};
use kukuri_outbox::{Batch, Change, Consumer, ConsumerSettings, Handle, Reached, Sink, SinkError, State, Target};
use kukuri_store::{
    BoundEvent, Seq, SnapshotCursor, StoreRules,
    conformance::build::{NOW, OTHER_TOPIC, admitted, article, deletion, later, note, profile},
    model::ModelStore,
    port::*,
};
use parking_lot::Mutex;

/// Documents and position, changed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Copy {
    documents: BTreeMap<EventId, Vec<TopicId>>,
    reached: Option<Seq>,
}

/// A sink whose data survives crashes, and that fails on demand.
struct TestSink {
    keeps_position: bool,
    current: Mutex<Copy>,
    next: Mutex<Option<Copy>>,
    /// One in this many calls fails; 0: none.
    fail_every: AtomicU32,
    calls: AtomicU32,
    poison: Mutex<Option<EventId>>,
}

impl TestSink {
    fn new(keeps_position: bool) -> Arc<Self> {
        Arc::new(Self {
            keeps_position,
            current: Mutex::default(),
            next: Mutex::default(),
            fail_every: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            poison: Mutex::default(),
        })
    }

    fn ids(&self) -> BTreeSet<EventId> {
        self.current.lock().documents.keys().copied().collect()
    }

    async fn fail_sometimes(&self) -> Result<(), SinkError> {
        // A point where an abort can happen.
        tokio::task::yield_now().await;
        let fail_every = self.fail_every.load(Ordering::Relaxed);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if fail_every > 0 && call % fail_every == fail_every - 1 {
            Err(SinkError::transient("a failure"))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl Sink for TestSink {
    async fn reached(&self) -> Result<Reached, SinkError> {
        if !self.keeps_position {
            return Ok(Reached::NotKept);
        }
        Ok(self.current.lock().reached.map_or(Reached::Nothing, Reached::Row))
    }

    async fn apply(&self, target: Target, batch: &Batch) -> Result<(), SinkError> {
        self.fail_sometimes().await?;
        let poison = *self.poison.lock();
        let is_poisoned = |change: &Change| matches!(change, Change::Upsert(bound) if Some(bound.event.id) == poison);
        if batch.changes.iter().any(is_poisoned) {
            return Err(SinkError::Poison("unreadable".to_owned()));
        }
        {
            let (mut current, mut next) = (self.current.lock(), self.next.lock());
            let copy = match target {
                Target::Current => &mut *current,
                Target::Next => next.as_mut().expect("a copy was begun"),
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
        self.fail_sometimes().await
    }

    async fn begin(&self) -> Result<(), SinkError> {
        self.fail_sometimes().await?;
        *self.next.lock() = Some(Copy::default());
        Ok(())
    }

    async fn switch(&self) -> Result<(), SinkError> {
        self.fail_sometimes().await?;
        let next = self.next.lock().take().expect("a copy was begun");
        *self.current.lock() = next;
        Ok(())
    }
}

/// The simulated time.
fn clock() -> Millis {
    thread_local!(static START: tokio::time::Instant = tokio::time::Instant::now());
    Millis(NOW.0 + START.with(|start| tokio::time::Instant::now().saturating_duration_since(*start)).as_millis() as u64)
}

/// Longer than a command takes. Time is simulated.
const COMMAND_TIME: Duration = Duration::from_secs(1);

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
async fn consumer_of_a_store_that_went_back_applies_the_rows_of_the_new_history() {
    // Y-5
    for keeps_position in [true, false] {
        let (store, sink) = (store(), TestSink::new(keeps_position));
        send(&store, &notes(7)).await;
        let handle = start(&store, &sink);
        assert!(handle.caught_up(Seq(7)).await);
        let replica = store.save();
        send(&store, &[note("lost").build(), note("lost, too").build()]).await;
        assert!(handle.caught_up(Seq(9)).await);

        store.go_back(&replica);
        let new: Vec<Event> = (0..4).map(|number| note(&format!("new {number}")).build()).collect();
        send(&store, &new).await;
        assert!(handle.caught_up(Seq(11)).await);
        assert!(sink.ids().is_superset(&effective(&store).await), "position kept: {keeps_position}");
        handle.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn new_consumer_starts_with_a_snapshot_and_continues_with_rows() {
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
    assert_eq!(sink.current.lock().documents[&more[0].id].len(), 2, "with all its topics");
    assert_eq!(store.offsets().await.unwrap()[0].last_seq, head(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn poison_row_stops_the_consumer_until_the_sink_is_repaired() {
    // O-6
    let (store, sink) = (store(), TestSink::new(false));
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(0)).await);
    let events = notes(9);
    *sink.poison.lock() = Some(events[5].id);
    send(&store, &events).await;
    assert!(!handle.caught_up(Seq(9)).await);
    let status = handle.status().borrow().clone();
    assert_eq!(status.state, State::Stuck { at: Seq(6), why: "unreadable".to_owned() });
    assert_eq!((status.offset, sink.ids().len()), (Seq(5), 5), "all rows before it are applied");

    handle.resume().await.unwrap();
    tokio::time::sleep(COMMAND_TIME).await;
    assert!(!handle.caught_up(Seq(9)).await, "it is stuck again at the same row");
    *sink.poison.lock() = None;
    handle.resume().await.unwrap();
    tokio::time::sleep(COMMAND_TIME).await;
    assert!(handle.caught_up(Seq(9)).await);
    assert_eq!(sink.ids(), effective(&store).await);

    // A replay applies rows again.
    sink.current.lock().documents.clear();
    handle.replay(Seq(0)).await;
    handle.status().wait_for(|status| status.offset == Seq(0)).await.unwrap();
    assert!(handle.caught_up(Seq(9)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    handle.replay(Seq(2)).await;
    handle.status().wait_for(|status| status.offset == Seq(2)).await.unwrap();
    assert!(handle.caught_up(Seq(9)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn consumer_whose_rows_were_purged_reports_it_and_waits_for_a_rebuild() {
    // O-8
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(3)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(3)).await);
    handle.pause().await.unwrap();
    handle.status().wait_for(|status| status.state == State::Paused).await.unwrap();
    send(&store, &[article("a", "1").build(), deletion().of(&notes(1)[0]).build()]).await;
    let retention =
        Retention { outbox: kukuri_domain::retention::Keep::For(Duration::from_secs(1)), ..Retention::default() };
    let purged = store.purge(&retention, later(3_600)).await.unwrap();
    assert!(purged.outbox > 0, "{purged:?}");
    send(&store, &[note("after").build()]).await;
    handle.resume().await.unwrap();
    let mut status = handle.status();
    status.wait_for(|status| matches!(status.state, State::TooFarBehind { .. })).await.unwrap();
    assert_eq!(sink.ids().len(), 3, "nothing was skipped");

    handle.rebuild().await.unwrap();
    assert!(status.wait_for(|status| status.state == State::Following).await.is_ok());
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn paused_consumer_reports_when_the_rows_it_needs_are_purged() {
    // O-8
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(3)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(3)).await);
    handle.pause().await.unwrap();
    let mut status = handle.status();
    status.wait_for(|status| status.state == State::Paused).await.unwrap();
    send(&store, &[article("a", "1").build()]).await;
    let retention =
        Retention { outbox: kukuri_domain::retention::Keep::For(Duration::from_secs(1)), ..Retention::default() };
    store.purge(&retention, later(3_600)).await.unwrap();
    status.wait_for(|status| matches!(status.state, State::TooFarBehind { .. })).await.unwrap();
    handle.rebuild().await.unwrap();
    status.wait_for(|status| status.state == State::Following).await.unwrap();
    assert_eq!(sink.ids(), effective(&store).await, "a rebuild ends the pause");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pause_survives_a_restart_and_a_resume_loses_nothing() {
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(3)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(3)).await);
    handle.pause().await.unwrap();
    handle.status().wait_for(|status| status.state == State::Paused).await.unwrap();
    handle.stop().await;
    send(&store, &[note("meanwhile").build()]).await;

    let handle = start(&store, &sink);
    let mut status = handle.status();
    let paused = status.wait_for(|status| status.state == State::Paused).await.unwrap().clone();
    assert_eq!(paused.offset, Seq(3), "the backlog counts from the stored offset");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((sink.ids().len(), handle.status().borrow().state.clone()), (3, State::Paused));
    handle.resume().await.unwrap();
    assert!(status.wait_for(|status| status.state == State::Following).await.is_ok());
    assert!(handle.caught_up(Seq(4)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume_of_one_process_hold_for_the_others() {
    let (store, sink) = (store(), TestSink::new(true));
    let running = start(&store, &sink);
    assert!(running.caught_up(Seq(0)).await);
    let standby = start(&store, &sink);
    standby.status().wait_for(|status| status.state == State::Standby).await.unwrap();
    standby.pause().await.unwrap();
    send(&store, &notes(1)).await;
    running.status().wait_for(|status| status.state == State::Paused).await.unwrap();
    // The standby instance takes over, and stays paused.
    running.stop().await;
    standby.status().wait_for(|status| status.state == State::Paused).await.unwrap();
    kukuri_outbox::pause::set_paused(&*store, "index-v1", None).await.unwrap();
    standby.status().wait_for(|status| status.state == State::Following).await.unwrap();
    assert!(standby.caught_up(head(&store).await).await);
    assert_eq!(sink.ids(), effective(&store).await);
    standby.stop().await;
}

#[tokio::test(start_paused = true)]
async fn standby_instance_takes_over_when_the_running_one_stops() {
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
async fn rebuild_includes_events_that_arrive_meanwhile() {
    // O-8
    let (store, sink) = (store(), TestSink::new(true));
    send(&store, &notes(40)).await;
    let handle = start(&store, &sink);
    assert!(handle.caught_up(Seq(40)).await);
    sink.current.lock().documents.clear();
    handle.rebuild().await.unwrap();
    let mut status = handle.status();
    status.wait_for(|status| matches!(status.state, State::Rebuilding { .. })).await.unwrap();
    let late = note("meanwhile").build();
    send(&store, std::slice::from_ref(&late)).await;
    status.wait_for(|status| status.state == State::Following).await.unwrap();
    assert!(handle.caught_up(Seq(41)).await);
    assert_eq!(sink.ids(), effective(&store).await);
    handle.stop().await;
}

mod histories {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Note(u8),
        Article(u8, u8),
        Delete(u8),
        FailEvery(u32),
        Crash,
        Rest(u16),
        Replay(u8),
        Rebuild,
        Pause,
        Resume,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<u8>().prop_map(Step::Note),
            4 => (0_u8..4, any::<u8>()).prop_map(|(key, version)| Step::Article(key, version)),
            3 => any::<u8>().prop_map(Step::Delete),
            1 => (0_u32..6).prop_map(Step::FailEvery),
            2 => Just(Step::Crash),
            3 => (0_u16..400).prop_map(Step::Rest),
            1 => any::<u8>().prop_map(Step::Replay),
            1 => Just(Step::Rebuild),
            1 => Just(Step::Pause),
            1 => Just(Step::Resume),
        ];
        proptest::collection::vec(step, 1..60)
    }

    async fn run(steps: Vec<Step>, keeps_position: bool) {
        let (store, sink) = (store(), TestSink::new(keeps_position));
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
                Step::FailEvery(calls) => sink.fail_every.store(calls, Ordering::Relaxed),
                Step::Crash => {
                    handle.abort().await;
                    // The new instance waits until the lease of the old one has run out.
                    handle = start(&store, &sink);
                }
                Step::Rest(millis) => tokio::time::sleep(Duration::from_millis(millis.into())).await,
                Step::Replay(back) => {
                    let offset = handle.status().borrow().offset.0;
                    handle.replay(Seq(offset.saturating_sub(back.into()))).await;
                }
                Step::Rebuild => handle.rebuild().await.unwrap(),
                Step::Pause => handle.pause().await.unwrap(),
                Step::Resume => handle.resume().await.unwrap(),
            }
            if let Some(event) = sent.last() {
                send(&store, std::slice::from_ref(event)).await;
            }
        }
        sink.fail_every.store(0, Ordering::Relaxed);
        // Also a pause set by an instance that crashed since.
        handle.resume().await.unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(handle.caught_up(head(&store).await).await);
        assert_eq!(sink.ids(), effective(&store).await);
        handle.stop().await;
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: kukuri_testing::long::scaled(300), ..ProptestConfig::default() })]

        #[test]
        fn sink_ends_with_the_effective_events(steps in steps(), keeps_position in any::<bool>()) {
            // O-6, O-7, O-8
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            runtime.block_on(run(steps, keeps_position));
        }
    }
}
