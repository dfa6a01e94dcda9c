//! Exchange of items, the same in both directions: selects unknown ids, receives and submits items, sends items.

use std::collections::HashSet;

use bytes::Bytes;
use kukuri_domain::{Event, EventId, Refusal, State, TopicId};
use kukuri_store::{HintOutcome, Outcome, Shared, SharedSet};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    message::{Message, max_hint_len, max_item_len},
    report::SessionEnd,
    session::Session,
};

/// Items loaded from the store at a time: bounds memory.
const LOAD_ITEMS: usize = 32;
/// Bytes of hints that wait for the end of their part: more are applied at once, since a peer could send hints without end.
const MAX_PENDING_HINT_BYTES: usize = 1 << 20;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, S> {
    /// Selects the ids to ask for: not those of events that were stored, purged or permanently refused (G-7).
    pub(crate) async fn select_unknown(&mut self, ids: &[EventId]) -> Result<Vec<EventId>, SessionEnd> {
        let states = self.node.store().known_states(ids, self.node.now()).await?;
        let is_wanted = |(id, state): &(&EventId, Option<State>)| state.is_none() && self.node.wants(id);
        let unknown: Vec<_> = ids.iter().zip(states).filter(is_wanted).map(|(id, _)| *id).collect();
        self.report.known += (ids.len() - unknown.len()) as u64;
        Ok(unknown)
    }

    /// Receives and submits the wanted items, until the peer says that there are no more.
    pub(crate) async fn receive_items(&mut self, topic: &TopicId, wanted: &[EventId]) -> Result<(), SessionEnd> {
        let mut wanted: HashSet<EventId> = wanted.iter().copied().collect();
        while let Some(items) = self.next_items().await? {
            let bytes = items.iter().map(|(_, shared)| max_item_len(shared)).sum();
            self.throttle(items.len(), bytes).await;
            let mut events = Vec::with_capacity(items.len());
            for (id, shared) in items {
                if !wanted.remove(&id) {
                    return Err(SessionEnd::Misbehaved("an item was not asked for"));
                }
                match shared {
                    Shared::Event(json) => events.push(self.check_event(topic, &id, json)?),
                    Shared::Hint(hint) => self.pending_hints.push((hint, false)),
                }
            }
            self.submit_events(events).await?;
            let pending: usize = self.pending_hints.iter().map(|(hint, _)| max_hint_len(hint)).sum();
            if pending > MAX_PENDING_HINT_BYTES {
                self.apply_hints(topic, false).await?;
            }
        }
        Ok(())
    }

    /// The next of the wanted items. `None`: there are no more.
    pub(crate) async fn next_items(&mut self) -> Result<Option<Vec<(EventId, Shared)>>, SessionEnd> {
        match self.frames.receive_answer().await? {
            Message::Items { items } => self.count_message().map(|()| Some(items)),
            Message::ItemsEnd => Ok(None),
            _ => Err(SessionEnd::Misbehaved("Want was not answered by Items")),
        }
    }

    /// Checks that the JSON is the wanted event, by its true id, and of this topic, or a request (G-7, G-4). Returns the JSON as
    /// this node writes it, so that white space does not make it too long.
    fn check_event(&self, topic: &TopicId, id: &EventId, json: Bytes) -> Result<Bytes, SessionEnd> {
        let event = Event::from_json(&json).map_err(|_| SessionEnd::Misbehaved("an item is no event"))?;
        if event.id != *id || event.true_id() != *id {
            return Err(SessionEnd::Misbehaved("an item is another event"));
        }
        if !event.kind.is_request() && !self.node.is_bound(&event, topic) {
            return Err(SessionEnd::Misbehaved("an event is not of this topic"));
        }
        Ok(event.to_json())
    }

    async fn submit_events(&mut self, events: Vec<Bytes>) -> Result<(), SessionEnd> {
        if events.is_empty() {
            return Ok(());
        }
        let outcomes = self.node.submit(&self.peer, events).await.ok_or(SessionEnd::NoHistory)?;
        let mut end = Ok(());
        for outcome in outcomes {
            match outcome {
                Outcome::Stored | Outcome::Ephemeral => self.report.events_in += 1,
                Outcome::Duplicate => self.report.known += 1,
                Outcome::Refused(refusal) => {
                    *self.report.refused.entry(refusal.prefix()).or_default() += 1;
                    match refusal {
                        // No correct node stores such an event, so none can offer it.
                        Refusal::WrongSignature => {
                            end = Err(SessionEnd::Misbehaved("an event is not signed by its author"));
                        }
                        // Further history would be refused as well (P-6).
                        Refusal::LiveOnly | Refusal::Shed | Refusal::DiskFull if end.is_ok() => {
                            end = Err(SessionEnd::NoHistory);
                        }
                        _ => {}
                    }
                }
            }
        }
        end
    }

    /// Applies the received hints, after the events of their part. A hint whose request is missing here waits for one more
    /// part: a request is never older than its targets, but may be of the same second.
    pub(crate) async fn apply_hints(&mut self, topic: &TopicId, is_last: bool) -> Result<(), SessionEnd> {
        if self.pending_hints.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending_hints);
        let hints = pending.iter().map(|(hint, _)| hint.clone()).collect();
        let outcomes = self.node.raise_floors(topic, hints).await?;
        for ((hint, has_waited), outcome) in pending.into_iter().zip(outcomes) {
            match outcome {
                HintOutcome::Taken => self.report.hints_in += 1,
                HintOutcome::Known => self.report.known += 1,
                HintOutcome::Refused if is_last || has_waited => self.report.hints_refused += 1,
                HintOutcome::Refused => self.pending_hints.push((hint, true)),
            }
        }
        Ok(())
    }

    /// Sends the wanted items that are in the set.
    pub(crate) async fn send_items(&mut self, set: &SharedSet, ids: &[EventId]) -> Result<(), SessionEnd> {
        // A frame with several items takes no more than the rate limit passes in a second.
        let max_len = self.settings.max_frame_bytes.min(self.settings.bytes_per_second.max(1) as usize);
        let (mut items, mut length) = (Vec::new(), 1);
        for some in ids.chunks(LOAD_ITEMS) {
            let found = self.node.store().share(set, some).await?;
            for (id, shared) in some.iter().zip(found) {
                let fits = |shared: &Shared| max_item_len(shared) < self.settings.max_frame_bytes;
                let may_send = |shared: &Shared| match shared {
                    Shared::Hint(_) => true,
                    Shared::Event(json) => self.node.may_send(json, &set.topic),
                };
                let Some(shared) = shared.filter(fits).filter(may_send) else { continue };
                let is_full = length + max_item_len(&shared) > max_len || items.len() >= self.settings.batch_len();
                if is_full && !items.is_empty() {
                    self.send_frame(std::mem::take(&mut items)).await?;
                    length = 1;
                }
                length += max_item_len(&shared);
                items.push((*id, shared));
            }
        }
        if !items.is_empty() {
            self.send_frame(items).await?;
        }
        self.frames.send(&Message::ItemsEnd).await
    }

    async fn send_frame(&mut self, items: Vec<(EventId, Shared)>) -> Result<(), SessionEnd> {
        let bytes = items.iter().map(|(_, shared)| max_item_len(shared)).sum();
        self.throttle(items.len(), bytes).await;
        let hints = items.iter().filter(|(_, shared)| matches!(shared, Shared::Hint(_))).count() as u64;
        self.report.hints_out += hints;
        self.report.events_out += items.len() as u64 - hints;
        self.frames.send(&Message::Items { items }).await
    }
}
