//! The model's shared set of a topic, and its handling of floor hints.

use async_trait::async_trait;
use kukuri_domain::{
    Event, EventId, Kind, Millis, Reason, Timestamp, TopicId,
    deletion::DeletionTargetKind,
    remains::{Remains, Subject},
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

impl Row {
    /// Whether the shared set of a topic contains this row: an event where it is bound, a request where it names the
    /// topic (T-9).
    fn is_told_in(&self, topic: &TopicId) -> bool {
        if self.event.kind.is_request() { sharing::tells_of(&self.event, topic) } else { self.topics.contains(topic) }
    }

    fn topics_told_in(&self) -> Vec<TopicId> {
        if self.event.kind.is_request() {
            sharing::named_topics(&self.event).map(TopicId::new_unchecked).collect()
        } else {
            self.topics.clone()
        }
    }
}

impl Memory {
    fn shown(&self, set: &SharedSet) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter().filter(|row| row.effective && row.is_told_in(&set.topic));
        rows.filter(|row| set.window.shows(&row.event))
    }

    fn effective(&self, id: &EventId) -> Option<&Row> {
        self.row(id).filter(|row| row.effective)
    }

    /// The topics whose shared sets contain a row, and those in which it left a trace. Without a row: the
    /// topics of its remains.
    pub(super) fn topics_reached(&self, id: &EventId) -> Vec<TopicId> {
        let Some(row) = self.row(id) else {
            return self.remains_of(Subject::Event(*id)).into_iter().map(|remains| remains.topic).collect();
        };
        let is_trace = |trace: &Trace| matches!(trace, Trace::Request { id: request, .. } if request == id);
        let traced = self.traces.iter().filter(|(_, trace)| is_trace(trace)).map(|((topic, _), _)| topic.clone());
        row.topics_told_in().into_iter().chain(traced).collect()
    }

    pub(super) fn remains_of(&self, subject: Subject) -> Vec<Remains> {
        let of_subject = self.remains.iter().filter(|((known, _), _)| *known == subject);
        of_subject.map(|(_, noted)| noted.what.clone()).collect()
    }

    pub(super) fn leave_remains_of_row(&mut self, id: &EventId, reason: Reason) {
        let topics = || Ok::<_, std::convert::Infallible>(self.topics_reached(id));
        let Some(row) = self.row(id) else { return };
        let Ok(remains) = Remains::of_retired(&row.event, reason, self.rules.deletion, topics);
        self.leave_remains(remains);
    }

    pub(super) fn leave_remains(&mut self, remains: Vec<Remains>) {
        let at = self.clock.latest;
        for what in remains {
            let key = (what.subject, what.topic.clone());
            if let Some(known) = self.remains.get_mut(&key) {
                known.what.earliest = known.what.earliest.min(what.earliest);
                known.at = at;
            } else if self.remains_of(what.subject).len() < what.subject.max_topics() {
                self.remains.insert(key, Noted { what, at });
            }
        }
    }

    /// Stores a trace if its request is stored and may be passed on. Returns whether the trace is new.
    pub(super) fn leave_trace(&mut self, topic: TopicId, trace: Trace) -> bool {
        if !self.effective(&trace.request()).is_some_and(|row| sharing::may_pass_on(&row.event)) {
            return false;
        }
        let item = Item::new(trace.item());
        let known = self.traces.iter().find(|((traced, known), _)| *traced == topic && known.id == item.id);
        let is_new = known.is_none();
        let is_later = known.is_some_and(|(_, known)| self.time_of_request(known) < self.time_of_request(&trace));
        if is_new || is_later {
            self.traces.insert((topic, item), trace);
        }
        is_new
    }

    fn time_of_request(&self, trace: &Trace) -> Option<Timestamp> {
        self.effective(&trace.request()).map(|row| row.event.created_at)
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
