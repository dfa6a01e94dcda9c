//! The one writer: takes what is waiting, commits it durably, answers, and hands it to live subscriptions (W-3, W-9).
//!
//! Everything that commits goes through this one task: events, expiry, purges. What a commit made effective is queued
//! for subscribers before the next commit begins, so that nothing is delivered that a later commit has taken away.

use std::{collections::HashMap, sync::Arc};

use kukuri_domain::{Admitted, EventId, Refusal, retention::Retention};
use kukuri_store::{Op, OutboxRow, Outcome, Seq, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::{clock, hub::Hub, queue::Queue};

/// The most events in one transaction: more are cheaper each, and take longer together.
const LARGEST_BATCH: usize = 4_096;
/// Events that may wait for the writer before senders have to.
const MOST_WAITING: usize = 16_384;
const OUTBOX_PAGE: usize = 4_096;

/// Work for the writer.
enum Work {
    /// An event, and who wants to know what became of it.
    Event(Admitted, Arc<Queue>),
    /// Turn off what has expired.
    Expire(oneshot::Sender<Result<kukuri_store::Swept, StoreError>>),
    /// Throw away what has stayed long enough.
    Purge(Box<Retention>, oneshot::Sender<Result<kukuri_store::Purged, StoreError>>),
}

/// The way to the writer. The writer ends when the last of these is gone and all work is done.
#[derive(Clone)]
pub(crate) struct Pipeline {
    work: mpsc::Sender<Work>,
}

impl Pipeline {
    /// Starts the writer.
    pub(crate) fn start(store: Arc<dyn Store>, hub: Arc<Hub>) -> (Self, tokio::task::JoinHandle<()>) {
        let (work, receiver) = mpsc::channel(MOST_WAITING);
        let head = *store.watch_outbox().borrow();
        let writer = Writer { store, hub, published: head };
        (Self { work }, tokio::spawn(writer.run(receiver)))
    }

    /// Gives an event to the writer, waiting for room. The answer goes to the queue.
    pub(crate) async fn submit(&self, admitted: Admitted, answer: Arc<Queue>) {
        let id = admitted.event().id;
        if let Err(mpsc::error::SendError(Work::Event(_, answer))) = self.work.send(Work::Event(admitted, answer)).await
        {
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
                    Work::Event(admitted, answer) => events.push((admitted, answer)),
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

    async fn take_in(&mut self, events: Vec<(Admitted, Arc<Queue>)>) {
        let batch: Vec<Admitted> = events.iter().map(|(admitted, _)| admitted.clone()).collect();
        let outcomes = match self.store.ingest(batch, clock::now()).await {
            Ok(ingested) => {
                for change in &ingested.stages {
                    tracing::warn!(?change.topic, ?change.from, ?change.to, "capacity stage");
                }
                ingested.outcomes
            }
            Err(error) => {
                tracing::error!(%error, "a batch could not be stored");
                let refusal = if matches!(error, StoreError::Full(_)) { Refusal::DiskFull } else { Refusal::Failed };
                vec![Outcome::Refused(refusal); events.len()]
            }
        };
        let mut fresh = HashMap::new();
        for ((admitted, _), outcome) in events.iter().zip(&outcomes) {
            match outcome {
                Outcome::Stored => {
                    fresh.insert(admitted.event().id, admitted.clone());
                }
                Outcome::Ephemeral => self.hub.publish(admitted, None),
                Outcome::Duplicate | Outcome::Refused(_) => {}
            }
        }
        self.publish(&fresh).await;
        for ((admitted, answer), outcome) in events.into_iter().zip(outcomes) {
            answer.decided(admitted.event().id, outcome);
        }
    }

    async fn do_chore(&mut self, chore: Work) {
        match chore {
            Work::Expire(answer) => {
                let _ = answer.send(self.store.expire(clock::now()).await);
            }
            Work::Purge(retention, answer) => {
                let _ = answer.send(self.store.purge(&retention, clock::now()).await);
            }
            Work::Event(..) => {}
        }
        self.publish(&HashMap::new()).await;
    }

    /// Hands what was committed since the last time to live subscriptions.
    async fn publish(&mut self, fresh: &HashMap<EventId, Admitted>) {
        loop {
            let rows = match self.store.outbox(self.published, OUTBOX_PAGE).await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::error!(%error, "committed events could not be read back; subscribers miss them");
                    self.published = *self.store.watch_outbox().borrow();
                    return;
                }
            };
            let Some(last) = rows.last() else { return };
            self.published = last.seq;
            for (id, seq) in became_effective(&rows) {
                match fresh.get(&id) {
                    Some(admitted) => self.hub.publish(admitted, Some(seq)),
                    None => self.publish_foreign(&id, seq, &rows).await,
                }
            }
        }
    }

    /// An event that another process took in.
    async fn publish_foreign(&self, id: &EventId, seq: Seq, rows: &[OutboxRow]) {
        let found = self.store.get(&[*id], clock::now()).await;
        let Ok(Some(stored)) = found.map(|mut found| found.pop().flatten()) else { return };
        let Ok(event) = stored.event() else { return };
        let topics: Vec<_> = rows.iter().filter(|row| row.event_id == *id).map(|row| row.topic.clone()).collect();
        self.hub.publish_event(&event, &topics, &stored.json, Some(seq));
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
