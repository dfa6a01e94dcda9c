//! The shared set of a topic, for catch-up between nodes (G-7): events, and traces of requests.
//!
//! The set that two nodes reconcile holds a topic's effective events, the requests that removed or kept out an event of
//! the topic, and the floors of versions that were deleted by id. All items are identified by time and id: [`Trace`] is
//! the record of a request in a topic, [`FloorHint`] stands for a version that may no longer be shown.

use crate::{
    address::{Address, Rank},
    admission::{check_between_nodes, check_kind},
    decision::KeyState,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    event::Event,
    id::EventId,
    kind::Kind,
    remains::Subject,
    retention::RetentionClass,
    time::{Millis, Timestamp},
    topic::{GLOBAL, TopicId, claims_to_be_topic},
    vanish::is_for_all_relays,
};

/// Whether an event may be sent to another node (E-6, E-10, G-7). A request to vanish from one relay stays on that
/// relay.
pub fn may_pass_on(event: &Event) -> bool {
    let concerns_others = event.kind != Kind::VANISH || is_for_all_relays(event);
    concerns_others && check_kind(event.kind).is_ok() && check_between_nodes(event).is_ok()
}

/// Whether a request belongs to the shared set of a topic: by the topics that it names, not by those that it is bound to,
/// which differ between nodes (T-9).
pub fn tells_of(request: &Event, topic: &TopicId) -> bool {
    named_topics(request).any(|named| named == topic.as_str())
}

/// The topics that a request names; [`TopicId::global`] if it names none.
pub fn named_topics(request: &Event) -> impl Iterator<Item = &str> {
    let named = || request.tags.values("t").filter(|value| claims_to_be_topic(value));
    let none = named().next().is_none().then_some(GLOBAL);
    named().chain(none)
}

/// A request, by time and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestRef {
    /// `created_at` of the request.
    pub created_at: Timestamp,
    /// Its id.
    pub id: EventId,
}

impl RequestRef {
    /// The reference to this request.
    pub fn of(request: &Event) -> Self {
        Self { created_at: request.created_at, id: request.id }
    }
}

/// The time window of the shared set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Regular events created before this are left out: a node that lacks them may have purged them. Versions and
    /// requests have no such bound.
    pub regular_since: Timestamp,
    /// Events that have expired by now are left out.
    pub now: Millis,
}

impl Window {
    /// Whether an effective event of this kind and time can be in the window. Ignores the other conditions of
    /// [`Self::shows`].
    pub fn reaches(&self, kind: Kind, created_at: Timestamp) -> bool {
        RetentionClass::of(kind, true) != RetentionClass::Regular || created_at >= self.regular_since
    }

    /// Whether an effective event is in the shared set.
    pub fn shows(&self, event: &Event) -> bool {
        self.reaches(event.kind, event.created_at) && !event.is_expired(self.now) && may_pass_on(event)
    }
}

/// States that a version existed, without its content: enough to raise its key's floor (D-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloorHint {
    /// The key.
    pub key: Address,
    /// The rank of the version.
    pub floor: Rank,
    /// The deletion request that removed the version, or kept it out.
    pub request: EventId,
}

/// The record of a request in a topic, shared with other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The request itself: it removed an event of the topic, or kept one out.
    Request {
        /// `created_at` of the request.
        created_at: Timestamp,
        /// Its id.
        id: EventId,
    },
    /// The floor hint of a version in the topic that the request named by id.
    Hint(FloorHint),
}

/// The topics that a trace goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePlace {
    /// The topics of an event: of the one that is decided on, of a row, or of the remains of an event.
    Event(EventId),
    /// The topics in which events of the subject, created up to this time, left remains.
    Remains(Subject, Timestamp),
}

impl Trace {
    /// The trace of a request itself.
    pub fn of(request: &Event) -> Self {
        Self::Request { created_at: request.created_at, id: request.id }
    }

    /// Time and id of the item in the shared set.
    pub fn item(&self) -> (Timestamp, EventId) {
        match self {
            Self::Request { created_at, id } => (*created_at, *id),
            Self::Hint(hint) => (hint.floor.created_at, hint.floor.id),
        }
    }

    /// The request of the trace. A trace is removed together with its request.
    pub fn request(&self) -> EventId {
        match self {
            Self::Request { id, .. } => *id,
            Self::Hint(hint) => hint.request,
        }
    }

    /// All traces of a deletion in the topics of an event that it deleted.
    pub fn of_request(request: &Event, event: &Event) -> Vec<Self> {
        let targets = DeletionTarget::parse_from_event(request).into_iter().filter(|target| target.covers(event));
        targets.flat_map(|target| Self::of_deletion(&target, request.id, event)).collect()
    }

    /// Whether the trace can belong to this request: a hint is about an id that the request names.
    pub fn is_of(&self, request: &Event) -> bool {
        match self {
            Self::Request { .. } => *self == Self::of(request),
            Self::Hint(hint) => hint.request == request.id && is_backed_by(hint, request),
        }
    }

    /// The traces of a deletion in the topics of an event that it removes or keeps out.
    pub(crate) fn of_deletion(
        target: &DeletionTarget,
        request: EventId,
        event: &Event,
    ) -> impl Iterator<Item = Self> + use<> {
        let named_by_id = matches!(target.target, DeletionTargetKind::EventId(_));
        let key = event.address().filter(|_| named_by_id);
        Self::of_deleted(target.request_created_at, request, key, event.rank())
    }

    /// The traces of a deletion by a request of this time and id: for a key, the hint of the version's floor, too.
    pub(crate) fn of_deleted(
        created_at: Timestamp,
        request: EventId,
        key: Option<Address>,
        floor: Rank,
    ) -> impl Iterator<Item = Self> + use<> {
        // Nodes refuse a hint that is newer than its request, so none is created.
        let hint = key.filter(|_| floor.created_at <= created_at);
        let hint = hint.map(|key| Self::Hint(FloorHint { key, floor, request }));
        [Self::Request { created_at, id: request }].into_iter().chain(hint)
    }
}

/// The facts that a store provides for the decision on a hint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// Whether the id of the version is known: then its floor is known, too.
    pub is_known: bool,
    /// The request that the hint names, if it is stored.
    pub request: Option<&'a Event>,
    /// The tombstone of the version's id by the key's author.
    pub tombstone: Option<&'a Tombstone>,
    /// The key, if a version of it was seen.
    pub key: Option<KeyState>,
}

/// The decision on a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintVerdict {
    /// This node knows the version itself.
    AlreadyKnown,
    /// No stored request or tombstone justifies the hint.
    Refused,
    /// A stored request or tombstone justifies the hint.
    Taken {
        /// Whether the key's floor rises to that of the hint.
        raises: bool,
        /// The effective version below the new floor, which must be removed (D-9).
        below: Option<EventId>,
        /// Whether this node shares the hint further, as it does the request.
        is_passed_on: bool,
    },
}

/// Decides on a hint of another node, which is accepted only as far as a request of the key's own author justifies it
/// (G-7).
pub fn weigh(hint: &FloorHint, held: &Held<'_>) -> HintVerdict {
    if held.is_known {
        return HintVerdict::AlreadyKnown;
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
