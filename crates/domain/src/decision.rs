//! What happens to one event, given what the store knows about it. Every store asks here; none repeats a rule.
//!
//! The decision is a pure function of an [`Admitted`] event and the [`Known`] facts. Its answer lists everything that
//! has to change, and a store carries all of it out in one transaction (P-3). The rules are written so that every
//! order of arrival ends in the same effective set (D-10):
//!
//! - a verified version raises the floor of its key even if it is refused, and takes down a current one below it (D-9);
//! - a deletion request records its targets even if it is refused because its author vanished (D-12);
//! - requests never fall to deletion or expiration (D-5, X-4), vanish requests not even to vanishing.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use crate::{
    address::Rank,
    admission::Admitted,
    deletion::{self, DeletionResult, DeletionTarget, DeletionTargetKind, Tombstone},
    event::Event,
    id::EventId,
    kind::{Kind, KindClass},
    refusal::Refusal,
    sharing::{self, Trace},
    time::Millis,
    vanish::VanishMark,
};

/// What a known id stands for (E-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Stored and visible.
    Effective,
    /// Taken away, or kept out, by a deletion request.
    Deleted,
    /// Taken away, or kept out, by a vanish request.
    Vanished,
    /// A version that ranks higher is known.
    Replaced,
    /// Its expiration has passed.
    Expired,
    /// Thrown away by retention or capacity.
    Purged,
}

impl State {
    /// What is said of an event in this state that is sent again.
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

/// Why something that was effective is no more: the `reason` of an outbox row (O-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A deletion request.
    Nip09,
    /// Its expiration came.
    Expiration,
    /// A version that ranks higher came.
    Replaced,
    /// A vanish request.
    Vanish,
    /// Its retention ended.
    Retention,
    /// Its topic or the node ran out of room.
    Capacity,
}

impl fmt::Display for Reason {
    /// As the outbox calls it (O-2).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nip09 => "nip09",
            Self::Expiration => "expiration",
            Self::Replaced => "replaced",
            Self::Vanish => "vanish",
            Self::Retention => "retention",
            Self::Capacity => "capacity",
        })
    }
}

impl Reason {
    /// The state it leaves an event in.
    pub fn state(self) -> State {
        match self {
            Self::Nip09 => State::Deleted,
            Self::Expiration => State::Expired,
            Self::Replaced => State::Replaced,
            Self::Vanish => State::Vanished,
            Self::Retention | Self::Capacity => State::Purged,
        }
    }

    /// Its name in an outbox row.
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

/// What becomes of the row of a deleted event (D-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionMode {
    /// It stays, hidden, for audit, until retention.
    #[default]
    Soft,
    /// It goes; the tombstone stays.
    Physical,
}

impl DeletionMode {
    /// Whether the row of an event that leaves the effective set stays as a hidden one.
    pub fn keeps_row(self, reason: Reason) -> bool {
        match reason {
            Reason::Replaced => true,
            Reason::Nip09 => self == Self::Soft,
            Reason::Vanish | Reason::Expiration | Reason::Retention | Reason::Capacity => false,
        }
    }
}

/// What a store knows about the key of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The highest version ever verified, whatever became of it (D-9).
    pub floor: Rank,
    /// The effective version, if there is one.
    pub current: Option<EventId>,
}

/// A stored row that a deletion request may take away.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The event.
    pub event: &'a Event,
    /// Effective, or hidden as deleted or replaced.
    pub state: State,
}

/// What a store has to know for a decision on an event whose id is new to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The vanish marks of the event's owners.
    pub vanish_marks: &'a [VanishMark],
    /// The tombstones that name its id or its address, whoever requested them.
    pub tombstones: &'a [Tombstone],
    /// Its key, if it has one and a version of it was seen.
    pub key: Option<KeyState>,
    /// For a deletion request: the rows that its targets name by id, and those of the addresses they name that are not
    /// deleted already.
    pub targets: &'a [Row<'a>],
}

/// Everything that an event changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What keeps it out: why, and the event that says so. `None`: it is effective, and its row is stored.
    pub against: Option<(Reason, EventId)>,
    /// Its key's floor rises to this.
    pub floor: Option<Rank>,
    /// Rows that this event takes away, effective or hidden.
    pub taken: Vec<(EventId, Reason)>,
    /// Tombstones to record, or to merge with the known ones.
    pub tombstones: Vec<Tombstone>,
    /// The mark to leave; the store then takes away every row it covers.
    pub vanish: Option<VanishMark>,
    /// What became of a deletion request's targets.
    pub deletion: Option<DeletionResult>,
    /// What requests leave in the topics of events that this one takes away, or in its own if it is kept out: each with
    /// the event (G-7). The store keeps those of requests that are stored and pass between nodes.
    pub traces: Vec<(EventId, Trace)>,
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is known from now on, with these changes.
    Known(Box<Decision>),
    /// It is for those who listen now; nothing is kept (E-5).
    Ephemeral,
    /// It is refused and leaves no trace (E-9).
    Refused(Refusal),
}

