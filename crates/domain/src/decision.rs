//! The decision on one event, given the facts of the store. Every store uses this function; no store repeats a rule.
//!
//! The decision is a pure function of an [`Admitted`] event and the [`StoreFacts`]. Its result lists every change, and
//! a store applies all of them in one transaction (P-3). The rules ensure that every order of arrival ends in the same
//! effective set (D-10):
//!
//! - a verified version raises the floor of its key even if the version is refused, and replaces a lower current one
//!   (D-9);
//! - a deletion request records its targets even if the request is refused because its author vanished (D-12);
//! - requests are exempt from deletion and expiration (D-5, X-4); vanish requests are exempt from vanishing, too.

use std::collections::{HashMap, HashSet};

use crate::{
    address::Rank,
    admission::Admitted,
    deletion::{self, DeletionResult, DeletionTarget, DeletionTargetKind, Tombstone},
    event::Event,
    id::EventId,
    kind::{Kind, KindClass},
    refusal::Refusal,
    remains::{Remains, Subject},
    sharing::{self, RequestRef, Trace, TracePlace},
    time::Millis,
    vanish::VanishMark,
};

/// The state of a known id (E-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Stored and visible.
    Effective,
    /// Removed, or kept out, by a deletion request.
    Deleted,
    /// Removed, or kept out, by a vanish request.
    Vanished,
    /// A version that ranks higher is known.
    Replaced,
    /// Its expiration has passed.
    Expired,
    /// Purged by retention or capacity.
    Purged,
}

impl State {
    /// The refusal of a copy of an event in this state. `None`: the event is effective.
    fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Effective => None,
            Self::Deleted => Some(Refusal::Deleted),
            Self::Vanished => Some(Refusal::Vanished),
            Self::Replaced => Some(Refusal::Replaced),
            Self::Expired => Some(Refusal::Expired),
            Self::Purged => Some(Refusal::Purged),
        }
    }
}

/// Why an event left the effective set: the `reason` of an outbox row (O-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A deletion request.
    Nip09,
    /// Its expiration has passed.
    Expiration,
    /// A version that ranks higher was admitted.
    Replaced,
    /// A vanish request.
    Vanish,
    /// Its retention ended.
    Retention,
    /// Its topic or the node ran out of space.
    Capacity,
}

impl Reason {
    /// The state of an event that left the effective set for this reason.
    pub fn state(self) -> State {
        match self {
            Self::Nip09 => State::Deleted,
            Self::Expiration => State::Expired,
            Self::Replaced => State::Replaced,
            Self::Vanish => State::Vanished,
            Self::Retention | Self::Capacity => State::Purged,
        }
    }

    /// The name in an outbox row (O-2).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nip09 => "nip09",
            Self::Expiration => "expiration",
            Self::Replaced => "replaced",
            Self::Vanish => "vanish",
            Self::Retention => "retention",
            Self::Capacity => "capacity",
        }
    }
}

/// Whether deletion keeps the row of an event (D-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionMode {
    /// The row stays, hidden, for audit, until its retention ends.
    #[default]
    Soft,
    /// The row is removed; the tombstone stays.
    Physical,
}

impl DeletionMode {
    /// Whether the row of an event that leaves the effective set for this reason stays, hidden.
    pub fn keeps_row(self, reason: Reason) -> bool {
        match reason {
            Reason::Replaced => true,
            Reason::Nip09 => self == Self::Soft,
            Reason::Vanish | Reason::Expiration | Reason::Retention | Reason::Capacity => false,
        }
    }
}

/// The store's facts about the key of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The highest version ever verified, even if it was refused or removed (D-9).
    pub floor: Rank,
    /// The effective version, if there is one.
    pub current: Option<EventId>,
}

/// A stored row that a deletion request may remove.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The event.
    pub event: &'a Event,
    /// Effective, or hidden as deleted or replaced.
    pub state: State,
}

/// The facts that a store provides for the decision on an event with an unknown id.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFacts<'a> {
    /// The vanish marks of the event's owners.
    pub vanish_marks: &'a [VanishMark],
    /// The tombstones of any requester that name its id or its address.
    pub tombstones: &'a [Tombstone],
    /// Its key, if the event has one and a version of the key was seen.
    pub key: Option<KeyState>,
    /// For a deletion request: the rows that its targets name by id, and the rows of addresses they name that are not
    /// deleted yet.
    pub targets: &'a [Row<'a>],
    /// For a deletion request: the remains of events that it names by id and that have no row.
    pub remains: &'a [Remains],
}

