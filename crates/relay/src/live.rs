//! From the outbox to live subscriptions: what was committed, by this process or another, in the order of its rows.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kukuri_domain::{Admitted, EventId, Millis};
use kukuri_store::{BoundEvent, Op, OutboxRow, Seq, Store, StoreError};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{clock, hub::Hub, metrics::Metrics};

/// Rows that are read at a time.
const PAGE: usize = 4_096;
/// So many events may wait to be handed on before no more rows are read.
const MOST_WAITING: usize = 65_536;
/// So many events are made live before clients get a turn to take them.
const AT_ONCE: usize = 64;
/// After a failure it is tried again: what is not handed on now is handed on later.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Hands on what becomes effective.
pub(crate) struct Live {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
    heads: watch::Receiver<Seq>,
    /// Rows up to here were read.
    read: Seq,
    /// What they left effective and nobody was told of yet.
    waiting: HashMap<EventId, Waiting>,
    failed_at: Option<Instant>,
    page: usize,
    most_waiting: usize,
}

/// An event that waits: its last row.
struct Waiting {
    seq: Seq,
    written_at: Millis,
}

/// An event to be handed on, as this process took it in or as it was read.
enum Found<'f> {
    Fresh(&'f Admitted),
    Stored(BoundEvent),
}

impl Live {
    /// From the present head on.
    pub(crate) fn new(store: Arc<dyn Store>, hub: Arc<Hub>, metrics: Arc<Metrics>) -> Self {
        let heads = store.watch_outbox();
        let read = *heads.borrow();
        Self {
            store,
            hub,
            metrics,
            heads,
            read,
            waiting: HashMap::new(),
            failed_at: None,
            page: PAGE,
            most_waiting: MOST_WAITING,
        }
    }

