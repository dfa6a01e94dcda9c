//! The procedure by which a store ingests an event: look up the id, check capacity, gather facts, decide, apply (P-3).
//!
//! Every store that implements [`Ledger`] shares this procedure. The rules are in `kukuri_domain`.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use kukuri_domain::{
    Admitted, Event, EventId, Kind, KindClass, Millis, PublicKey, Reason, Refusal, State, Timestamp, TopicId,
    capacity::{self, Load},
    decision::{self, Decision, Row as KnownRow, StoreFacts, Verdict},
    deletion::{DeletionResult, DeletionTarget, DeletionTargetKind, Tombstone},
    remains::{Remains, Subject},
    sharing::{Trace, TracePlace},
    topic,
    vanish::VanishMark,
};

use super::{Ledger, Outcome};
use crate::{error::StoreError, report::Standing};

/// The effect of a batch on a ledger.
#[derive(Debug, Default)]
pub struct BatchEffect {
    /// One outcome per event, in order.
    pub outcomes: Vec<Outcome>,
    /// Total over all deletion requests of the batch.
    pub deletions: DeletionResult,
    /// Events that were already known, to be counted as seen again (P-1).
    pub repeats: Vec<EventId>,
    /// The indexes of the events that changed the ledger.
    pub applied: Vec<usize>,
    /// Whether any event was unknown. If `false`, the store writes nothing, not even its clock.
    pub has_unknown: bool,
}

/// An event for which the decision or the write failed. The store must abort the ledger's transaction.
#[derive(Debug)]
pub struct EventFailure<E> {
    /// Its index in the batch.
    pub index: usize,
    /// The cause.
    pub error: E,
}

/// Ingests a batch in order. Events whose index is in `failed` are refused unread. Tests inject failures with
/// `before_each`.
///
/// A panic becomes [`StoreError::Panicked`], a failure of the event that caused it.
pub fn ingest_batch<L: Ledger>(
    ledger: &mut L,
    events: &[Admitted],
    failed: &HashSet<usize>,
    now: Millis,
    mut before_each: impl FnMut(&Admitted) -> Result<(), L::Error>,
) -> Result<BatchEffect, EventFailure<L::Error>> {
    let mut batch = BatchEffect { outcomes: Vec::with_capacity(events.len()), ..BatchEffect::default() };
    for (index, admitted) in events.iter().enumerate() {
        if failed.contains(&index) {
            batch.outcomes.push(Outcome::Refused(Refusal::Failed));
            batch.has_unknown = true;
            continue;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            before_each(admitted)?;
            ingest_event(ledger, admitted, index, now, &mut batch)
        }));
        let outcome = outcome.unwrap_or_else(|_| Err(StoreError::Panicked.into()));
        batch.outcomes.push(outcome.map_err(|error| EventFailure { index, error })?);
    }
    Ok(batch)
}

/// Applies an event that was acknowledged earlier but is missing from the ledger, regardless of capacity.
pub fn replay_event<L: Ledger>(ledger: &mut L, admitted: &Admitted, now: Millis) -> Result<(), L::Error> {
    if ledger.known_state(&admitted.event().id)?.is_none()
        && let Verdict::Apply(decision) = verdict_on(ledger, admitted, now)?
    {
        apply(ledger, admitted, *decision, now, &mut DeletionResult::default())?;
    }
    Ok(())
}

/// Leaves a vanish mark of this node alone, and retires every row that it covers (N-2, D-12).
pub fn leave_local_mark<L: Ledger>(ledger: &mut L, author: &PublicKey, until: Timestamp) -> Result<(), L::Error> {
    let mark = VanishMark::local(*author, until);
    // Other nodes are not told, so it leaves no traces.
    vanish(ledger, mark, mark.request_id)?;
    ledger.update_stages()
}

fn ingest_event<L: Ledger>(
    ledger: &mut L,
    admitted: &Admitted,
    index: usize,
    now: Millis,
    batch: &mut BatchEffect,
) -> Result<Outcome, L::Error> {
    let event = admitted.event();
    if event.kind.class() == KindClass::Ephemeral {
        return Ok(Outcome::Ephemeral);
    }
    if let Some(state) = ledger.known_state(&event.id)? {
        batch.repeats.push(event.id);
        return Ok(outcome_of_repeat(event, state, now));
    }
    batch.has_unknown = true;
    if let Some(refusal) = refuse_for_capacity(ledger, admitted)? {
        return Ok(Outcome::Refused(refusal));
    }
    match verdict_on(ledger, admitted, now)? {
        Verdict::Apply(decision) => {
            batch.applied.push(index);
            apply(ledger, admitted, *decision, now, &mut batch.deletions)
        }
        Verdict::Ephemeral => Ok(Outcome::Ephemeral),
        Verdict::Refused(refusal) => Ok(Outcome::Refused(refusal)),
    }
}

