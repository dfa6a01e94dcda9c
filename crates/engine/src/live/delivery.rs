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

/// Outbox rows that are read at a time.
const PAGE_ROWS: usize = 4_096;
/// Events that may wait for delivery before no more rows are read.
const MAX_PENDING_EVENTS: usize = 65_536;
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
    page_rows: usize,
    max_pending: usize,
}

/// The last outbox row of an event.
struct PendingEvent {
    seq: Seq,
    written_at: Millis,
}

/// An event to deliver: admitted by this process just now, or read from the store.
enum LiveSource<'f> {
    Fresh(&'f Admitted),
    Stored(BoundEvent),
}

impl LiveDelivery {
    /// Starts at the present head.
    pub(crate) fn new(store: Arc<dyn Store>, index: Arc<LiveIndex>, metrics: Arc<EngineMetrics>) -> Self {
        let heads = store.watch_outbox();
        let read = *heads.borrow();
        Self {
            store,
            index,
            metrics,
            heads,
            read,
            pending: HashMap::new(),
            failed_at: None,
            page_rows: PAGE_ROWS,
            max_pending: MAX_PENDING_EVENTS,
        }
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
            let page = match self.store.outbox(self.read, self.page_rows).await {
                Err(StoreError::Truncated { first, .. }) => {
                    tracing::error!(from = %self.read, to = %first, "outbox rows were purged before they were read: subscribers miss events");
                    self.read = Seq(first.0.saturating_sub(1));
                    continue;
                }
                page => page?,
            };
            let Some(last) = page.last() else { return Ok(None) };
            let (is_end, last_event) = (page.len() < self.page_rows, last.event_id);
            self.read = last.seq;
            page.into_iter().for_each(|row| self.apply_row(row));
            if is_end {
                return Ok(None);
            }
            if self.pending.len() >= self.max_pending {
                return Ok(Some(last_event));
            }
        }
    }

    fn apply_row(&mut self, row: OutboxRow) {
        let OutboxRow { seq, op, event_id, written_at, .. } = row;
        match op {
            Op::Upsert => drop(self.pending.insert(event_id, PendingEvent { seq, written_at })),
            Op::Delete(_) => drop(self.pending.remove(&event_id)),
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
        let mut order: Vec<(Seq, EventId)> = self.pending.iter().map(|(id, pending)| (pending.seq, *id)).collect();
        order.retain(|(_, id)| Some(*id) != except);
        order.sort_unstable();
        for ids in order.chunks(EVENTS_PER_TURN) {
            for (id, found) in self.load_events(ids, fresh).await? {
                let Some(pending) = self.pending.remove(&id) else { continue };
                if let Some(found) = found {
                    self.deliver_one(&found, &pending);
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Events by id; those of other processes are read from the store. One that is no longer effective is not found.
    async fn load_events<'f>(
        &self,
        ids: &[(Seq, EventId)],
        fresh: &'f HashMap<EventId, Admitted>,
    ) -> Result<Vec<(EventId, Option<LiveSource<'f>>)>, StoreError> {
        let of_others: Vec<EventId> = ids.iter().map(|(_, id)| *id).filter(|id| !fresh.contains_key(id)).collect();
        let mut stored = Vec::new();
        if !of_others.is_empty() {
            stored = self.store.get(&of_others, clock::now()).await?;
        }
        let mut stored = stored.into_iter();
        let found = ids.iter().map(|(_, id)| match fresh.get(id) {
            Some(admitted) => (*id, Some(LiveSource::Fresh(admitted))),
            None => (*id, stored.next().flatten().map(LiveSource::Stored)),
        });
        Ok(found.collect())
    }

    fn deliver_one(&self, found: &LiveSource<'_>, pending: &PendingEvent) {
        let seq = Some(pending.seq);
        let delivered = match found {
            LiveSource::Fresh(admitted) => self.index.deliver(admitted, seq),
            LiveSource::Stored(BoundEvent { event: stored, topics, .. }) => {
                let delay = clock::now().0.saturating_sub(pending.written_at.0);
                self.metrics.other_process_delay.record(Duration::from_millis(delay));
                let Ok(event) = stored.event() else { return };
                self.index.deliver_event(&event, topics, &stored.json, seq)
            }
        };
        self.metrics.deliveries.increment(delivered as u64);
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
    use crate::{
        live::{LiveFilter, Outgoing, client_queue},
        visibility::SharedVisibility,
    };

    /// An outbox of another process's rows, read in the smallest steps.
    #[tokio::test]
    async fn events_of_other_processes_are_delivered_once_and_in_order() {
        // W-2, W-3
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let index = Arc::new(LiveIndex::new(None, SharedVisibility::default()));
        let metrics = Arc::new(EngineMetrics::register());
        let mut live = LiveDelivery::new(Arc::clone(&store) as _, Arc::clone(&index), metrics);
        (live.page_rows, live.max_pending) = (2, 3);
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