/// The answer to a copy of an event whose id is known: `None` if it is a duplicate of something visible (E-9).
pub fn repeat(event: &Event, state: State, now: Millis) -> Option<Refusal> {
    // What has expired is no more visible, whether or not a sweep has noticed.
    state.refusal().or_else(|| event.is_expired(now).then_some(Refusal::Expired))
}

/// Decides on an event whose id the store does not know.
pub fn decide(admitted: &Admitted, known: &Known<'_>, now: Millis) -> Verdict {
    let event = admitted.event();
    if event.kind.class() == KindClass::Ephemeral {
        return Verdict::Ephemeral;
    }
    if event.is_expired(now) {
        // It may have expired while it waited. Such a version does not even raise a floor (D-9).
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
        tombstones: met(known.tombstones, event, now),
        vanish: None,
        deletion: None,
        traces: kept_out(event, known),
    };
    if event.kind.is_keyed() && superseded.is_none() {
        decision.floor = Some(event.rank());
        let below = known.key.and_then(|key| key.current);
        decision.taken.extend(below.map(|id| (id, Reason::Replaced)));
    }
    if event.kind == Kind::DELETION {
        request_deletion(event, known.targets, now, &mut decision);
    }
    if admitted.vanishes() {
        decision.vanish = Some(VanishMark { pubkey: event.pubkey, until: event.created_at, request_id: event.id });
    }
    if decision.against.is_some() || !sharing::may_pass_on(event) {
        decision.traces.retain(|(_, trace)| trace.request() != event.id);
    }
    Verdict::Known(Box::new(decision))
}

/// The traces of all requests that keep this event out (G-7).
fn kept_out(event: &Event, known: &Known<'_>) -> Vec<(EventId, Trace)> {
    let marks = known.vanish_marks.iter().filter(|mark| mark.covers(event));
    let vanished = marks.map(|mark| Trace::Request { created_at: mark.until, id: mark.request_id });
    let tombstones = known.tombstones.iter().filter(|tombstone| tombstone.target.covers(event));
    let deleted = tombstones.flat_map(|it| Trace::of_deletion(&it.target, it.deletion_id, event));
    vanished.chain(deleted).map(|trace| (event.id, trace)).collect()
}

/// The tombstones that waited for this event, as met now (D-6).
fn met(tombstones: &[Tombstone], event: &Event, now: Millis) -> Vec<Tombstone> {
    let waiting = tombstones.iter().filter(|tombstone| tombstone.applied_at.is_none());
    waiting
        .filter(|tombstone| tombstone.target.covers(event))
        .map(|tombstone| Tombstone { applied_at: Some(now), ..tombstone.clone() })
        .collect()
}

/// Takes the targets that are here, and leaves a tombstone for each that may come (D-3 to D-6).
fn request_deletion(request: &Event, rows: &[Row<'_>], now: Millis, decision: &mut Decision) {
    let mut result = DeletionResult { deleted_count: 0, skipped_count: deletion::named_count(request) };
    let named = by_name(rows);
    let mut taken = HashSet::new();
    for target in DeletionTarget::parse_from_event(request) {
        let here = named.get(&target.target).map_or(&[][..], Vec::as_slice);
        let covered: Vec<_> = here.iter().filter(|row| target.covers(row.event)).collect();
        let by_id = matches!(target.target, DeletionTargetKind::EventId(_));
        if by_id && covered.len() < here.len() {
            // An event that is here and not the requester's, or protected, will never be theirs: nothing to remember.
            continue;
        }
        let mut new = covered.iter().filter(|row| row.state != State::Deleted).map(|row| row.event.id).peekable();
        if new.peek().is_some() {
            result.skipped_count -= 1;
        }
        for row in covered.iter().filter(|row| row.state != State::Deleted) {
            let traces = Trace::of_deletion(&target, request.id, row.event);
            decision.traces.extend(traces.map(|trace| (row.event.id, trace)));
        }
        // An event may be named by id and by address at once.
        decision.taken.extend(new.filter(|id| taken.insert(*id)).map(|id| (id, Reason::Nip09)));
        decision.tombstones.push(Tombstone {
            applied_at: (!covered.is_empty()).then_some(now),
            target,
            deletion_id: request.id,
        });
    }
    result.deleted_count = taken.len();
    decision.deletion = Some(result);
}

/// The rows by everything a target can name them with: one request may name a thousand, with as many versions each.
fn by_name<'a>(rows: &'a [Row<'a>]) -> HashMap<DeletionTargetKind, Vec<&'a Row<'a>>> {
    let mut named: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows {
        named.entry(DeletionTargetKind::EventId(row.event.id)).or_default().push(row);
        if let Some(address) = row.event.address() {
            named.entry(DeletionTargetKind::Address(address)).or_default().push(row);
        }
    }
    named
}
