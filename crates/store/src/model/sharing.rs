//! The model's shared set of a topic, and its handling of floor hints.

use async_trait::async_trait;
use kukuri_domain::{
    Event, EventId, Kind, Millis, Reason, TopicId,
    deletion::DeletionTargetKind,
    sharing::{self, FloorHint, Held, HintVerdict, Trace},
};

use super::{
    ModelStore,
    memory::{Memory, Noted, Row},
};
use crate::{
    error::Result,
    port::Sharing,
    sharing::{HintOutcome, Item, Raised, Shared, SharedPage, SharedSet, Span},
};

#[async_trait]
impl Sharing for ModelStore {
    async fn shared(&self, set: &SharedSet, span: Span, limit: usize) -> Result<SharedPage> {
        let memory = self.memory();
        let events = memory.shown(set).map(|row| Item { created_at: row.event.created_at, id: row.event.id });
        let traces = memory.traces.keys().filter(|(topic, _)| *topic == set.topic).map(|(_, item)| *item);
        Ok(SharedPage::first(limit, events.chain(traces).filter(|item| span.contains(item)).collect()))
    }

    async fn share(&self, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>> {
        let memory = self.memory();
        let of_id = |id: &EventId| {
            if let Some(row) = memory.shown(set).find(|row| row.event.id == *id) {
                return Some(Shared::Event(row.json.clone()));
            }
            match memory.traces.iter().find(|((topic, item), _)| *topic == set.topic && item.id == *id)?.1 {
                Trace::Request { id, .. } => memory.effective(id).map(|row| Shared::Event(row.json.clone())),
                Trace::Hint(hint) => Some(Shared::Hint(hint.clone())),
            }
        };
        Ok(ids.iter().map(of_id).collect())
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>, now: Millis) -> Result<Raised> {
        Ok(self.write(|memory| {
            memory.tick(now);
            let mut raised = Raised::default();
            for hint in &hints {
                raised.outcomes.push(memory.apply_hint(topic, hint));
                raised.stages.extend(memory.update_stages());
            }
            raised.head = memory.head;
            raised
        }))
    }
}

impl Memory {
    fn shown(&self, set: &SharedSet) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter().filter(|row| row.effective && row.topics.contains(&set.topic));
        rows.filter(|row| set.window.shows(&row.event))
    }

    fn effective(&self, id: &EventId) -> Option<&Row> {
        self.row(id).filter(|row| row.effective)
    }

    /// The topics whose shared sets contain a row: its own topics, and those in which it left a trace.
    pub(super) fn topics_reached(&self, id: &EventId) -> Vec<TopicId> {
        let bound = self.row(id).into_iter().flat_map(|row| row.topics.iter().cloned());
        let is_trace = |trace: &Trace| matches!(trace, Trace::Request { id: request, .. } if request == id);
        let traced = self.traces.iter().filter(|(_, trace)| is_trace(trace)).map(|((topic, _), _)| topic.clone());
        bound.chain(traced).collect()
    }

    /// Stores a trace if its request is stored and may be passed on. Returns whether the trace is new.
    pub(super) fn leave_trace(&mut self, topic: TopicId, trace: Trace) -> bool {
        if !self.effective(&trace.request()).is_some_and(|row| sharing::may_pass_on(&row.event)) {
            return false;
        }
        let item = Item::new(trace.item());
        if self.traces.keys().any(|(traced, known)| *traced == topic && known.id == item.id) {
            return false;
        }
        self.traces.insert((topic, item), trace);
        true
    }

    /// Removes the traces of a request that was removed.
    pub(super) fn drop_traces(&mut self, request: &EventId) {
        self.traces.retain(|_, trace| trace.request() != *request);
    }

    fn apply_hint(&mut self, topic: &TopicId, hint: &FloorHint) -> HintOutcome {
        let request: Option<Event> = self.effective(&hint.request).map(|row| row.event.clone());
        let target = (DeletionTargetKind::EventId(hint.floor.id), hint.key.pubkey());
        let held = Held {
            is_known: self.ids.contains_key(&hint.floor.id),
            request: request.as_ref().filter(|request| request.kind == Kind::DELETION),
            tombstone: self.tombstones.get(&target).map(|noted| &noted.what),
            key: self.key(&hint.key),
        };
        let (raises, below, is_passed_on) = match sharing::weigh(hint, &held) {
            HintVerdict::AlreadyKnown => return HintOutcome::Known,
            HintVerdict::Refused => return HintOutcome::Refused,
            HintVerdict::Taken { raises, below, is_passed_on } => (raises, below, is_passed_on),
        };
        if let Some(below) = below {
            self.retire(&below, Reason::Replaced, Some(hint.floor.id));
        }
        if raises {
            self.floors.insert(hint.key.clone(), Noted { what: hint.floor, at: self.clock.latest });
        }
        let mut is_new = raises;
        if let Some(request) = request.filter(|_| is_passed_on) {
            is_new |= self.leave_trace(topic.clone(), Trace::of(&request));
            is_new |= self.leave_trace(topic.clone(), Trace::Hint(hint.clone()));
        }
        if is_new { HintOutcome::Taken } else { HintOutcome::Known }
    }
}
