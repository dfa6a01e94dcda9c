//! From the outbox to live subscriptions: delivers what was committed, by this process or another, in the order of the
//! outbox rows.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use kukuri_domain::{Admitted, EventId, Millis, TopicId};
use kukuri_store::{BoundEvent, Epoch, Op, OutboxRow, Seq, Store, StoreError};
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
/// Outbox rows that are remembered, to find the row at which a store that went back differs (Y-5).
const MAX_REMEMBERED_ROWS: usize = 4_096;
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
    epochs: watch::Receiver<Epoch>,
    /// The history that `read` belongs to (Y-5).
    epoch: Epoch,
    /// Rows up to here were read.
    read: Seq,
    /// The last rows that were read.
    remembered: VecDeque<(Seq, EventId)>,
    /// Sequences up to here were told before the store went back: subscribers would take new rows with them for old ones.
    reused_until: Seq,
    /// Events that became effective by these rows and are not delivered yet.
    pending: HashMap<EventId, PendingEvent>,
    failed_at: Option<Instant>,
}

/// The last outbox row of an event.
#[derive(Default)]
struct PendingEvent {
    seq: Seq,
    written_at: Millis,
    /// Of a request: the topics that it is bound to, which may be others than it names (T-9).
    bound: Vec<TopicId>,
}

impl PendingEvent {
    fn add(&mut self, row: OutboxRow) {
        (self.seq, self.written_at) = (row.seq, row.written_at);
        self.bound.extend(row.kind.is_request().then_some(row.topic));
    }
}