/// The outcome for a copy of a known event.
fn outcome_of_repeat(event: &Event, state: State, now: Millis) -> Outcome {
    decision::repeat(event, state, now).map_or(Outcome::Duplicate, Outcome::Refused)
}

fn refuse_for_capacity<L: Ledger>(ledger: &mut L, admitted: &Admitted) -> Result<Option<Refusal>, L::Error> {
    let (event, source) = (admitted.event(), admitted.source());
    let mut topics = Vec::with_capacity(admitted.topics().len());
    for topic in admitted.topics() {
        topics.push(ledger.topic_load(topic)?);
    }
    let node = Load { is_disk_full: ledger.is_disk_full(), ..ledger.node_load()? };
    let refusal = capacity::refuse(event.kind, source, node, &topics);
    if refusal.is_some() {
        return Ok(refusal);
    }
    // Look-ups only for what the refusal may concern.
    let Some(refusal) = capacity::refuse_newcomer(event.kind, source, node, &topics) else { return Ok(None) };
    let is_new_version = match event.address() {
        Some(address) => ledger.key_state(&address)?.is_some(),
        None => false,
    };
    Ok(if is_new_version || ledger.has_event_by(&event.pubkey)? { None } else { Some(refusal) })
}

/// Gathers the known facts about an event and asks the domain.
fn verdict_on<L: Ledger>(ledger: &L, admitted: &Admitted, now: Millis) -> Result<Verdict, L::Error> {
    let event = admitted.event();
    let (targets, remains) = match event.kind {
        Kind::DELETION => named_by(ledger, event)?,
        _ => (Vec::new(), Vec::new()),
    };
    let targets: Vec<_> = targets.iter().map(|(event, state)| KnownRow { event, state: *state }).collect();
    let key = match event.address() {
        Some(address) => ledger.key_state(&address)?,
        None => None,
    };
    let marks = event.owners().filter_map(|owner| ledger.vanish_mark(&owner).transpose());
    let known = StoreFacts {
        vanish_marks: &marks.collect::<Result<Vec<_>, _>>()?,
        tombstones: &ledger.tombstones_of(event)?,
        key,
        targets: &targets,
        remains: &remains,
    };
    Ok(decision::decide(admitted, &known, now))
}

/// Rows with their states, and remains of events without a row.
type Named<'l> = (Vec<(Cow<'l, Event>, State)>, Vec<Remains>);

/// The rows that a deletion request names by id or, without one, their remains; and the rows of addresses it names that
/// are not deleted yet.
fn named_by<'l, L: Ledger>(ledger: &'l L, request: &Event) -> Result<Named<'l>, L::Error> {
    let (mut rows, mut remains) = (Vec::new(), Vec::new());
    for target in DeletionTarget::parse_from_event(request) {
        match &target.target {
            DeletionTargetKind::EventId(id) => match ledger.row_id(id)? {
                Some(row) => rows.push(row),
                None => remains.extend(ledger.remains(&Subject::Event(*id))?),
            },
            DeletionTargetKind::Address(address) => {
                rows.extend(ledger.versions_until(address, request.created_at)?);
            }
        }
    }
    rows.sort_unstable();
    rows.dedup();
    let rows = rows.into_iter().filter_map(|row| ledger.outline(row).transpose());
    Ok((rows.collect::<Result<_, _>>()?, remains))
}

/// Applies a decision to the ledger.
fn apply<L: Ledger>(
    ledger: &mut L,
    admitted: &Admitted,
    decision: Decision,
    now: Millis,
    deletions: &mut DeletionResult,
) -> Result<Outcome, L::Error> {
    let event = admitted.event();
    // Must run before rows are retired: what is known when a request arrives counts, also if the request empties a topic.
    let topics = topic::bound(event.kind, admitted.topics(), |topic| ledger.is_known_topic(topic))?;
    // Must run before rows are retired: a trace goes into the topics of the row that it is about.
    let mut traces = with_topics(ledger, admitted, decision.traces)?;
    for (id, reason) in decision.taken {
        retire_id(ledger, &id, reason, event.id)?;
    }
    for tombstone in decision.tombstones {
        record(ledger, tombstone)?;
    }
    if let Some(mark) = decision.vanish {
        let topics = vanish(ledger, mark, event.id)?;
        traces.extend(topics.into_iter().map(|topic| (topic, Trace::of(event))));
    }
    if let Some(result) = decision.deletion {
        deletions.deleted_count += result.deleted_count;
        deletions.skipped_count += result.skipped_count;
    }
    let outcome = match decision.against {
        None => {
            ledger.put(admitted, &topics)?;
            Outcome::Stored
        }
        Some((reason, cause)) => {
            // A refused version raises its key's floor, too (D-9).
            if let (Some(floor), Some(address)) = (decision.floor, event.address()) {
                ledger.raise_floor(&address, floor)?;
            }
            let since = ledger.stamp();
            ledger.remember(admitted, Standing::Gone { reason, cause: Some(cause), since })?;
            if !decision.remains.is_empty() {
                ledger.leave_remains(decision.remains)?;
            }
            outcome_of_repeat(event, reason.state(), now)
        }
    };
    // Must run after the event is stored: a trace is kept only if its request is stored.
    if !traces.is_empty() {
        ledger.leave_traces(traces)?;
    }
    ledger.update_stages()?;
    Ok(outcome)
}

