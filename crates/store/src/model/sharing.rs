//! The model's shared set of a topic, and its handling of floor hints.

use kukuri_domain::{
    Event, EventId, Kind, Millis, Reason, TopicId,
    deletion::DeletionTargetKind,
    sharing::{self, FloorHint, Held, HintVerdict, Trace},
};

use super::memory::{Memory, Noted, Row};
use crate::sharing::{HintOutcome, Item, Raised, Shared, SharedPage, SharedSet, Span};

impl Memory {
    /// The first items of a span of the set.
    pub(super) fn shared(&self, set: &SharedSet, span: Span, most: usize) -> SharedPage {
        let events = self.shown(set).map(|row| Item { created_at: row.event.created_at, id: row.event.id });
        let traces = self.traces.iter().filter(|((topic, _), _)| *topic == set.topic).map(|((_, item), _)| *item);
        SharedPage::first(most, events.chain(traces).filter(|item| span.contains(item)).collect())
    }

    pub(super) fn share(&self, set: &SharedSet, ids: &[EventId]) -> Vec<Option<Shared>> {
        let of_id = |id: &EventId| {
            if let Some(row) = self.shown(set).find(|row| row.event.id == *id) {
                return Some(Shared::Event(row.json.clone()));
            }
            match self.traces.iter().find(|((topic, item), _)| *topic == set.topic && item.id == *id)?.1 {
                Trace::Request { id, .. } => self.effective(id).map(|row| Shared::Event(row.json.clone())),
                Trace::Hint(hint) => Some(Shared::Hint(hint.clone())),
            }
        };
        ids.iter().map(of_id).collect()
    }

    fn shown(&self, set: &SharedSet) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter().filter(|row| row.effective && row.topics.contains(&set.topic));
        rows.filter(|row| set.window.shows(&row.event))
    }

    fn effective(&self, id: &EventId) -> Option<&Row> {
        self.rows.iter().find(|row| row.effective && row.event.id == *id)
    }

    /// The topics whose shared sets contain a row: its own topics, and those in which it left a trace.
    pub(super) fn topics_reached(&self, id: &EventId) -> Vec<TopicId> {
        let row = self.rows.iter().find(|row| row.event.id == *id);
        let bound = row.into_iter().flat_map(|row| row.topics.iter().cloned());
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

    pub(super) fn raise_floors(&mut self, topic: &TopicId, hints: &[FloorHint], now: Millis) -> Raised {
        self.clock = self.clock.tick(now);
        let mut raised = Raised::default();
        for hint in hints {
            raised.outcomes.push(self.take_hint(topic, hint));
            raised.stages.extend(self.update_stages());
        }
        raised.head = self.head;
        raised
    }

    fn take_hint(&mut self, topic: &TopicId, hint: &FloorHint) -> HintOutcome {
        let request: Option<Event> = self.effective(&hint.request).map(|row| row.event.clone());
        let stone = (DeletionTargetKind::EventId(hint.floor.id), hint.key.pubkey());
        let held = Held {
            is_known: self.ids.contains_key(&hint.floor.id),
            request: request.as_ref().filter(|request| request.kind == Kind::DELETION),
            tombstone: self.tombstones.get(&stone).map(|noted| &noted.what),
            key: self.key(&hint.key),
        };
        let (raises, below, is_passed_on) = match sharing::weigh(hint, &held) {
            HintVerdict::Known => return HintOutcome::Known,
            HintVerdict::Refused => return HintOutcome::Refused,
            HintVerdict::Taken { raises, below, is_passed_on } => (raises, below, is_passed_on),
        };
        if let Some(below) = below {
            self.take_away(&below, Reason::Replaced, Some(hint.floor.id));
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
