//! The procedure by which a store ingests an event: look up the id, check capacity, gather facts, decide, apply (P-3).
//!
//! Every store that implements [`Ledger`] shares this procedure. The rules are in `kukuri_domain`.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use kukuri_domain::{
    Admitted, Event, EventId, Kind, KindClass, Millis, Reason, Refusal, State, TopicId, capacity,
    decision::{self, Decision, Row as KnownRow, StoreFacts, Verdict},
    deletion::{DeletionResult, DeletionTarget, DeletionTargetKind, Tombstone},
    sharing::Trace,
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
    let kind = admitted.event().kind;
    if kind.is_request() {
        return Ok(None);
    }
    if ledger.is_disk_full() {
        return Ok(Some(Refusal::DiskFull));
    }
    let mut topics = Vec::with_capacity(admitted.topics().len());
    for topic in admitted.topics() {
        topics.push(ledger.topic_load(topic)?);
    }
    Ok(capacity::refuse(kind, admitted.source(), ledger.node_load()?, &topics))
}

/// Gathers the known facts about an event and asks the domain.
fn verdict_on<L: Ledger>(ledger: &L, admitted: &Admitted, now: Millis) -> Result<Verdict, L::Error> {
    let event = admitted.event();
    let targets = match event.kind {
        Kind::DELETION => rows_named_by(ledger, event)?,
        _ => Vec::new(),
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
    };
    Ok(decision::decide(admitted, &known, now))
}

/// The rows that a deletion request names by id, and the rows of addresses it names that are not deleted yet.
fn rows_named_by<'l, L: Ledger>(ledger: &'l L, request: &Event) -> Result<Vec<(Cow<'l, Event>, State)>, L::Error> {
    let mut rows = Vec::new();
    for target in DeletionTarget::parse_from_event(request) {
        match &target.target {
            DeletionTargetKind::EventId(id) => rows.extend(ledger.row_id(id)?),
            DeletionTargetKind::Address(address) => {
                rows.extend(ledger.versions_until(address, request.created_at)?);
            }
        }
    }
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter().filter_map(|row| ledger.outline(row).transpose()).collect()
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
    // Must run before rows are retired: a trace goes into the topics of the row that it is about.
    let mut traces = with_topics(ledger, admitted, decision.traces)?;
    for (id, reason) in decision.taken {
        retire_id(ledger, &id, reason, event.id)?;
    }
    for tombstone in decision.tombstones {
        record(ledger, tombstone)?;
    }
    if let Some(mark) = decision.vanish {
        let topics = vanish(ledger, mark)?;
        traces.extend(topics.into_iter().map(|topic| (topic, Trace::of(event))));
    }
    if let Some(result) = decision.deletion {
        deletions.deleted_count += result.deleted_count;
        deletions.skipped_count += result.skipped_count;
    }
    let outcome = match decision.against {
        None => {
            ledger.put(admitted)?;
            Outcome::Stored
        }
        Some((reason, cause)) => {
            // A refused version raises its key's floor, too (D-9).
            if let (Some(floor), Some(address)) = (decision.floor, event.address()) {
                ledger.raise_floor(&address, floor)?;
            }
            let since = ledger.stamp();
            ledger.remember(admitted, Standing::Gone { reason, cause: Some(cause), since })?;
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

/// Expands each trace to one per topic of the event that it is about.
fn with_topics<L: Ledger>(
    ledger: &mut L,
    admitted: &Admitted,
    traces: Vec<(EventId, Trace)>,
) -> Result<Vec<(TopicId, Trace)>, L::Error> {
    let mut placed = Vec::new();
    for (id, trace) in traces {
        let topics = if id == admitted.event().id {
            admitted.topics().to_vec()
        } else {
            row_of(ledger, &id)?.map(|row| ledger.topics_reached(&row)).transpose()?.unwrap_or_default()
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
        Some(row) => ledger.retire(row, reason, Some(cause)),
        None => Ok(()),
    }
}

/// Writes a tombstone, merged with the known one (D-6).
fn record<L: Ledger>(ledger: &mut L, tombstone: Tombstone) -> Result<(), L::Error> {
    let merged = match ledger.tombstone(&tombstone.target.target, &tombstone.target.requester_pubkey)? {
        Some(known) => tombstone.merged_with(known),
        None => tombstone,
    };
    ledger.put_tombstone(merged)
}

/// Writes a vanish mark and retires every row that it covers (D-12). Returns the topics of those rows.
fn vanish<L: Ledger>(ledger: &mut L, mark: VanishMark) -> Result<BTreeSet<TopicId>, L::Error> {
    let mut topics = BTreeSet::new();
    if ledger.vanish_mark(&mark.pubkey)?.is_some_and(|known| known.until >= mark.until) {
        // The known mark reaches at least as far: it has removed everything that this one covers, and keeps it out.
        return Ok(topics);
    }
    ledger.put_vanish_mark(mark)?;
    let mut rows = ledger.rows_owned_by(&mark)?;
    rows.sort_unstable();
    rows.dedup();
    for row in rows {
        let Some(row) = ledger.read_row(row)? else { continue };
        if mark.covers(L::event_of(&row)) {
            // Nodes that received a request must also receive the vanish request that removes it.
            topics.extend(ledger.topics_reached(&row)?);
            ledger.retire(row, Reason::Vanish, Some(mark.request_id))?;
        }
    }
    Ok(topics)
}
