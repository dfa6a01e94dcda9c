//! The one writer: takes the events that wait, commits them durably in one transaction, answers, and delivers them to live
//! subscriptions (W-3, W-9).
//!
//! Everything that commits goes through this one task: events, expiry, purges, floors. What a commit made effective is
//! queued for subscribers before the next commit begins, so that nothing is delivered that a later commit has taken away.
//! Events that other processes commit are delivered between two commits, for the same reason.
//! Long work comes in steps, so that events do not wait for all of it.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Instant};

use kukuri_domain::{Admitted, Refusal, TopicId, capacity::Stage};
use kukuri_store::{Outcome, StageChange, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::{
    clock,
    engine::Shared,
    live::{ClientQueue, delivery::LiveDelivery},
};

/// Events in one transaction, and bytes of their JSON: more are cheaper each, and take longer together. What one
/// transaction makes live fits into the queue of a client, even if all 64 of its subscriptions get all of it.
const MAX_BATCH_EVENTS: usize = 2_048;
const MAX_BATCH_BYTES: usize = 2 << 20;
/// Events that may wait for the writer, and bytes of their JSON, before senders have to wait.
const MAX_QUEUED_EVENTS: usize = 16_384;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// A client's event that waits for the writer, with the queue its answer goes to.
struct QueuedEvent {
    admitted: Admitted,
    answer: Arc<ClientQueue>,
    _bytes: OwnedSemaphorePermit,
}

enum Work {
    Event(QueuedEvent),
    Task(WriterTask),
}

/// Work that is not an event of a client.
enum WriterTask {
    /// Events of peers, an import, or the node itself.
    Batch(Vec<Admitted>, oneshot::Sender<Vec<Outcome>>),
    Change(Change),
}

/// A change of the store that is no new event: a step of an expiry sweep or a purge, floors.
type Change = Box<dyn FnOnce(Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The way to the writer. The writer ends when the last handle is gone and all work is done.
#[derive(Clone)]
pub(crate) struct WriterHandle {
    work: mpsc::Sender<Work>,
    bytes: Arc<Semaphore>,
}

impl WriterHandle {
    pub(crate) fn start(shared: Arc<Shared>) -> (Self, tokio::task::JoinHandle<()>) {
        let (work, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        let Shared { store, live, metrics, .. } = &*shared;
        let delivery = LiveDelivery::new(Arc::clone(store), Arc::clone(live), Arc::clone(metrics));
        let writer = Writer { delivery, shared };
        (
            Self { work, bytes: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)) },
            tokio::spawn(writer.write_until_closed(receiver)),
        )
    }

    /// Queues an event of a client, waiting for room. The answer goes to the client's queue.
    pub(crate) async fn enqueue(&self, admitted: Admitted, answer: Arc<ClientQueue>) {
        let id = admitted.event().id;
        let bytes = u32::try_from(admitted.json().len().min(MAX_QUEUED_BYTES)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.bytes).acquire_many_owned(bytes).await else {
            return answer.push_answer(id, Outcome::Refused(Refusal::Failed));
        };
        let work = Work::Event(QueuedEvent { admitted, answer, _bytes: permit });
        if let Err(mpsc::error::SendError(Work::Event(queued))) = self.work.send(work).await {
            queued.answer.push_answer(id, Outcome::Refused(Refusal::Failed));
        }
    }

    /// Hands events to the writer and waits until they are decided on.
    pub(crate) async fn write_all(&self, events: Vec<Admitted>) -> Vec<Outcome> {
        let count = events.len();
        let (answer, answered) = oneshot::channel();
        let _ = self.work.send(Work::Task(WriterTask::Batch(events, answer))).await;
        answered.await.unwrap_or_else(|_| vec![Outcome::Refused(Refusal::Failed); count])
    }

    /// Changes the store between two batches. What goes by the change goes before anything else is delivered (W-3).
    pub(crate) async fn change<T: Send + 'static, F>(
        &self,
        change: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let change: Change = Box::new(|shared| Box::pin(async { drop(answer.send(change(shared).await)) }));
        let _ = self.work.send(Work::Task(WriterTask::Change(change))).await;
        answered.await.unwrap_or(Err(StoreError::WriterGone))
    }
}

struct Writer {
    shared: Arc<Shared>,
    delivery: LiveDelivery,
}