/// Everything that an event changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Why the event is kept out, and the event that causes it. `None`: the event is effective, and its row is stored.
    pub against: Option<(Reason, EventId)>,
    /// The new floor of the event's key.
    pub floor: Option<Rank>,
    /// Rows that this event removes, effective or hidden.
    pub taken: Vec<(EventId, Reason)>,
    /// Tombstones to record, or to merge with the known ones.
    pub tombstones: Vec<Tombstone>,
    /// The mark to record, or to merge with the known one; the store then removes every row it covers.
    pub vanish: Option<VanishMark>,
    /// The result for a deletion request's targets.
    pub deletion: Option<DeletionResult>,
    /// Traces of requests (G-7), and where each goes. The store keeps only traces of requests that are stored and pass
    /// between nodes.
    pub traces: Vec<(TracePlace, Trace)>,
    /// The remains of this event, if it is kept out: a request that arrives later may cover it.
    pub remains: Vec<Remains>,
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event is recorded, with these changes.
    Apply(Box<Decision>),
    /// The event is delivered live and not stored (E-5).
    Ephemeral,
    /// The event is refused and leaves no trace (E-9).
    Refused(Refusal),
}

/// The answer to a copy of a known event: `None` if the event is effective, and the copy a duplicate (E-9).
pub fn repeat(event: &Event, state: State, now: Millis) -> Option<Refusal> {
    // An expired event is not visible, even before a sweep has removed it.
    state.refusal().or_else(|| event.is_expired(now).then_some(Refusal::Expired))
}

/// Decides on an event whose id the store does not know.
pub fn decide(admitted: &Admitted, known: &StoreFacts<'_>, now: Millis) -> Verdict {
    let event = admitted.event();
    if event.kind.class() == KindClass::Ephemeral {
        return Verdict::Ephemeral;
    }
    if event.is_expired(now) {
        // The event may have expired in the queue. Such a version does not even raise a floor (D-9).
        return Verdict::Refused(Refusal::Expired);
    }

    let vanished = known.vanish_marks.iter().find(|mark| mark.covers(event));
    let deleted = known.tombstones.iter().find(|tombstone| tombstone.target.covers(event));
    let superseded = known.key.filter(|key| key.floor > event.rank());
    let against = None
        .or(vanished.map(|mark| (Reason::Vanish, mark.request_id)))
        .or(deleted.map(|tombstone| (Reason::Nip09, tombstone.deletion_id)))
        .or(superseded.map(|key| (Reason::Replaced, key.floor.id)));

    let mut decision = Decision {
        against,
        floor: None,
        taken: Vec::new(),
        tombstones: newly_matched_tombstones(known.tombstones, event, now),
        vanish: None,
        deletion: None,
        traces: traces_of_blockers(event, known),
        remains: Vec::new(),
    };
    if event.kind.is_keyed() && superseded.is_none() {
        decision.floor = Some(event.rank());
        let below = known.key.and_then(|key| key.current);
        decision.taken.extend(below.map(|id| (id, Reason::Replaced)));
    }
    if event.kind == Kind::DELETION {
        apply_deletion_request(event, known, now, &mut decision);
    }
    if admitted.vanishes() {
        apply_vanish_request(event, known, &mut decision);
    }
    if let Some((reason, _)) = against
        && !known.vanish_marks.iter().any(|mark| mark.shareable_over(event).is_some())
    {
        // A vanish request that is shared is never removed: it needs no later one to tell other nodes.
        decision.remains = Remains::without_row(event, admitted.topics(), reason);
    }
    Verdict::Apply(Box::new(decision))
}

/// The traces of the shareable requests that keep this event out (G-7).
fn traces_of_blockers(event: &Event, known: &StoreFacts<'_>) -> Vec<(TracePlace, Trace)> {
    let vanished = known.vanish_marks.iter().filter_map(|mark| mark.shareable_over(event));
    let vanished = vanished.map(|RequestRef { created_at, id }| Trace::Request { created_at, id });
    let deleted = known.tombstones.iter().filter_map(|tombstone| tombstone.shareable_over(event));
    let deleted = deleted.flat_map(|(target, request)| Trace::of_deletion(&target, request.id, event));
    vanished.chain(deleted).map(|trace| (TracePlace::Event(event.id), trace)).collect()
}

/// The tombstones that cover this event and had no match before, marked as applied now (D-6).
fn newly_matched_tombstones(tombstones: &[Tombstone], event: &Event, now: Millis) -> Vec<Tombstone> {
    let waiting = tombstones.iter().filter(|tombstone| tombstone.applied_at.is_none());
    waiting
        .filter(|tombstone| tombstone.target.covers(event))
        .map(|tombstone| Tombstone { applied_at: Some(now), ..tombstone.clone() })
        .collect()
}

