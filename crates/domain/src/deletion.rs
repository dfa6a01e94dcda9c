//! Deletion requests (NIP-09): their targets, and which events they cover (D-2 to D-6, D-11).

use crate::{
    address::Address,
    event::Event,
    id::{EventId, PublicKey},
    kind::Kind,
    sharing::RequestRef,
    time::{Millis, Timestamp},
};

/// The target of a deletion request: an id or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeletionTargetKind {
    /// One event, by an `e` tag.
    EventId(EventId),
    /// All versions of a key up to the request's time, by an `a` tag.
    Address(Address),
}

/// One target of a deletion request, with its requester and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionTarget {
    /// The id or address to delete.
    pub target: DeletionTargetKind,
    /// The author of the request.
    pub requester_pubkey: PublicKey,
    /// `created_at` of the request: an address covers versions up to it (D-4).
    pub request_created_at: Timestamp,
}

impl DeletionTarget {
    /// The targets of a kind 5, each once. Skips malformed ones and addresses of another author (D-2, D-3).
    pub fn parse_from_event(event: &Event) -> Vec<Self> {
        let mut targets: Vec<_> = named(event)
            .filter_map(|target| target.filter(|target| may_be_requested(target, event.pubkey)))
            .map(|target| Self { target, requester_pubkey: event.pubkey, request_created_at: event.created_at })
            .collect();
        targets.sort_unstable_by(|left, right| left.target.cmp(&right.target));
        targets.dedup();
        targets
    }

    /// Whether this target covers an event: by id or address, requested by an owner, in time, and of no protected kind.
    pub fn covers(&self, event: &Event) -> bool {
        if DeletionValidator::is_protected_kind(event.kind) || !event.is_owned_by(&self.requester_pubkey) {
            return false;
        }
        match &self.target {
            DeletionTargetKind::EventId(id) => *id == event.id,
            DeletionTargetKind::Address(address) => {
                DeletionValidator::is_within_deletion_window(event.created_at, self.request_created_at)
                    && event.address().as_ref() == Some(address)
            }
        }
    }
}

/// The targets of all `e` and `a` tags; `None` for a malformed one.
fn named(event: &Event) -> impl Iterator<Item = Option<DeletionTargetKind>> {
    event.tags.iter().filter_map(|tag| {
        let value = tag.value().unwrap_or_default();
        match tag.name()? {
            "e" => Some(EventId::from_hex(value).ok().map(DeletionTargetKind::EventId)),
            "a" => Some(value.parse().ok().map(DeletionTargetKind::Address)),
            _ => None,
        }
    })
}

fn may_be_requested(target: &DeletionTargetKind, requester: PublicKey) -> bool {
    match target {
        DeletionTargetKind::EventId(_) => true,
        DeletionTargetKind::Address(address) => DeletionValidator::validate_pubkey_match(&address.pubkey(), &requester),
    }
}

/// The number of targets in a request's tags, malformed ones included.
pub(crate) fn named_count(event: &Event) -> usize {
    named(event).count()
}

/// The individual rules of deletion.
pub struct DeletionValidator;

impl DeletionValidator {
    /// Only the author may delete an event (D-3). Gift wraps have more owners: see [`Event::owners`].
    pub fn validate_pubkey_match(target_pubkey: &PublicKey, requester_pubkey: &PublicKey) -> bool {
        target_pubkey == requester_pubkey
    }

    /// Requests can't be deleted (D-5).
    pub fn is_protected_kind(kind: Kind) -> bool {
        kind.is_request()
    }

    /// An address covers versions up to the time of the request, that second included (D-4).
    pub fn is_within_deletion_window(event_created_at: Timestamp, request_created_at: Timestamp) -> bool {
        event_created_at <= request_created_at
    }
}

/// The result of a request, counted by target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionResult {
    /// Stored events that the request removed.
    pub deleted_count: usize,
    /// Targets that removed nothing: malformed, owned by another author, protected, or not stored (yet).
    pub skipped_count: usize,
}

/// The record of a deletion, for a target that may arrive later or again (D-6). One per target and requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The target, with its requester and time.
    pub target: DeletionTarget,
    /// The request.
    pub deletion_id: EventId,
    /// When the tombstone first matched an event. `None`: not yet.
    pub applied_at: Option<Millis>,
    /// The latest request for this target that may be shared with other nodes (G-7). A later one reaches further, and
    /// vanishes last.
    pub shareable: Option<RequestRef>,
}

impl Tombstone {
    /// Merges two tombstones with the same target and requester. For an address the later request wins, because it
    /// reaches further; for an id both are equivalent and the first one stays. The result is applied if either is.
    #[must_use]
    pub fn merged_with(self, known: Self) -> Self {
        let reaches_further = matches!(self.target.target, DeletionTargetKind::Address(_))
            && self.target.request_created_at > known.target.request_created_at;
        let applied_at = known.applied_at.or(self.applied_at);
        let shareable = self.shareable.max(known.shareable);
        Self { applied_at, shareable, ..if reaches_further { self } else { known } }
    }

    /// The target as the shareable request names it, and that request, if it covers this event.
    pub fn shareable_over(&self, event: &Event) -> Option<(DeletionTarget, RequestRef)> {
        let request = self.shareable?;
        let target = DeletionTarget { request_created_at: request.created_at, ..self.target.clone() };
        target.covers(event).then_some((target, request))
    }
}
