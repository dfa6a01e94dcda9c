//! Items that are asked for and given: the same in both directions.

use std::collections::HashSet;

use bytes::Bytes;
use kukuri_domain::{Event, EventId, Refusal, State, TopicId};
use kukuri_store::{HintOutcome, Outcome, Shared, SharedSet};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    message::{Message, length_of},
    node::NoHistory,
    report::End,
    session::Session,
};

/// Items that are looked up at a time: events may be long.
const LOOKED_UP: usize = 32;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, S> {
    /// Which of these are not known here: what was stored, purged or refused for good is not asked for again (G-7).
    pub(crate) async fn unknown(&mut self, ids: &[EventId]) -> Result<Vec<EventId>, End> {
        let states = self.node.store().recall(ids, self.node.now()).await?;
        let is_wanted = |(id, state): &(&EventId, Option<State>)| state.is_none() && self.node.wants(id);
        let unknown: Vec<_> = ids.iter().zip(states).filter(is_wanted).map(|(id, _)| *id).collect();
        self.report.known += (ids.len() - unknown.len()) as u64;
        Ok(unknown)
    }

    /// Takes what was asked for, until the other says that there is no more.
    pub(crate) async fn take(&mut self, topic: &TopicId, wanted: &[EventId]) -> Result<(), End> {
        let mut wanted: HashSet<EventId> = wanted.iter().copied().collect();
        loop {
            let items = match self.line.receive().await? {
                Message::Items { items } => items,
                Message::Given => return Ok(()),
                Message::Bye { why } => return Err(why.end()),
                _ => return Err(End::Misbehaved("items were asked for")),
            };
            self.round()?;
            let bytes = items.iter().map(|(_, shared)| length_of(shared)).sum();
            self.items.spend(items.len()).await;
            self.bytes.spend(bytes).await;
            let mut events = Vec::with_capacity(items.len());
            for (id, shared) in items {
                if !wanted.remove(&id) {
                    return Err(End::Misbehaved("an item was not asked for"));
                }
                match shared {
                    Shared::Event(json) => events.push(self.look_at(topic, &id, json)?),
                    Shared::Hint(hint) => self.hints.push(hint),
                }
            }
            self.take_in(events).await?;
        }
    }

    /// Whether it is the event that was asked for, whatever it says of itself, and may be told of this topic: requests may
    /// be of any (G-7, G-4). It goes on as it is spelled here, so that white space does not make it too long.
    fn look_at(&self, topic: &TopicId, id: &EventId, json: Bytes) -> Result<Bytes, End> {
        let event = Event::from_json(&json).map_err(|_| End::Misbehaved("an item is no event"))?;
        if event.id != *id || event.true_id() != *id {
            return Err(End::Misbehaved("an item is another event"));
        }
        if !event.kind.is_request() && !self.node.is_bound(&event, topic) {
            return Err(End::Misbehaved("an event is not of this topic"));
        }
        Ok(event.to_json())
    }

    async fn take_in(&mut self, events: Vec<Bytes>) -> Result<(), End> {
        if events.is_empty() {
            return Ok(());
        }
        let outcomes = self.node.take(&self.peer, events).await.map_err(|NoHistory| End::NoHistory)?;
        let (mut has_room, mut is_signed) = (true, true);
        for outcome in outcomes {
            match outcome {
                Outcome::Stored | Outcome::Ephemeral => self.report.events_in += 1,
                Outcome::Duplicate => self.report.known += 1,
                Outcome::Refused(refusal) => {
                    has_room &= !is_for_want_of_room(&refusal);
                    is_signed &= refusal != Refusal::WrongSignature;
                    *self.report.refused.entry(refusal.prefix()).or_default() += 1;
                }
            }
        }
        match (is_signed, has_room) {
            // No node keeps such an event, so none has it to give.
            (false, _) => Err(End::Misbehaved("an event is not signed by its author")),
            (true, false) => Err(End::NoHistory),
            (true, true) => Ok(()),
        }
    }

    /// Takes the hints that have come, after the events of their part. Those of requests that are not here yet wait for
    /// one more part: a request is never older than what it names, but may be of the same second.
    pub(crate) async fn raise(&mut self, topic: &TopicId, is_last: bool) -> Result<(), End> {
        if self.hints.is_empty() {
            return Ok(());
        }
        let hints = std::mem::take(&mut self.hints);
        let outcomes = self.node.raise(topic, hints.clone()).await?;
        for (hint, outcome) in hints.into_iter().zip(outcomes) {
            match outcome {
                HintOutcome::Taken => self.report.hints_in += 1,
                HintOutcome::Known => self.report.known += 1,
                HintOutcome::Refused if is_last || self.waited.contains(&hint.floor.id) => {
                    self.report.hints_refused += 1;
                }
                HintOutcome::Refused => self.hints.push(hint),
            }
        }
        self.waited = self.hints.iter().map(|hint| hint.floor.id).collect();
        Ok(())
    }

    /// Gives what was asked for, as far as it is in the set.
    pub(crate) async fn give(&mut self, set: &SharedSet, ids: &[EventId]) -> Result<(), End> {
        let (mut items, mut length) = (Vec::new(), 1);
        for some in ids.chunks(LOOKED_UP) {
            let found = self.node.store().share(set, some).await?;
            for (id, shared) in some.iter().zip(found) {
                let fits = |shared: &Shared| length_of(shared) < self.settings.frame_bytes;
                let Some(shared) = shared.filter(fits) else { continue };
                let is_full = length + length_of(&shared) > self.frame() || items.len() >= self.settings.batch();
                if is_full && !items.is_empty() {
                    self.hand_over(std::mem::take(&mut items)).await?;
                    length = 1;
                }
                length += length_of(&shared);
                items.push((*id, shared));
            }
        }
        if !items.is_empty() {
            self.hand_over(items).await?;
        }
        self.line.send(&Message::Given).await
    }

    /// How long a frame with several items is at most: what may pass in about a second.
    fn frame(&self) -> usize {
        self.settings.frame_bytes.min(self.settings.bytes_per_second.max(1) as usize)
    }

    async fn hand_over(&mut self, items: Vec<(EventId, Shared)>) -> Result<(), End> {
        let bytes = items.iter().map(|(_, shared)| length_of(shared)).sum();
        self.items.spend(items.len()).await;
        self.bytes.spend(bytes).await;
        let hints = items.iter().filter(|(_, shared)| matches!(shared, Shared::Hint(_))).count() as u64;
        self.report.hints_out += hints;
        self.report.events_out += items.len() as u64 - hints;
        self.line.send(&Message::Items { items }).await
    }
}

/// Whatever comes next would be refused, too (P-6).
fn is_for_want_of_room(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::LiveOnly | Refusal::Shed | Refusal::Full | Refusal::DiskFull)
}
