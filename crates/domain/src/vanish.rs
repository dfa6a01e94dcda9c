//! Requests to vanish (NIP-62): they remove all events of an author up to a time (D-12).

use crate::{
    event::Event,
    id::{EventId, PublicKey},
    kind::Kind,
    refusal::Refusal,
    relay_urls::RelayUrls,
    sharing::{self, RequestRef},
    time::Timestamp,
};

const ALL_RELAYS: &str = "ALL_RELAYS";

impl RelayUrls {
    /// Whether a vanish request is for this relay. A request without a `relay` tag is malformed.
    pub(crate) fn are_named_by(&self, request: &Event) -> Result<bool, Refusal> {
        let mut relays = request.tags.values("relay").peekable();
        relays.peek().ok_or(Refusal::MissingRelay)?;
        Ok(relays.any(|relay| relay == ALL_RELAYS || self.contains(relay)))
    }
}

/// Whether a vanish request is for all relays.
pub(crate) fn is_for_all_relays(request: &Event) -> bool {
    request.tags.values("relay").any(|relay| relay == ALL_RELAYS)
}

/// The record of a vanish request; it outlives the request (D-12). The latest one per author applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VanishMark {
    /// The author that vanished.
    pub pubkey: PublicKey,
    /// All events created up to this time are removed and stay out.
    pub until: Timestamp,
    /// The request; [`Self::NO_REQUEST`] for a mark of this node alone.
    pub request_id: EventId,
    /// The author's latest request that may be shared with other nodes (G-7). Its time may be before `until`.
    pub shareable: Option<RequestRef>,
}

impl VanishMark {
    /// In place of the request in a mark that was left without one. No event has this id.
    pub const NO_REQUEST: EventId = EventId::from_bytes([0; 32]);

    /// A mark without a request, of this node alone: other nodes are not told (N-2).
    pub fn local(pubkey: PublicKey, until: Timestamp) -> Self {
        Self { pubkey, until, request_id: Self::NO_REQUEST, shareable: None }
    }

    /// Whether it was left without a request.
    pub fn is_local(&self) -> bool {
        self.request_id == Self::NO_REQUEST
    }

    /// The mark of a request alone.
    pub fn of(request: &Event) -> Self {
        Self {
            pubkey: request.pubkey,
            until: request.created_at,
            request_id: request.id,
            shareable: sharing::may_pass_on(request).then(|| RequestRef::of(request)),
        }
    }

    /// Merges two marks of one author: the later request applies, the known one if both are equally late.
    #[must_use]
    pub fn merged_with(self, known: Self) -> Self {
        let stronger = if self.until > known.until { self } else { known };
        Self { shareable: self.shareable.max(known.shareable), ..stronger }
    }

    /// The shareable request, if it covers this event.
    pub fn shareable_over(&self, event: &Event) -> Option<RequestRef> {
        self.shareable.filter(|request| Self { until: request.created_at, ..*self }.covers(event))
    }

    /// Whether the mark covers this event.
    pub fn covers(&self, event: &Event) -> bool {
        event.kind != Kind::VANISH && event.created_at <= self.until && event.is_owned_by(&self.pubkey)
    }
}
