//! From the outbox to live subscriptions: delivers what was committed, by this process or another, in the order of the
//! outbox rows.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kukuri_domain::{Admitted, EventId, Millis};
use kukuri_store::{BoundEvent, Op, OutboxRow, Seq, Store, StoreError};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::index::LiveIndex;
use crate::{clock, metrics::EngineMetrics};

/// Outbox rows that are read at a time. Tests read in the smallest steps.
const PAGE_ROWS: usize = if cfg!(test) { 2 } else { 4_096 };
/// Events that may wait for delivery before no more rows are read.
const MAX_PENDING_EVENTS: usize = if cfg!(test) { 3 } else { 65_536 };
/// Events that are delivered before the tasks of clients get a turn to send them.
const EVENTS_PER_TURN: usize = 64;
/// After a failed read, the next try.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Delivers events that became effective.
pub(crate) struct LiveDelivery {
    store: Arc<dyn Store>,
    index: Arc<LiveIndex>,
    metrics: Arc<EngineMetrics>,
    heads: watch::Receiver<Seq>,
    /// Rows up to here were read.
    read: Seq,
    /// Events that became effective by these rows and are not delivered yet.
    pending: HashMap<EventId, PendingEvent>,
    failed_at: Option<Instant>,
}

/// The last outbox row of an event.
#[derive(Clone, Copy)]
struct PendingEvent {
    seq: Seq,
    written_at: Millis,
}

impl LiveDelivery {
    /// Starts at the present head.
    pub(crate) fn new(store: Arc<dyn Store>, index: Arc<LiveIndex>, metrics: Arc<EngineMetrics>) -> Self {
        let heads = store.watch_outbox();
        let read = *heads.borrow();
        Self { store, index, metrics, heads, read, pending: HashMap::new(), failed_at: None }
    }