    /// Ends when there may be something to hand on.
    pub(crate) async fn called(&mut self) {
        match self.failed_at {
            Some(failed_at) => sleep_until(failed_at + TRY_AGAIN).await,
            None => {
                if self.heads.changed().await.is_err() {
                    // Nobody is left who could write.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Hands on what was committed since the last time. `fresh` is what this process took in just now.
    pub(crate) async fn hand_on(&mut self, fresh: &HashMap<EventId, Admitted>) {
        match self.try_to_hand_on(fresh).await {
            Ok(()) => {
                if self.failed_at.take().is_some() {
                    tracing::info!("the outbox can be read again; live events go on");
                }
            }
            Err(error) => {
                if self.failed_at.replace(Instant::now()).is_none() {
                    tracing::error!(%error, "committed events can't be read back; live events wait");
                }
            }
        }
    }

    async fn try_to_hand_on(&mut self, fresh: &HashMap<EventId, Admitted>) -> Result<(), StoreError> {
        self.heads.mark_unchanged();
        loop {
            // All rows are looked at first: a later one may take an event away again, or name another topic of it.
            let last = self.read_rows().await?;
            self.empty(fresh, last).await?;
            if last.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads rows to the end, or until enough waits. If there may be more of them: the last event they name.
    async fn read_rows(&mut self) -> Result<Option<EventId>, StoreError> {
        loop {
            let page = match self.store.outbox(self.read, self.page).await {
                Err(StoreError::Truncated { first, .. }) => {
                    tracing::error!(from = %self.read, to = %first, "subscribers miss events: their outbox rows are gone");
                    self.read = Seq(first.0.saturating_sub(1));
                    continue;
                }
                page => page?,
            };
            let Some(last) = page.last() else { return Ok(None) };
            let (is_end, last_event) = (page.len() < self.page, last.event_id);
            self.read = last.seq;
            page.into_iter().for_each(|row| self.note(row));
            if is_end {
                return Ok(None);
            }
            if self.waiting.len() >= self.most_waiting {
                return Ok(Some(last_event));
            }
        }
    }

    fn note(&mut self, row: OutboxRow) {
        let OutboxRow { seq, op, event_id, written_at, .. } = row;
        match op {
            Op::Upsert => drop(self.waiting.insert(event_id, Waiting { seq, written_at })),
            Op::Delete(_) => drop(self.waiting.remove(&event_id)),
        }
    }

    /// Hands on what waits, in the order of the last rows, but not `unless`: more rows of it may follow.
    async fn empty(&mut self, fresh: &HashMap<EventId, Admitted>, unless: Option<EventId>) -> Result<(), StoreError> {
        if self.hub.is_empty() {
            // Who subscribes from now on finds all of it stored.
            self.waiting.retain(|id, _| Some(*id) == unless);
            return Ok(());
        }
        let mut order: Vec<(Seq, EventId)> = self.waiting.iter().map(|(id, waiting)| (waiting.seq, *id)).collect();
        order.retain(|(_, id)| Some(*id) != unless);
        order.sort_unstable();
        for ids in order.chunks(AT_ONCE) {
            for (id, found) in self.find(ids, fresh).await? {
                let Some(waiting) = self.waiting.remove(&id) else { continue };
                if let Some(found) = found {
                    self.publish(&found, &waiting);
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Events by their ids, those of other processes from the store. What is not effective any more is not found.
    async fn find<'f>(
        &self,
        ids: &[(Seq, EventId)],
        fresh: &'f HashMap<EventId, Admitted>,
    ) -> Result<Vec<(EventId, Option<Found<'f>>)>, StoreError> {
        let foreign: Vec<EventId> = ids.iter().map(|(_, id)| *id).filter(|id| !fresh.contains_key(id)).collect();
        let mut stored = Vec::new();
        if !foreign.is_empty() {
            stored = self.store.get(&foreign, clock::now()).await?;
        }
        let mut stored = stored.into_iter();
        let found = ids.iter().map(|(_, id)| match fresh.get(id) {
            Some(admitted) => (*id, Some(Found::Fresh(admitted))),
            None => (*id, stored.next().flatten().map(Found::Stored)),
        });
        Ok(found.collect())
    }

    fn publish(&self, found: &Found<'_>, waiting: &Waiting) {
        let seq = Some(waiting.seq);
        let delivered = match found {
            Found::Fresh(admitted) => self.hub.publish(admitted, seq),
            Found::Stored(BoundEvent { event: stored, topics, .. }) => {
                let lag = clock::now().0.saturating_sub(waiting.written_at.0);
                self.metrics.foreign_lag_seconds.record(Duration::from_millis(lag));
                let Ok(event) = stored.event() else { return };
                self.hub.publish_event(&event, topics, &stored.json, seq)
            }
        };
        self.metrics.deliveries.increment(delivered as u64);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use kukuri_domain::{Event, Filter, Viewer};
    use kukuri_store::{
        StoreRules,
        conformance::build::{NOW, OTHER_TOPIC, TOPIC, admitted, deletion, note, profile},
        model::ModelStore,
    };

    use super::*;
    use crate::{
        hub::Asked,
        queue::{Outgoing, queue},
    };

    /// Everything that an outbox of others' rows can hold, read in the smallest steps.
    #[tokio::test]
    async fn events_of_others_come_once_and_in_order_however_few_rows_are_read_at_a_time() {
        // W-2, W-3
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let hub = Arc::new(Hub::new(None));
        let mut live = Live::new(Arc::clone(&store) as _, Arc::clone(&hub), Arc::new(Metrics::new()));
        (live.page, live.most_waiting) = (2, 3);
        let (queue, mut receiver) = queue();
        let filter = Filter::from_json(format!(r##"{{"#t":["{TOPIC}","{OTHER_TOPIC}"]}}"##)).unwrap();
        let _ticket = hub.subscribe(vec![Asked { filter, words: None }], Viewer::Client(Arc::default()), queue);

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
                live.hand_on(&HashMap::new()).await;
            }
        }
        live.hand_on(&HashMap::new()).await;

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