/// Leaves a mark, and a trace where events of the author are gone already for a cause that could not be shared (D-12,
/// G-7).
fn apply_vanish_request(request: &Event, known: &StoreFacts<'_>, decision: &mut Decision) {
    let mark = VanishMark::of(request);
    let known = known.vanish_marks.iter().find(|known| known.pubkey == mark.pubkey);
    if mark.shareable > known.and_then(|known| known.shareable) {
        let place = TracePlace::Remains(Subject::Author(request.pubkey), request.created_at);
        decision.traces.push((place, Trace::of(request)));
    }
    decision.vanish = Some(mark);
}

/// Removes the stored targets, and leaves a tombstone for each target that may arrive later (D-3 to D-6).
fn apply_deletion_request(request: &Event, known: &StoreFacts<'_>, now: Millis, decision: &mut Decision) {
    let mut result = DeletionResult { deleted_count: 0, skipped_count: deletion::named_count(request) };
    let is_shareable = decision.against.is_none() && sharing::may_pass_on(request);
    let shareable = is_shareable.then(|| RequestRef::of(request));
    let named = rows_by_target(known.targets);
    let remains = remains_by_id(known.remains);
    let mut taken = HashSet::new();
    decision.tombstones.reserve(result.skipped_count);
    decision.traces.reserve(known.targets.len());
    for target in DeletionTarget::parse_from_event(request) {
        let here = named.get(&target.target).map_or(&[][..], Vec::as_slice);
        let covered: Vec<_> = here.iter().filter(|row| target.covers(row.event)).collect();
        let by_id = matches!(target.target, DeletionTargetKind::EventId(_));
        if by_id && covered.len() < here.len() {
            // The stored event is protected or not owned by the requester. That never changes, so no tombstone is
            // needed.
            continue;
        }
        let mut new = covered.iter().filter(|row| row.state != State::Deleted).map(|row| row.event.id).peekable();
        if new.peek().is_some() {
            result.skipped_count -= 1;
        }
        if is_shareable {
            push_traces_of_target(&target, request, &covered, &remains, &mut decision.traces);
        }
        // A request may name an event both by id and by address.
        decision.taken.extend(new.filter(|id| taken.insert(*id)).map(|id| (id, Reason::Nip09)));
        decision.tombstones.push(Tombstone {
            applied_at: (!covered.is_empty()).then_some(now),
            target,
            deletion_id: request.id,
            shareable,
        });
    }
    result.deleted_count = taken.len();
    decision.deletion = Some(result);
}

/// Adds the traces of a shareable deletion request for one target: where it covers a row, deleted before or not, and where it
/// covers an event that has left only its remains (G-7).
fn push_traces_of_target(
    target: &DeletionTarget,
    request: &Event,
    covered: &[&&Row<'_>],
    remains: &HashMap<EventId, &Remains>,
    traces: &mut Vec<(TracePlace, Trace)>,
) {
    for row in covered {
        let place = TracePlace::Event(row.event.id);
        traces.extend(Trace::of_deletion(target, request.id, row.event).map(|trace| (place, trace)));
    }
    match &target.target {
        DeletionTargetKind::EventId(id) => {
            if let Some(gone) = remains.get(id).filter(|gone| gone.author == request.pubkey) {
                let floor = Rank { created_at: gone.earliest, id: *id };
                let of_gone = Trace::of_deleted(request.created_at, request.id, gone.key.clone(), floor);
                traces.extend(of_gone.map(|trace| (TracePlace::Event(*id), trace)));
            }
        }
        DeletionTargetKind::Address(address) => {
            let place = TracePlace::Remains(Subject::Key(address.digest()), request.created_at);
            traces.push((place, Trace::of(request)));
        }
    }
}

/// One record per event: the records of an event differ in their topics only.
fn remains_by_id(remains: &[Remains]) -> HashMap<EventId, &Remains> {
    let of_event = remains.iter().filter_map(|gone| match gone.subject {
        Subject::Event(id) => Some((id, gone)),
        Subject::Key(_) | Subject::Author(_) => None,
    });
    of_event.collect()
}

/// Indexes the rows by every target that can name them: a request may name a thousand, with as many versions each.
fn rows_by_target<'a>(rows: &'a [Row<'a>]) -> HashMap<DeletionTargetKind, Vec<&'a Row<'a>>> {
    let mut named: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows {
        named.entry(DeletionTargetKind::EventId(row.event.id)).or_default().push(row);
        if let Some(address) = row.event.address() {
            named.entry(DeletionTargetKind::Address(address)).or_default().push(row);
        }
    }
    named
}