    /// Returns when there may be something to deliver: another process has committed, or a retry is due.
    pub(crate) async fn due(&mut self) {
        match self.failed_at {
            Some(failed_at) => sleep_until(failed_at + RETRY_INTERVAL).await,
            None => {
                if self.heads.changed().await.is_err() {
                    // The store is gone: nothing will be committed.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Delivers what was committed since the last call. `fresh` are the events of this process's last batch. After an
    /// error events stay pending until a later call.
    pub(crate) async fn deliver_committed(&mut self, fresh: &HashMap<EventId, Admitted>) {
        match self.try_deliver(fresh).await {
            Ok(()) => {
                if self.failed_at.take().is_some() {
                    tracing::info!("the outbox can be read again; live delivery goes on");
                }
            }
            Err(error) => {
                if self.failed_at.replace(Instant::now()).is_none() {
                    tracing::error!(%error, "can't read committed events; live delivery waits and retries");
                }
            }
        }
    }

    async fn try_deliver(&mut self, fresh: &HashMap<EventId, Admitted>) -> Result<(), StoreError> {
        self.heads.mark_unchanged();
        loop {
            // All rows come first: a later one may delete an event again, or name another topic of it.
            let unfinished = self.read_rows().await?;
            self.deliver_pending(fresh, unfinished).await?;
            if unfinished.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads rows to the end, or until enough events are pending. Then the event of the last row is returned: more rows of
    /// it may follow.
    async fn read_rows(&mut self) -> Result<Option<EventId>, StoreError> {
        loop {
            let page = match self.store.outbox(self.read, PAGE_ROWS).await {
                Err(StoreError::Truncated { first, .. }) => {
                    tracing::error!(from = %self.read, to = %first, "outbox rows were purged before they were read: subscribers miss events");
                    self.read = Seq(first.0.saturating_sub(1));
                    continue;
                }
                page => page?,
            };
            let Some(last) = page.last() else { return Ok(None) };
            let (is_end, last_event) = (page.len() < PAGE_ROWS, last.event_id);
            self.read = last.seq;
            for OutboxRow { seq, op, event_id, written_at, .. } in page {
                match op {
                    Op::Upsert => drop(self.pending.insert(event_id, PendingEvent { seq, written_at })),
                    Op::Delete(_) => drop(self.pending.remove(&event_id)),
                }
            }
            if is_end {
                return Ok(None);
            }
            if self.pending.len() >= MAX_PENDING_EVENTS {
                return Ok(Some(last_event));
            }
        }
    }

    /// Delivers pending events in the order of their last rows, except one whose rows are not all read.
    async fn deliver_pending(
        &mut self,
        fresh: &HashMap<EventId, Admitted>,
        except: Option<EventId>,
    ) -> Result<(), StoreError> {
        if self.index.is_empty() {
            // A later subscription finds all of these stored.
            self.pending.retain(|id, _| Some(*id) == except);
            return Ok(());
        }
        let due = self.pending.iter().filter(|(id, _)| Some(**id) != except);
        let mut due: Vec<(EventId, PendingEvent)> = due.map(|(id, pending)| (*id, *pending)).collect();
        due.sort_unstable_by_key(|(_, pending)| pending.seq);
        for some in due.chunks(EVENTS_PER_TURN) {
            let of_others: Vec<EventId> = some.iter().map(|(id, _)| *id).filter(|id| !fresh.contains_key(id)).collect();
            let stored =
                if of_others.is_empty() { Vec::new() } else { self.store.get(&of_others, clock::now()).await? };
            let mut stored = stored.into_iter();
            for (id, pending) in some {
                self.pending.remove(id);
                let delivered = match fresh.get(id) {
                    Some(admitted) => self.index.deliver(admitted, Some(pending.seq)),
                    // An event that is no longer effective is not found.
                    None => stored.next().flatten().map_or(0, |bound| self.deliver_stored(&bound, pending)),
                };
                self.metrics.deliveries.increment(delivered as u64);
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Delivers an event of another process.
    fn deliver_stored(&self, BoundEvent { event: stored, topics, .. }: &BoundEvent, pending: &PendingEvent) -> usize {
        let delay = clock::now().0.saturating_sub(pending.written_at.0);
        self.metrics.other_process_delay.record(Duration::from_millis(delay));
        stored.event().map_or(0, |event| self.index.deliver_event(&event, topics, &stored.json, Some(pending.seq)))
    }
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Event, Filter, Viewer};
    use kukuri_store::{
        StoreRules,
        conformance::build::{NOW, OTHER_TOPIC, TOPIC, admitted, deletion, note, profile},
        model::ModelStore,
        port::*,
    };

    use super::*;
    use crate::live::{LiveFilter, Outgoing, client_queue};

    /// An outbox of another process's rows, read in the smallest steps.
    #[tokio::test]
    async fn events_of_other_processes_are_delivered_once_and_in_order() {
        // W-2, W-3
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let index = Arc::new(LiveIndex::new(None, Arc::default()));
        let metrics = Arc::new(EngineMetrics::register());
        let mut live = LiveDelivery::new(Arc::clone(&store) as _, Arc::clone(&index), metrics);
        let (queue, mut receiver) = client_queue();
        let filter = Filter::from_json(format!(r##"{{"#t":["{TOPIC}","{OTHER_TOPIC}"]}}"##)).unwrap();
        let _subscription =
            index.subscribe(vec![LiveFilter { filter, words: None }], Viewer::Client(Arc::default()), queue);

        let mut events: Vec<Event> = Vec::new();
        for number in 0..40 {
            let text = number.to_string();
            let draft = if number % 5 == 0 { profile(&text) } else { note(&text) };
            let draft = if number % 3 == 0 { draft.tag(["t", OTHER_TOPIC]) } else { draft };
            events.push(draft.at(number).build());
            if number % 7 == 6 {
                events.push(deletion().of(&events[number as usize - 3]).at(number).build());
            }
        }
        for some in events.chunks(6) {
            store.ingest(some.iter().map(admitted).collect(), NOW).await.unwrap();
            if some[0].id.as_bytes()[0] % 2 == 0 {
                live.deliver_committed(&HashMap::new()).await;
            }
        }
        live.deliver_committed(&HashMap::new()).await;

        let mut heard = Vec::new();
        while let Some(Outgoing::Live(delivery)) = receiver.next_if_ready() {
            let event = delivery.event;
            heard.push((event.seq.unwrap(), Event::from_json(&event.json).unwrap().id));
        }
        assert!(heard.is_sorted(), "in the order of their rows");
        let effective = store.get(&events.iter().map(|event| event.id).collect::<Vec<_>>(), NOW).await.unwrap();
        for BoundEvent { event, .. } in effective.iter().flatten() {
            let times = heard.iter().filter(|(_, id)| *id == event.id).count();
            assert_eq!(times, 1, "{}", String::from_utf8_lossy(&event.json));
        }
        let mut ids: Vec<EventId> = heard.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), heard.len(), "nothing comes twice");
    }
}
