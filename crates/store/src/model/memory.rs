//! The data of the model, and its ingest procedure.

use std::{collections::BTreeMap, convert::Infallible};

use bytes::Bytes;
use kukuri_domain::{
    Address, Admitted, Event, EventId, Kind, KindClass, Millis, PublicKey, Rank, Reason, Refusal, State, Timestamp,
    TopicId,
    capacity::{self, Capacity, Load, Stage, Usage},
    clock::Clock,
    decision::{self, Decision, KeyState, Row as KnownRow, StoreFacts, Verdict},
    deletion::{DeletionResult, DeletionTarget, DeletionTargetKind, Tombstone},
    remains::{Remains, Subject},
    retention::RetentionClass,
    sharing::{Trace, TracePlace},
    subscription::{IngestPolicy, NodeSubscription},
    topic,
    vanish::VanishMark,
};

use crate::{
    ingest::{Ingested, Outcome, StageChange, StoreRules},
    outbox::{ConsumerOffset, Op, OutboxRow, Seq},
    report::{self, IdRecord, Standing},
    sharing::Item,
};

/// A stored event, effective or hidden.
#[derive(Clone)]
pub(super) struct Row {
    /// Position in the order of arrival.
    pub(super) place: u64,
    pub(super) event: Event,
    pub(super) json: Bytes,
    pub(super) topics: Vec<TopicId>,
    pub(super) ingested_at: Millis,
    pub(super) effective: bool,
}

impl Row {
    pub(super) fn class(&self) -> RetentionClass {
        RetentionClass::of(self.event.kind, self.effective)
    }
}

/// A record with the time it was last written.
#[derive(Clone)]
pub(super) struct Noted<T> {
    pub(super) what: T,
    pub(super) at: Millis,
}

/// All data of the model.
#[derive(Clone, Default)]
pub(super) struct Memory {
    pub(super) rules: StoreRules,
    pub(super) clock: Clock,
    pub(super) rows: Vec<Row>,
    pub(super) arrivals: u64,
    pub(super) ids: BTreeMap<EventId, IdRecord>,
    pub(super) tombstones: BTreeMap<(DeletionTargetKind, PublicKey), Noted<Tombstone>>,
    pub(super) floors: BTreeMap<Address, Noted<Rank>>,
    pub(super) vanish_marks: BTreeMap<PublicKey, Noted<VanishMark>>,
    /// The remains of events without a row.
    pub(super) remains: BTreeMap<(Subject, TopicId), Noted<Remains>>,
    /// Traces of requests, shared with other nodes.
    pub(super) traces: BTreeMap<(TopicId, Item), Trace>,
    pub(super) outbox: Vec<OutboxRow>,
    pub(super) head: Seq,
    pub(super) outbox_dropped: Seq,
    pub(super) offsets: BTreeMap<String, ConsumerOffset>,
    pub(super) subscriptions: BTreeMap<TopicId, NodeSubscription>,
    /// Topics that hold rows, or held some and are kept (T-10), with the time of the last event.
    pub(super) topics: BTreeMap<TopicId, Millis>,
    /// Stages above [`Stage::Open`]. `None`: the node.
    pub(super) stages: BTreeMap<Option<TopicId>, Stage>,
}

impl Memory {
    pub(super) fn ingest(&mut self, batch: &[Admitted], now: Millis) -> Ingested {
        // Known and ephemeral events write nothing, not even the clock.
        let is_new = |event: &Event| event.kind.class() != KindClass::Ephemeral && !self.ids.contains_key(&event.id);
        if batch.iter().any(|admitted| is_new(admitted.event())) {
            self.tick(now);
        }
        let mut ingested = Ingested::default();
        for admitted in batch {
            let outcome = self.ingest_event(admitted, now, &mut ingested.deletions);
            ingested.outcomes.push(outcome);
            ingested.stages.extend(self.update_stages());
        }
        ingested.head = self.head;
        ingested
    }

    /// Reads the system clock.
    pub(super) fn tick(&mut self, now: Millis) {
        self.clock = self.rules.tick(self.clock, self.head, now);
    }

    fn ingest_event(&mut self, admitted: &Admitted, now: Millis, deletions: &mut DeletionResult) -> Outcome {
        let event = admitted.event();
        if event.kind.class() == KindClass::Ephemeral {
            return Outcome::Ephemeral;
        }
        if let Some(state) = self.count_copy(&event.id, now) {
            return decision::repeat(event, state, now).map_or(Outcome::Duplicate, Outcome::Refused);
        }
        if let Some(refusal) = self.refuse_for_capacity(admitted) {
            return Outcome::Refused(refusal);
        }
        match self.decide(admitted, now) {
            Verdict::Apply(decision) => {
                if let Some(result) = decision.deletion {
                    deletions.deleted_count += result.deleted_count;
                    deletions.skipped_count += result.skipped_count;
                }
                self.apply(admitted, *decision)
            }
            Verdict::Ephemeral => Outcome::Ephemeral,
            Verdict::Refused(refusal) => Outcome::Refused(refusal),
        }
    }