/// Expands each trace to one per topic of its place.
fn with_topics<L: Ledger>(
    ledger: &mut L,
    admitted: &Admitted,
    traces: Vec<(TracePlace, Trace)>,
) -> Result<Vec<(TopicId, Trace)>, L::Error> {
    let mut placed = Vec::new();
    for (place, trace) in traces {
        let topics = match place {
            TracePlace::Event(id) if id == admitted.event().id => admitted.topics().to_vec(),
            TracePlace::Event(id) => match row_of(ledger, &id)? {
                Some(row) => ledger.topics_reached(&row)?,
                None => ledger.remains(&Subject::Event(id))?.into_iter().map(|remains| remains.topic).collect(),
            },
            TracePlace::Remains(subject, until) => {
                let remains = ledger.remains(&subject)?.into_iter();
                remains.filter(|remains| remains.earliest <= until).map(|remains| remains.topic).collect()
            }
        };
        placed.extend(topics.into_iter().map(|topic| (topic, trace.clone())));
    }
    Ok(placed)
}

fn row_of<L: Ledger>(ledger: &L, id: &EventId) -> Result<Option<L::Row>, L::Error> {
    match ledger.row_id(id)? {
        Some(row) => ledger.read_row(row),
        None => Ok(None),
    }
}

/// Retires the row of an id, if there is one.
pub(super) fn retire_id<L: Ledger>(
    ledger: &mut L,
    id: &EventId,
    reason: Reason,
    cause: EventId,
) -> Result<(), L::Error> {
    match row_of(ledger, id)? {
        Some(row) => retire_with_remains(ledger, row, reason, cause),
        None => Ok(()),
    }
}

/// Retires a row for a cause that may not be shared for ever, and leaves its remains (G-7).
fn retire_with_remains<L: Ledger>(ledger: &mut L, row: L::Row, reason: Reason, cause: EventId) -> Result<(), L::Error> {
    let mode = ledger.rules().deletion;
    let remains = Remains::of_retired(L::event_of(&row), reason, mode, || ledger.topics_reached(&row))?;
    ledger.retire(row, reason, Some(cause))?;
    if remains.is_empty() { Ok(()) } else { ledger.leave_remains(remains) }
}

/// Writes a tombstone, merged with the known one (D-6).
fn record<L: Ledger>(ledger: &mut L, tombstone: Tombstone) -> Result<(), L::Error> {
    let merged = match ledger.tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey)? {
        Some(known) => tombstone.merged_with(known),
        None => tombstone,
    };
    ledger.put_tombstone(merged)
}

/// Writes a vanish mark, merged with the known one, and retires every row that it covers (D-12). Returns the topics of
/// those rows.
fn vanish<L: Ledger>(ledger: &mut L, mark: VanishMark, request: EventId) -> Result<BTreeSet<TopicId>, L::Error> {
    let mut topics = BTreeSet::new();
    let known = ledger.vanish_mark(&mark.pubkey)?;
    let merged = known.map_or(mark, |known| mark.merged_with(known));
    if Some(merged) != known {
        ledger.put_vanish_mark(merged)?;
    }
    if known.is_some_and(|known| known.until >= mark.until) {
        // The known mark reaches at least as far: it has removed everything that this one covers, and keeps it out.
        return Ok(topics);
    }
    let mut rows = ledger.rows_owned_by(&mark)?;
    rows.sort_unstable();
    rows.dedup();
    for row in rows {
        let Some(row) = ledger.read_row(row)? else { continue };
        if !mark.covers(L::event_of(&row)) {
            continue;
        }
        if mark.shareable.is_some() {
            // Nodes that received a request must also receive the vanish request that removes it.
            topics.extend(ledger.topics_reached(&row)?);
            ledger.retire(row, Reason::Vanish, Some(request))?;
        } else {
            retire_with_remains(ledger, row, Reason::Vanish, request)?;
        }
    }
    Ok(topics)
}
