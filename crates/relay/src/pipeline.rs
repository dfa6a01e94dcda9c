//! The one writer: takes what is waiting, commits it durably, answers, and hands it to live subscriptions (W-3, W-9).
//!
//! Everything that commits goes through this one task: events, expiry, purges. What a commit made effective is queued
//! for subscribers before the next commit begins, so that nothing is delivered that a later commit has taken away.
//! What other processes commit is handed on between two commits, for the same reason.
//! Long work comes in steps, so that events do not wait for all of it.

use std::{collections::HashMap, sync::Arc, time::Instant};

use kukuri_domain::{Admitted, Refusal, TopicId, capacity::Stage, retention::Retention, sharing::FloorHint};
use kukuri_store::{Outcome, PurgeCursor, PurgeStep, Raised, StageChange, Store, StoreError, Swept};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::{bridging::Published, clock, hub::Hub, live::Live, metrics::Metrics, queue::Queue, recent::Recent};

/// The most events in one transaction, and the bytes of their JSON: more are cheaper each, and take longer together.
/// What one transaction makes live at once fits into the queue of a client, though all 64 of its subscriptions get all of it.
const LARGEST_BATCH: usize = 2_048;
const BATCH_BYTES: usize = 2 << 20;
/// Events that may wait for the writer, and the bytes of their JSON, before senders have to.
const MOST_WAITING: usize = 16_384;
const MOST_BYTES: usize = 64 << 20;

/// An event that waits: who wants to know what became of it, and the room it takes until then.
struct Waiting {
    admitted: Admitted,
    answer: Arc<Queue>,
    _room: OwnedSemaphorePermit,
}

/// Work for the writer.
enum Work {
    Event(Waiting),
    Chore(Chore),
}

/// Work that is not an event of a client.
enum Chore {
    /// Many events at once.
    Batch(Vec<Admitted>, oneshot::Sender<Vec<Outcome>>),
    /// Turn off some of what has expired.
    Expire(oneshot::Sender<Result<(Swept, bool), StoreError>>),
    /// Take what another node knows of versions that nobody may show any more.
    RaiseFloors(TopicId, Vec<FloorHint>, oneshot::Sender<Result<Raised, StoreError>>),
    /// Throw away some of what has stayed long enough.
    Purge(Box<Retention>, PurgeCursor, oneshot::Sender<Result<PurgeStep, StoreError>>),
}

/// The way to the writer. The writer ends when the last of these is gone and all work is done.
#[derive(Clone)]
pub(crate) struct Pipeline {
    work: mpsc::Sender<Work>,
    room: Arc<Semaphore>,
}

impl Pipeline {
    /// Starts the writer.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        hub: Arc<Hub>,
        ephemeral: Arc<Recent>,
        metrics: Arc<Metrics>,
        purge_wanted: Arc<Notify>,
        published: Arc<Published>,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (work, receiver) = mpsc::channel(MOST_WAITING);
        let live = Live::new(Arc::clone(&store), Arc::clone(&hub), Arc::clone(&metrics));
        let writer = Writer { store, hub, ephemeral, metrics, purge_wanted, published, live };
        (Self { work, room: Arc::new(Semaphore::new(MOST_BYTES)) }, tokio::spawn(writer.run(receiver)))
    }

    /// Gives many events to the writer and waits until they are decided on.
    pub(crate) async fn submit_batch(&self, events: Vec<Admitted>) -> Vec<Outcome> {
        let count = events.len();
        let answer = self.ask(|answer| Chore::Batch(events, answer)).await;
        answer.unwrap_or_else(|| vec![Outcome::Refused(Refusal::Failed); count])
    }

    /// Gives an event to the writer, waiting for room. The answer goes to the queue.
    pub(crate) async fn submit(&self, admitted: Admitted, answer: Arc<Queue>) {
        let id = admitted.event().id;
        let bytes = u32::try_from(admitted.json().len().min(MOST_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else {
            return answer.decided(id, Outcome::Refused(Refusal::Failed));
        };
        let work = Work::Event(Waiting { admitted, answer, _room: room });
        if let Err(mpsc::error::SendError(Work::Event(waiting))) = self.work.send(work).await {
            waiting.answer.decided(id, Outcome::Refused(Refusal::Failed));
        }
    }

    /// Turns off some of what has expired. Returns also whether more is due.
    pub(crate) async fn expire_some(&self) -> Result<(Swept, bool), StoreError> {
        self.ask(Chore::Expire).await.unwrap_or(Err(StoreError::ReadOnly))
    }

    /// Takes floor hints of another node. What goes by them goes before anything else is delivered (W-3).
    pub(crate) async fn raise_floors(&self, topic: TopicId, hints: Vec<FloorHint>) -> Result<Raised, StoreError> {
        self.ask(|answer| Chore::RaiseFloors(topic, hints, answer)).await.unwrap_or(Err(StoreError::ReadOnly))
    }

    /// Throws away some of what has stayed long enough.
    pub(crate) async fn purge_some(&self, retention: Retention, cursor: PurgeCursor) -> Result<PurgeStep, StoreError> {
        let answer = self.ask(|answer| Chore::Purge(Box::new(retention), cursor, answer)).await;
        answer.unwrap_or(Err(StoreError::ReadOnly))
    }

    /// `None`: the writer is gone.
    async fn ask<T>(&self, chore: impl FnOnce(oneshot::Sender<T>) -> Chore) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let _ = self.work.send(Work::Chore(chore(answer))).await;
        answered.await.ok()
    }
}

