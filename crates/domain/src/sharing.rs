//! What nodes tell each other of a topic when they catch up (G-7): which events, and what requests left behind.
//!
//! The set that two nodes reconcile is a topic's effective events, the requests that took an event of it away or kept
//! one out, and for versions that were deleted by id their floors. All of it is named by time and id alike: [`Trace`] is
//! what a topic keeps of a request, [`FloorHint`] what is told instead of a version that nobody may show any more.

use crate::{
    address::{Address, Rank},
    admission::{check_between_nodes, check_kind},
    decision::KeyState,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    event::Event,
    id::EventId,
    kind::Kind,
    retention::RetentionClass,
    time::{Millis, Timestamp},
    vanish::is_for_all_relays,
};

/// Whether an event may be given to another node (E-6, E-10, G-7). A request to vanish from one relay is no other's business.
pub fn may_pass_on(event: &Event) -> bool {
    let concerns_others = event.kind != Kind::VANISH || is_for_all_relays(event);
    concerns_others && check_kind(event.kind).is_ok() && check_between_nodes(event).is_ok()
}

/// How far back nodes compare what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Regular events made before this are left alone: whoever lacks them may have purged them. Versions and requests
    /// have no such end.
    pub regular_since: Timestamp,
    /// What has ended by now is not told.
    pub now: Millis,
}

impl Window {
    /// Whether an effective event with this kind and time is within it, as far as these show.
    pub fn reaches(&self, kind: Kind, created_at: Timestamp) -> bool {
        RetentionClass::of(kind, true) != RetentionClass::Regular || created_at >= self.regular_since
    }

    /// Whether an effective event is told to other nodes.
    pub fn shows(&self, event: &Event) -> bool {
        self.reaches(event.kind, event.created_at) && !event.is_expired(self.now) && may_pass_on(event)
    }
}

/// That a version was there, without the version: enough to raise its key's floor (D-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloorHint {
    /// The key.
    pub key: Address,
    /// The version.
    pub floor: Rank,
    /// The deletion request that took it away, or kept it out.
    pub request: EventId,
}

/// What a request left behind in a topic, for other nodes to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The request itself: it took away an event of the topic, or kept one out.
    Request {
        /// When it was made.
        created_at: Timestamp,
        /// Its id.
        id: EventId,
    },
    /// A version of the topic that it named by id.
    Hint(FloorHint),
}

impl Trace {
    /// A request, as a trace.
    pub fn of(request: &Event) -> Self {
        Self::Request { created_at: request.created_at, id: request.id }
    }

    /// What it is called in the set.
    pub fn item(&self) -> (Timestamp, EventId) {
        match self {
            Self::Request { created_at, id } => (*created_at, *id),
            Self::Hint(hint) => (hint.floor.created_at, hint.floor.id),
        }
    }

    /// Whose trace it is: it goes when the request goes.
    pub fn request(&self) -> EventId {
        match self {
            Self::Request { id, .. } => *id,
            Self::Hint(hint) => hint.request,
        }
    }

    /// Everything that a deletion leaves in the topics of an event that it deleted.
    pub fn of_request(request: &Event, event: &Event) -> Vec<Self> {
        let targets = DeletionTarget::parse_from_event(request).into_iter().filter(|target| target.covers(event));
        targets.flat_map(|target| Self::of_deletion(&target, request.id, event)).collect()
    }

    /// Whether it can be this request's: a hint is about an id that the request names.
    pub fn is_of(&self, request: &Event) -> bool {
        match self {
            Self::Request { .. } => *self == Self::of(request),
            Self::Hint(hint) => hint.request == request.id && is_backed_by(hint, request),
        }
    }

    /// What a deletion leaves in the topics of an event that it takes away or keeps out.
    pub(crate) fn of_deletion(
        target: &DeletionTarget,
        request: EventId,
        event: &Event,
    ) -> impl Iterator<Item = Self> + use<> {
        let created_at = target.request_created_at;
        let named_by_id = matches!(target.target, DeletionTargetKind::EventId(_));
        // Nobody takes a hint that reaches beyond its request, so none is given.
        let hint = event.address().filter(|_| named_by_id && event.created_at <= created_at);
        let hint = hint.map(|key| Self::Hint(FloorHint { key, floor: event.rank(), request }));
        [Self::Request { created_at, id: request }].into_iter().chain(hint)
    }
}

/// What a store has to know for a decision on a hint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// Whether the version itself is known: then its floor is, and nobody's word is needed.
    pub is_known: bool,
    /// The request that the hint names, if it is stored.
    pub request: Option<&'a Event>,
    /// The tombstone of the version's id by the key's author.
    pub tombstone: Option<&'a Tombstone>,
    /// The key, if a version of it was seen.
    pub key: Option<KeyState>,
}

/// What becomes of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintVerdict {
    /// The version itself is known.
    Known,
    /// No request that is here backs it.
    Refused,
    /// It is true enough.
    Taken {
        /// The key's floor rises to the hint's.
        raises: bool,
        /// The effective version that goes with that (D-9).
        below: Option<EventId>,
        /// It is passed on from here: the request is, too.
        is_passed_on: bool,
    },
}

/// Decides on a hint of another node. Its word counts only as far as a request of the key's own author goes (G-7).
pub fn weigh(hint: &FloorHint, held: &Held<'_>) -> HintVerdict {
    if held.is_known {
        return HintVerdict::Known;
    }
    let request = held.request.filter(|request| request.id == hint.request && request.kind == Kind::DELETION);
    let request = request.filter(|request| is_backed_by(hint, request));
    if request.is_none() && !held.tombstone.is_some_and(|tombstone| backs(&tombstone.target, hint)) {
        return HintVerdict::Refused;
    }
    let raises = held.key.is_none_or(|key| key.floor < hint.floor);
    HintVerdict::Taken {
        raises,
        below: held.key.and_then(|key| key.current).filter(|_| raises),
        is_passed_on: request.is_some_and(may_pass_on),
    }
}

fn is_backed_by(hint: &FloorHint, request: &Event) -> bool {
    DeletionTarget::parse_from_event(request).iter().any(|target| backs(target, hint))
}

fn backs(target: &DeletionTarget, hint: &FloorHint) -> bool {
    target.target == DeletionTargetKind::EventId(hint.floor.id)
        && target.requester_pubkey == hint.key.pubkey()
        && hint.floor.created_at <= target.request_created_at
}