impl LiveDelivery {
    /// Starts at the present head.
    pub(crate) fn new(store: Arc<dyn Store>, index: Arc<LiveIndex>, metrics: Arc<EngineMetrics>) -> Self {
        let heads = store.watch_outbox();
        let read = *heads.borrow();
        let epochs = store.watch_epoch();
        let epoch = *epochs.borrow();
        Self {
            store,
            index,
            metrics,
            heads,
            epochs,
            epoch,
            read,
            remembered: VecDeque::new(),
            reused_until: Seq::default(),
            pending: HashMap::new(),
            failed_at: None,
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
        let epoch = *self.epochs.borrow();
        if epoch != self.epoch {
            self.return_to_shared_row().await?;
            self.epoch = epoch;
        }
        loop {
            // All rows come first: a later one may delete an event again, or name another topic of it.
            let unfinished = self.read_rows().await?;
            self.deliver_pending(fresh, unfinished).await?;
            if unfinished.is_none() {
                return Ok(());
            }
        }
    }

    /// After the store went back (Y-5): continues after the last row that both histories have. If no remembered row is among
    /// them, continues some rows before the present head: an event may then be delivered twice, but none is skipped.
    async fn return_to_shared_row(&mut self) -> Result<(), StoreError> {
        let head = *self.heads.borrow();
        let first = self.remembered.front().map_or(head, |(seq, _)| *seq);
        let rows = match self.store.outbox_for_delivery(Seq(first.0.saturating_sub(1)), MAX_REMEMBERED_ROWS).await {
            Err(StoreError::Truncated { .. }) => Vec::new(),
            rows => rows?,
        };
        // From the oldest on: rows of the other history may have been read before its epoch was known.
        let both = self.remembered.iter().zip(&rows);
        let shared = both.take_while(|((seq, id), row)| *seq == row.seq && *id == row.event_id).count();
        let from = match shared.checked_sub(1).and_then(|last| self.remembered.get(last)) {
            Some((seq, _)) => *seq,
            None => Seq(head.0.saturating_sub(MAX_REMEMBERED_ROWS as u64)).min(self.read),
        };
        tracing::warn!(
            read = %self.read, %head, %from,
            "the store went back to an older state (a fail-over that lost commits, or a restore); live delivery reads the outbox again"
        );
        self.remembered.truncate(shared);
        self.pending.retain(|_, pending| pending.seq <= from);
        self.reused_until = self.reused_until.max(self.read);
        self.read = from;
        Ok(())
    }

    /// Reads rows to the end, or until enough events are pending. Then the event of the last row is returned: more rows of
    /// it may follow.
    async fn read_rows(&mut self) -> Result<Option<EventId>, StoreError> {
        loop {
            let page = match self.store.outbox_for_delivery(self.read, PAGE_ROWS).await {
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
            self.remember(&page);
            for row in page {
                match row.op {
                    Op::Upsert => self.pending.entry(row.event_id).or_default().add(row),
                    Op::Delete(_) => drop(self.pending.remove(&row.event_id)),
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

    fn remember(&mut self, page: &[OutboxRow]) {
        self.remembered.extend(page.iter().map(|row| (row.seq, row.event_id)));
        let over = self.remembered.len().saturating_sub(MAX_REMEMBERED_ROWS);
        self.remembered.drain(..over);
    }

    /// The sequence that subscribers compare with that of their stored events (W-2). A reused one is left out: the event is new.
    fn told_seq(&self, pending: &PendingEvent) -> Option<Seq> {
        (pending.seq > self.reused_until).then_some(pending.seq)
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
        let mut due: Vec<(EventId, Seq)> = due.map(|(id, pending)| (*id, pending.seq)).collect();
        due.sort_unstable_by_key(|(_, seq)| *seq);
        for some in due.chunks(EVENTS_PER_TURN) {
            let of_others: Vec<EventId> = some.iter().map(|(id, _)| *id).filter(|id| !fresh.contains_key(id)).collect();
            let stored = match of_others.is_empty() {
                true => Vec::new(),
                false => self.store.get_for_delivery(&of_others, clock::now()).await?,
            };
            let mut stored = stored.into_iter();
            for (id, _) in some {
                let pending = self.pending.remove(id).unwrap_or_default();
                let delivered = match fresh.get(id) {
                    Some(admitted) if pending.bound.is_empty() => self.index.deliver(admitted, self.told_seq(&pending)),
                    Some(request) => {
                        let seq = self.told_seq(&pending);
                        self.index.deliver_event(request.event(), &pending.bound, request.json(), seq)
                    }
                    // An event that is no longer effective is not found.
                    None => stored.next().flatten().map_or(0, |bound| self.deliver_stored(&bound, &pending)),
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
        let seq = self.told_seq(pending);
        stored.event().map_or(0, |event| self.index.deliver_event(&event, topics, &stored.json, seq))
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
            index.subscribe(vec![LiveFilter { filter, words: None }], &Viewer::unauthenticated(), &queue);

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

    #[tokio::test]
    async fn rows_of_a_store_that_went_back_are_delivered_and_none_twice() {
        // Y-5
        for (lost, new) in [(5_u64, 3_u64), (5, 9), (0, 2), (12, 4)] {
            let store = Arc::new(ModelStore::new(StoreRules::default()));
            let index = Arc::new(LiveIndex::new(None, Arc::default()));
            let metrics = Arc::new(EngineMetrics::register());
            let mut live = LiveDelivery::new(Arc::clone(&store) as _, Arc::clone(&index), metrics);
            let (queue, mut receiver) = client_queue();
            let filter = Filter::from_json(format!(r##"{{"#t":["{TOPIC}"]}}"##)).unwrap();
            let _subscription =
                index.subscribe(vec![LiveFilter { filter, words: None }], &Viewer::unauthenticated(), &queue);
            let mut heard = || {
                let mut ids = Vec::new();
                while let Some(Outgoing::Live(delivery)) = receiver.next_if_ready() {
                    ids.push((delivery.event.id, delivery.event.seq));
                }
                ids
            };
            let send = async |text: String| {
                let event = note(&text).build();
                store.ingest(vec![admitted(&event)], NOW).await.unwrap();
                event.id
            };
            for number in 0..12 - lost {
                send(format!("kept {number}")).await;
            }
            let replica = store.save();
            for number in 0..lost {
                send(format!("lost {number}")).await;
            }
            live.deliver_committed(&HashMap::new()).await;
            assert_eq!(heard().len(), 12);

            store.go_back(&replica);
            let mut expected = Vec::new();
            for number in 0..new {
                expected.push(send(format!("new {number}")).await);
            }
            live.deliver_committed(&HashMap::new()).await;
            let found = heard();
            assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected, "{lost} lost, {new} new");
            let is_taken_for_new = |(_, seq): &(EventId, Option<Seq>)| seq.is_none_or(|seq| seq > Seq(12));
            assert!(found.iter().all(is_taken_for_new), "a subscriber that has read up to 12 takes them");
        }
    }
}