struct Writer {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    ephemeral: Arc<Recent>,
    metrics: Arc<Metrics>,
    purge_wanted: Arc<Notify>,
    published: Arc<Published>,
    live: Live,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Work>) {
        let mut taken = Vec::with_capacity(LARGEST_BATCH);
        loop {
            tokio::select! {
                count = receiver.recv_many(&mut taken, LARGEST_BATCH) => {
                    if count == 0 {
                        break;
                    }
                    self.work_off(&mut taken).await;
                }
                () = self.live.called() => self.live.hand_on(&HashMap::new()).await,
            }
        }
        if let Err(error) = self.store.flush().await {
            tracing::warn!(%error, "repeats could not be written");
        }
    }

    /// Does what was taken, events first.
    async fn work_off(&mut self, taken: &mut Vec<Work>) {
        let (mut events, mut bytes, mut chores) = (Vec::with_capacity(taken.len()), 0, Vec::new());
        for work in taken.drain(..) {
            match work {
                Work::Event(waiting) => {
                    bytes += waiting.admitted.json().len();
                    events.push(waiting);
                    if bytes >= BATCH_BYTES {
                        self.take_in(std::mem::take(&mut events)).await;
                        bytes = 0;
                    }
                }
                Work::Chore(chore) => chores.push(chore),
            }
        }
        self.take_in(events).await;
        for chore in chores {
            self.do_chore(chore).await;
        }
    }

    /// Events of clients, each answered to its sender.
    async fn take_in(&mut self, events: Vec<Waiting>) {
        if events.is_empty() {
            return;
        }
        let batch: Vec<Admitted> = events.iter().map(|waiting| waiting.admitted.clone()).collect();
        let outcomes = self.decide(batch).await;
        for (waiting, outcome) in events.into_iter().zip(outcomes) {
            waiting.answer.decided(waiting.admitted.event().id, outcome);
        }
    }

    /// Decides on events in one transaction, and hands on what became effective.
    async fn decide(&mut self, batch: Vec<Admitted>) -> Vec<Outcome> {
        let started = Instant::now();
        let mut outcomes = match self.store.ingest(batch.clone(), clock::now()).await {
            Ok(ingested) => {
                self.note_stages(&ingested.stages);
                ingested.outcomes
            }
            Err(error) => {
                tracing::error!(%error, "a batch could not be stored");
                let refusal = if matches!(error, StoreError::Full(_)) { Refusal::DiskFull } else { Refusal::Failed };
                batch.iter().for_each(|_| self.metrics.refused_event(refusal.prefix()));
                return vec![Outcome::Refused(refusal); batch.len()];
            }
        };
        self.metrics.batch_events.record(batch.len() as f64);
        self.metrics.commit_seconds.record(started.elapsed());
        let mut fresh = HashMap::with_capacity(batch.len());
        for (admitted, outcome) in batch.iter().zip(&mut outcomes) {
            match outcome {
                Outcome::Stored => {
                    self.published.note(admitted);
                    fresh.insert(admitted.event().id, admitted.clone());
                }
                // The same event twice is delivered once (E-5).
                Outcome::Ephemeral if !self.ephemeral.insert(admitted.event().id) => *outcome = Outcome::Duplicate,
                Outcome::Ephemeral => {
                    self.published.note(admitted);
                    self.metrics.deliveries.increment(self.hub.publish(admitted, None) as u64);
                }
                Outcome::Duplicate | Outcome::Refused(_) => {}
            }
            self.metrics.answered(outcome);
        }
        self.live.hand_on(&fresh).await;
        outcomes
    }

    async fn do_chore(&mut self, chore: Chore) {
        match chore {
            Chore::Batch(events, answer) => {
                let _ = answer.send(self.decide(events).await);
                return;
            }
            Chore::Expire(answer) => {
                let _ = answer.send(self.store.expire_some(clock::now()).await);
            }
            Chore::RaiseFloors(topic, hints, answer) => {
                let raised = self.store.raise_floors(&topic, hints, clock::now()).await;
                if let Ok(raised) = &raised {
                    self.note_stages(&raised.stages);
                }
                let _ = answer.send(raised);
            }
            Chore::Purge(retention, cursor, answer) => {
                let step = self.store.purge_some(&retention, clock::now(), cursor).await;
                if let Ok(PurgeStep { purged, next: None }) = &step {
                    self.note_stages(&purged.stages);
                }
                let _ = answer.send(step);
            }
        }
        self.live.hand_on(&HashMap::new()).await;
    }

    /// Capacity stages that were entered or left (P-6). The last one asks for a purge.
    fn note_stages(&self, stages: &[StageChange]) {
        for change in stages {
            let place = change.topic.as_ref().map_or("node", TopicId::as_str);
            if change.to > change.from {
                tracing::warn!(place, from = ?change.from, to = ?change.to, "room is short: capacity stage");
            } else {
                tracing::info!(place, from = ?change.from, to = ?change.to, "there is more room: capacity stage");
            }
        }
        if stages.iter().any(|change| change.to == Stage::Purging) {
            self.purge_wanted.notify_one();
        }
    }
}