    /// The state of an id. Counts a copy of a known event.
    pub(super) fn count_copy(&mut self, id: &EventId, now: Millis) -> Option<State> {
        let stamp = self.clock.tick(now, &self.rules.clock).latest;
        let record = self.ids.get_mut(id)?;
        record.last_seen_at = record.last_seen_at.max(stamp);
        record.seen_count += 1;
        Some(record.standing.state())
    }

    /// Gathers the known facts about an event and asks the domain.
    fn decide(&self, admitted: &Admitted, now: Millis) -> Verdict {
        let event = admitted.event();
        let (targets, remains) = match event.kind {
            Kind::DELETION => (self.rows_named_by(event), self.remains_named_by(event)),
            _ => (Vec::new(), Vec::new()),
        };
        let known = StoreFacts {
            vanish_marks: &self.vanish_marks_of(event),
            tombstones: &self.tombstones_of(event),
            key: event.address().and_then(|address| self.key(&address)),
            targets: &targets,
            remains: &remains,
        };
        decision::decide(admitted, &known, now)
    }

    /// The row of an id, effective or hidden.
    pub(super) fn row(&self, id: &EventId) -> Option<&Row> {
        self.rows.iter().find(|row| row.event.id == *id)
    }

    pub(super) fn vanish_marks_of(&self, event: &Event) -> Vec<VanishMark> {
        event.owners().filter_map(|owner| self.vanish_marks.get(&owner)).map(|noted| noted.what).collect()
    }

    pub(super) fn tombstones_of(&self, event: &Event) -> Vec<Tombstone> {
        let address = event.address();
        let names = |target: &DeletionTargetKind| match target {
            DeletionTargetKind::EventId(id) => *id == event.id,
            DeletionTargetKind::Address(named) => Some(named) == address.as_ref(),
        };
        self.tombstones.iter().filter(|((target, _), _)| names(target)).map(|(_, noted)| noted.what.clone()).collect()
    }

    pub(super) fn key(&self, address: &Address) -> Option<KeyState> {
        let is_current = |row: &&Row| row.effective && row.event.address().as_ref() == Some(address);
        Some(KeyState {
            floor: self.floors.get(address)?.what,
            current: self.rows.iter().find(is_current).map(|row| row.event.id),
        })
    }

