//! The one writer: takes what is waiting, commits it durably, answers, and hands it to live subscriptions (W-3, W-9).
//!
//! Everything that commits goes through this one task: events, expiry, purges. What a commit made effective is queued
//! for subscribers before the next commit begins, so that nothing is delivered that a later commit has taken away.

use std::{collections::HashMap, sync::Arc, time::Instant};

use kukuri_domain::{Admitted, EventId, Refusal, TopicId, capacity::Stage, retention::Retention};
use kukuri_store::{Op, OutboxRow, Outcome, Seq, StageChange, Store, StoreError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::{clock, hub::Hub, metrics::Metrics, queue::Queue, recent::Recent};

/// The most events in one transaction: more are cheaper each, and take longer together.
const LARGEST_BATCH: usize = 4_096;
/// Events that may wait for the writer, and the bytes of their JSON, before senders have to.
const MOST_WAITING: usize = 16_384;
const MOST_BYTES: usize = 64 << 20;
const OUTBOX_PAGE: usize = 4_096;

/// Work for the writer.
enum Work {
    /// An event, who wants to know what became of it, and the room it takes until then.
    Event(Admitted, Arc<Queue>, OwnedSemaphorePermit),
    /// Many events at once.
    Batch(Vec<Admitted>, oneshot::Sender<Vec<Outcome>>),
    /// Turn off what has expired.
    Expire(oneshot::Sender<Result<kukuri_store::Swept, StoreError>>),
    /// Throw away what has stayed long enough.
    Purge(Box<Retention>, oneshot::Sender<Result<kukuri_store::Purged, StoreError>>),
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
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (work, receiver) = mpsc::channel(MOST_WAITING);
        let published = *store.watch_outbox().borrow();
        let writer = Writer { store, hub, ephemeral, metrics, purge_wanted, published };
        (Self { work, room: Arc::new(Semaphore::new(MOST_BYTES)) }, tokio::spawn(writer.run(receiver)))
    }

    /// Gives many events to the writer and waits until they are decided on.
    pub(crate) async fn submit_batch(&self, events: Vec<Admitted>) -> Vec<Outcome> {
        let count = events.len();
        let (answer, answered) = oneshot::channel();
        let _ = self.work.send(Work::Batch(events, answer)).await;
        answered.await.unwrap_or_else(|_| vec![Outcome::Refused(Refusal::Failed); count])
    }

    /// Gives an event to the writer, waiting for room. The answer goes to the queue.
    pub(crate) async fn submit(&self, admitted: Admitted, answer: Arc<Queue>) {
        let id = admitted.event().id;
        let bytes = u32::try_from(admitted.json().len().min(MOST_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else {
            return answer.decided(id, Outcome::Refused(Refusal::Failed));
        };
        let work = Work::Event(admitted, answer, room);
        if let Err(mpsc::error::SendError(Work::Event(_, answer, _))) = self.work.send(work).await {
            answer.decided(id, Outcome::Refused(Refusal::Failed));
        }
    }

    pub(crate) async fn expire(&self) -> Result<kukuri_store::Swept, StoreError> {
        let (answer, answered) = oneshot::channel();
        let _ = self.work.send(Work::Expire(answer)).await;
        answered.await.unwrap_or(Err(StoreError::ReadOnly))
    }

    pub(crate) async fn purge(&self, retention: Retention) -> Result<kukuri_store::Purged, StoreError> {
        let (answer, answered) = oneshot::channel();
        let _ = self.work.send(Work::Purge(Box::new(retention), answer)).await;
        answered.await.unwrap_or(Err(StoreError::ReadOnly))
    }
}

struct Writer {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    ephemeral: Arc<Recent>,
    metrics: Arc<Metrics>,
    purge_wanted: Arc<Notify>,
    /// Everything up to here was handed to subscribers.
    published: Seq,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Work>) {
        let mut waiting = Vec::with_capacity(LARGEST_BATCH);
        while receiver.recv_many(&mut waiting, LARGEST_BATCH).await > 0 {
            let mut events = Vec::with_capacity(waiting.len());
            let mut chores = Vec::new();
            for work in waiting.drain(..) {
                match work {
                    Work::Event(admitted, answer, room) => events.push((admitted, answer, room)),
                    chore => chores.push(chore),
                }
            }
            if !events.is_empty() {
                self.take_in(events).await;
            }
            for chore in chores {
                self.do_chore(chore).await;
            }
        }
        if let Err(error) = self.store.flush().await {
            tracing::warn!(%error, "repeats could not be written");
        }
    }

    /// Events of clients, each answered to its sender.
    async fn take_in(&mut self, events: Vec<(Admitted, Arc<Queue>, OwnedSemaphorePermit)>) {
        let batch: Vec<Admitted> = events.iter().map(|(admitted, ..)| admitted.clone()).collect();
        let outcomes = self.decide(batch).await;
        for ((admitted, answer, _room), outcome) in events.into_iter().zip(outcomes) {
            answer.decided(admitted.event().id, outcome);
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
                vec![Outcome::Refused(refusal); batch.len()]
            }
        };
        self.metrics.batch_events.record(batch.len() as f64);
        self.metrics.commit_seconds.record(started.elapsed());
        let mut fresh = HashMap::with_capacity(batch.len());
        for (admitted, outcome) in batch.iter().zip(&mut outcomes) {
            match outcome {
                Outcome::Stored => {
                    fresh.insert(admitted.event().id, admitted.clone());
                }
                // The same event twice is delivered once (E-5).
                Outcome::Ephemeral if !self.ephemeral.insert(admitted.event().id) => *outcome = Outcome::Duplicate,
                Outcome::Ephemeral => self.deliver(self.hub.publish(admitted, None)),
                Outcome::Duplicate | Outcome::Refused(_) => {}
            }
            self.metrics.answered(outcome);
        }
        self.publish(&fresh).await;
        outcomes
    }

    async fn do_chore(&mut self, chore: Work) {
        match chore {
            Work::Expire(answer) => {
                let _ = answer.send(self.store.expire(clock::now()).await);
            }
            Work::Purge(retention, answer) => {
                let purged = self.store.purge(&retention, clock::now()).await;
                if let Ok(purged) = &purged {
                    self.note_stages(&purged.stages);
                }
                let _ = answer.send(purged);
            }
            Work::Batch(events, answer) => {
                let _ = answer.send(self.decide(events).await);
            }
            Work::Event(..) => {}
        }
        self.publish(&HashMap::new()).await;
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

    fn deliver(&self, count: usize) {
        self.metrics.deliveries.increment(count as u64);
    }

    /// Hands what was committed since the last time to live subscriptions.
    async fn publish(&mut self, fresh: &HashMap<EventId, Admitted>) {
        // All of it at once: a later page may name an event once more, or take it away again.
        let mut rows: Vec<OutboxRow> = Vec::new();
        loop {
            match self.store.outbox(self.published, OUTBOX_PAGE).await {
                Ok(page) => {
                    let Some(last) = page.last() else { break };
                    self.published = last.seq;
                    rows.extend(page);
                }
                Err(error) => {
                    tracing::error!(%error, "committed events could not be read back; subscribers miss them");
                    self.published = *self.store.watch_outbox().borrow();
                    return;
                }
            }
        }
        for (id, seq) in became_effective(&rows) {
            match fresh.get(&id) {
                Some(admitted) => self.deliver(self.hub.publish(admitted, Some(seq))),
                None => self.publish_foreign(&id, seq, &rows).await,
            }
        }
    }

    /// An event that another process took in.
    async fn publish_foreign(&self, id: &EventId, seq: Seq, rows: &[OutboxRow]) {
        let found = self.store.get(&[*id], clock::now()).await;
        let Ok(Some(stored)) = found.map(|mut found| found.pop().flatten()) else { return };
        let Ok(event) = stored.event() else { return };
        let topics: Vec<_> = rows.iter().filter(|row| row.event_id == *id).map(|row| row.topic.clone()).collect();
        self.deliver(self.hub.publish_event(&event, &topics, &stored.json, Some(seq)));
    }
}

/// The events that these rows leave effective, in order, with the place of their last row.
fn became_effective(rows: &[OutboxRow]) -> Vec<(EventId, Seq)> {
    let mut last: HashMap<EventId, (Seq, Op)> = HashMap::with_capacity(rows.len());
    for row in rows {
        last.insert(row.event_id, (row.seq, row.op));
    }
    let is_last_upsert = |row: &&OutboxRow| last.get(&row.event_id) == Some(&(row.seq, Op::Upsert));
    rows.iter().filter(is_last_upsert).map(|row| (row.event_id, row.seq)).collect()
}