impl Writer {
    async fn write_until_closed(mut self, mut receiver: mpsc::Receiver<Work>) {
        let mut received = Vec::with_capacity(MAX_BATCH_EVENTS);
        loop {
            tokio::select! {
                count = receiver.recv_many(&mut received, MAX_BATCH_EVENTS) => {
                    if count == 0 {
                        break;
                    }
                    self.process(&mut received).await;
                }
                () = self.delivery.due() => self.delivery.deliver_committed(&HashMap::new()).await,
            }
        }
        if let Err(error) = self.shared.store.write_duplicate_counts().await {
            tracing::warn!(%error, "can't write the counts of duplicate events at shutdown; they are lost");
        }
    }

    /// Writes events first, then does the tasks.
    async fn process(&mut self, received: &mut Vec<Work>) {
        let (mut events, mut bytes, mut tasks) = (Vec::with_capacity(received.len()), 0, Vec::new());
        for work in received.drain(..) {
            match work {
                Work::Event(queued) => {
                    bytes += queued.admitted.json().len();
                    events.push(queued);
                    if bytes >= MAX_BATCH_BYTES {
                        self.write_clients_events(std::mem::take(&mut events)).await;
                        bytes = 0;
                    }
                }
                Work::Task(task) => tasks.push(task),
            }
        }
        self.write_clients_events(events).await;
        for task in tasks {
            match task {
                WriterTask::Batch(events, answer) => drop(answer.send(self.write_batch(events).await)),
                WriterTask::Change(change) => {
                    change(Arc::clone(&self.shared)).await;
                    self.delivery.deliver_committed(&HashMap::new()).await;
                }
            }
        }
    }

    /// Writes events of clients and answers each to its sender.
    async fn write_clients_events(&mut self, events: Vec<QueuedEvent>) {
        if events.is_empty() {
            return;
        }
        let batch: Vec<Admitted> = events.iter().map(|queued| queued.admitted.clone()).collect();
        let outcomes = self.write_batch(batch).await;
        for (queued, outcome) in events.into_iter().zip(outcomes) {
            queued.answer.push_answer(queued.admitted.event().id, outcome);
        }
    }

    /// Commits a batch in one transaction and delivers what became effective.
    async fn write_batch(&mut self, batch: Vec<Admitted>) -> Vec<Outcome> {
        let Shared { store, live, ephemeral, metrics, event_rate, broadcast, permanent, .. } = &*self.shared;
        let started = Instant::now();
        let mut outcomes = match store.ingest(batch.clone(), clock::now()).await {
            Ok(ingested) => {
                self.shared.report_stages(&ingested.stages);
                ingested.outcomes
            }
            Err(error) => {
                tracing::error!(%error, events = batch.len(), "can't store a batch; its events are refused");
                let refusal = if matches!(error, StoreError::Full(_)) { Refusal::DiskFull } else { Refusal::Failed };
                let outcomes = vec![Outcome::Refused(refusal); batch.len()];
                outcomes.iter().for_each(|outcome| metrics.count_outcome(outcome));
                return outcomes;
            }
        };
        metrics.batch_events.record(batch.len() as f64);
        metrics.commit_seconds.record(started.elapsed());
        let mut fresh = HashMap::with_capacity(batch.len());
        for (admitted, outcome) in batch.iter().zip(&mut outcomes) {
            match outcome {
                Outcome::Stored => {
                    event_rate.count_stored();
                    broadcast.offer(admitted);
                    fresh.insert(admitted.event().id, admitted.clone());
                }
                // A repeat in the same batch (E-5).
                Outcome::Ephemeral if !ephemeral.insert(admitted.event().id) => *outcome = Outcome::Duplicate,
                Outcome::Ephemeral => {
                    broadcast.offer(admitted);
                    metrics.deliveries.increment(live.deliver(admitted, None) as u64);
                }
                Outcome::Refused(Refusal::PermanentFull) => permanent.note_refusal(),
                Outcome::Duplicate | Outcome::Refused(_) => {}
            }
            metrics.count_outcome(outcome);
        }
        self.delivery.deliver_committed(&fresh).await;
        outcomes
    }
}

impl Shared {
    /// Logs capacity stages that were entered or left (P-6). The last stage asks for a purge.
    pub(crate) fn report_stages(&self, stages: &[StageChange]) {
        for change in stages {
            let scope = change.topic.as_ref().map_or("node", TopicId::as_str);
            let (from, to) = (change.from.as_str(), change.to.as_str());
            if change.to > change.from {
                tracing::warn!(
                    scope,
                    from,
                    to,
                    "capacity stage rose: fewer events are accepted; raise [capacity] or shorten [retention]"
                );
            } else {
                tracing::info!(scope, from, to, "capacity stage fell: more events are accepted");
            }
        }
        if stages.iter().any(|change| change.to == Stage::Purging) {
            self.purge_wanted.notify_one();
        }
    }
}