    fn rows_named_by(&self, request: &Event) -> Vec<KnownRow<'_>> {
        let targets = DeletionTarget::parse_from_event(request);
        let state_of = |row: &Row| self.ids.get(&row.event.id).map_or(State::Effective, |id| id.standing.state());
        let is_named = |row: &&Row| {
            targets.iter().any(|target| match &target.target {
                DeletionTargetKind::EventId(id) => *id == row.event.id,
                DeletionTargetKind::Address(address) => {
                    row.event.address().as_ref() == Some(address) && state_of(row) != State::Deleted
                }
            })
        };
        let rows = self.rows.iter().filter(is_named);
        rows.map(|row| KnownRow { event: &row.event, state: state_of(row) }).collect()
    }

    fn remains_named_by(&self, request: &Event) -> Vec<Remains> {
        let ids = DeletionTarget::parse_from_event(request).into_iter().filter_map(|target| match target.target {
            DeletionTargetKind::EventId(id) => Some(id),
            DeletionTargetKind::Address(_) => None,
        });
        ids.flat_map(|id| self.remains_of(Subject::Event(id))).collect()
    }

    /// Applies a decision.
    fn apply(&mut self, admitted: &Admitted, decision: Decision) -> Outcome {
        let event = admitted.event();
        let now = self.clock.latest;
        // Before rows are retired: what is known when a request arrives counts.
        let bound = self.bound_topics(admitted);
        let mut traces = Vec::new();
        for (place, trace) in decision.traces {
            let topics = match place {
                TracePlace::Event(id) if id == event.id => admitted.topics().to_vec(),
                TracePlace::Event(id) => self.topics_reached(&id),
                TracePlace::Remains(subject, until) => {
                    let remains = self.remains_of(subject).into_iter();
                    remains.filter(|remains| remains.earliest <= until).map(|remains| remains.topic).collect()
                }
            };
            traces.extend(topics.into_iter().map(|topic| (topic, trace.clone())));
        }
        for (id, reason) in decision.taken {
            self.leave_remains_of_row(&id, reason);
            self.retire(&id, reason, Some(event.id));
        }
        if let (Some(floor), Some(address)) = (decision.floor, event.address()) {
            self.floors.insert(address, Noted { what: floor, at: now });
        }
        for tombstone in decision.tombstones {
            let key = (tombstone.target.target.clone(), tombstone.target.requester_pubkey);
            let merged = match self.tombstones.remove(&key) {
                Some(known) => tombstone.merged_with(known.what),
                None => tombstone,
            };
            self.tombstones.insert(key, Noted { what: merged, at: now });
        }
        if let Some(mark) = decision.vanish {
            // Nodes that received a request must also receive the vanish request that removes it.
            traces.extend(self.vanish(mark).into_iter().map(|topic| (topic, Trace::of(event))));
        }

        let standing = match decision.against {
            None => Standing::Effective,
            Some((reason, cause)) => Standing::Gone { reason, cause: Some(cause), since: now },
        };
        let record =
            IdRecord { source: admitted.source(), first_seen_at: now, last_seen_at: now, seen_count: 1, standing };
        self.ids.insert(event.id, record);
        self.leave_remains(decision.remains);
        if standing == Standing::Effective {
            self.store(admitted, bound);
        }
        for (topic, trace) in traces {
            self.leave_trace(topic, trace);
        }
        if standing == Standing::Effective {
            return Outcome::Stored;
        }
        decision::repeat(event, standing.state(), now).map_or(Outcome::Duplicate, Outcome::Refused)
    }

    /// Records a mark and removes what it covers. Returns the topics of that.
    fn vanish(&mut self, mark: VanishMark) -> Vec<TopicId> {
        let known = self.vanish_marks.get(&mark.pubkey).map(|noted| noted.what);
        let merged = known.map_or(mark, |known| mark.merged_with(known));
        if known != Some(merged) {
            self.vanish_marks.insert(mark.pubkey, Noted { what: merged, at: self.clock.latest });
        }
        let mut topics = Vec::new();
        let covered = self.rows.iter().filter(|row| mark.covers(&row.event));
        for id in covered.map(|row| row.event.id).collect::<Vec<_>>() {
            topics.extend(self.topics_reached(&id));
            if mark.shareable.is_none() {
                self.leave_remains_of_row(&id, Reason::Vanish);
            }
            self.retire(&id, Reason::Vanish, Some(mark.request_id));
        }
        topics
    }

    pub(super) fn leave_local_mark(&mut self, author: &PublicKey, until: Timestamp, now: Millis) -> Vec<StageChange> {
        self.tick(now);
        self.vanish(VanishMark::local(*author, until));
        self.update_stages()
    }

    /// T-9: enabled, or with stored events.
    fn is_known_topic(&self, topic: &TopicId) -> bool {
        self.subscriptions.get(topic).is_some_and(|subscription| subscription.enabled)
            || self.rows.iter().any(|row| row.topics.contains(topic))
    }

    fn bound_topics(&self, admitted: &Admitted) -> Vec<TopicId> {
        let is_known = |topic: &TopicId| Ok::<_, Infallible>(self.is_known_topic(topic));
        let Ok(topics) = topic::bound(admitted.event().kind, admitted.topics(), is_known);
        topics.into_owned()
    }

    fn store(&mut self, admitted: &Admitted, topics: Vec<TopicId>) {
        self.arrivals += 1;
        let row = Row {
            place: self.arrivals,
            event: admitted.event().clone(),
            json: admitted.json().clone(),
            topics,
            ingested_at: self.clock.latest,
            effective: true,
        };
        for topic in &row.topics {
            let last_event_at = self.topics.entry(topic.clone()).or_default();
            if row.event.is_sign_of_use() {
                *last_event_at = row.ingested_at;
            }
        }
        self.write_outbox(&row, Op::Upsert);
        self.rows.push(row);
    }

    /// Hides or removes a row, effective or hidden, for this reason.
    pub(super) fn retire(&mut self, id: &EventId, reason: Reason, cause: Option<EventId>) {
        let Some(index) = self.rows.iter().position(|row| row.event.id == *id) else { return };
        if self.rows[index].effective {
            self.rows[index].effective = false;
            let row = self.rows[index].clone();
            self.write_outbox(&row, Op::Delete(reason));
            self.drop_traces(id);
        }
        if let Some(record) = self.ids.get_mut(id) {
            record.standing = Standing::Gone { reason, cause, since: self.clock.latest };
        }
        if !self.rules.deletion.keeps_row(reason) {
            self.rows.remove(index);
        }
    }

    fn write_outbox(&mut self, row: &Row, op: Op) {
        for topic in &row.topics {
            self.head = self.head.next();
            self.outbox.push(OutboxRow {
                seq: self.head,
                op,
                event_id: row.event.id,
                topic: topic.clone(),
                kind: row.event.kind,
                created_at: row.event.created_at,
                ingested_at: row.ingested_at,
                effective_key: row.event.address(),
                written_at: self.clock.latest,
            });
        }
    }

    pub(super) fn usage(&self, topic: Option<&TopicId>) -> [Usage; 4] {
        let mut by_class = [Usage::default(); 4];
        let counted = self.rows.iter().filter(|row| topic.is_none_or(|topic| row.topics.contains(topic)));
        for row in counted {
            let usage = &mut by_class[row.class() as usize];
            usage.events += 1;
            usage.bytes += row.json.len() as u64;
        }
        by_class
    }

    pub(super) fn policy(&self, topic: &TopicId) -> IngestPolicy {
        self.subscriptions.get(topic).map(|subscription| subscription.policy).unwrap_or_default()
    }

    pub(super) fn capacity(&self, topic: Option<&TopicId>) -> Capacity {
        topic.map_or(self.rules.capacity, |topic| self.policy(topic).capacity())
    }

    pub(super) fn stage(&self, topic: Option<&TopicId>) -> Stage {
        self.stages.get(&topic.cloned()).copied().unwrap_or_default()
    }

    fn load(&self, topic: Option<&TopicId>) -> Load {
        let (capacity, share) = (self.capacity(topic), self.rules.permanent);
        let permanent = report::permanent(&self.usage(topic));
        let is_share_filled = match topic {
            None => share.is_filled_in_node(permanent, capacity),
            Some(_) => share.is_filled_in_topic(permanent, capacity),
        };
        let is_full = capacity.is_reached(permanent.stored(), 100);
        Load { stage: self.stage(topic), is_full, is_share_filled, ..Load::default() }
    }

    /// The rows of a topic, or of the node, that count for its stage.
    pub(super) fn counted(&self, topic: Option<&TopicId>) -> Usage {
        let usage = self.usage(topic);
        let permanent = report::permanent(&usage);
        self.rules.permanent.counted_for_stages(report::total(&usage), permanent, self.capacity(topic))
    }

    fn refuse_for_capacity(&self, admitted: &Admitted) -> Option<Refusal> {
        let enabled = self.subscriptions.values().filter(|subscription| subscription.enabled);
        let shed_priority = capacity::shed_priority(enabled.map(|subscription| subscription.policy.priority));
        let topic_load = |topic: &TopicId| {
            let is_shed_first = shed_priority == Some(self.policy(topic).priority);
            Load { is_shed_first, ..self.load(Some(topic)) }
        };
        let topics: Vec<_> = admitted.topics().iter().map(topic_load).collect();
        let (event, node) = (admitted.event(), self.load(None));
        let is_known_key = event.address().is_some_and(|address| self.floors.contains_key(&address));
        let has_event = self.rows.iter().any(|row| row.effective && row.event.pubkey == event.pubkey);
        let of_newcomer = || capacity::refuse_newcomer(event.kind, admitted.source(), node, &topics);
        capacity::refuse(event.kind, admitted.source(), node, &topics)
            .or_else(|| of_newcomer().filter(|_| !is_known_key && !has_event))
    }

    /// Updates every stage from the stored rows, and drops topics that hold nothing, are not enabled and have no policy
    /// (T-10).
    pub(super) fn update_stages(&mut self) -> Vec<StageChange> {
        let places: Vec<_> = std::iter::once(None).chain(self.topics.keys().cloned().map(Some)).collect();
        let mut changes = Vec::new();
        for place in places {
            let usage = self.counted(place.as_ref());
            let from = self.stage(place.as_ref());
            let to = from.next(usage, self.capacity(place.as_ref()), &self.rules.thresholds);
            if from != to {
                self.stages.insert(place.clone(), to);
                changes.push(StageChange { topic: place, from, to });
            }
        }
        let (rows, subscriptions) = (&self.rows, &self.subscriptions);
        self.topics.retain(|topic, _| {
            rows.iter().any(|row| row.topics.contains(topic))
                || subscriptions.get(topic).is_some_and(NodeSubscription::keeps_topic)
        });
        let topics = &self.topics;
        self.stages.retain(|place, _| place.as_ref().is_none_or(|topic| topics.contains_key(topic)));
        changes
    }
}
