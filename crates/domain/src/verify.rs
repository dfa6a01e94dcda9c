//! An event whose id and signature are verified (E-1).

use bytes::Bytes;
use secp256k1::{XOnlyPublicKey, schnorr};

use crate::{
    event::Event,
    json::Encoded,
    limits::{Limit, within},
    refusal::Refusal,
};

/// An event with a verified signature, and the JSON as stored and served.
///
/// Cheap checks come before this one (E-9): it takes about 45 µs, all others together only a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    event: Event,
    json: Bytes,
}

impl Verified {
    /// Checks the id against the content and the signature against the id.
    pub fn check(event: Event) -> Result<Self, Refusal> {
        let encoded = encode_true(usize::MAX, &event)?;
        Self::check_signature(event, encoded)
    }

    /// Checks only the signature, the expensive part, of an event whose id is already checked.
    pub(crate) fn check_signature(event: Event, encoded: Encoded) -> Result<Self, Refusal> {
        if !is_signed(&event) {
            return Err(Refusal::WrongSignature);
        }
        Ok(Self { event, json: encoded.into_json() })
    }

    /// Skips all checks. Only for an event that this node verified before storing it, or in tests.
    pub fn new_unchecked(event: Event) -> Self {
        let json = event.to_json();
        Self { event, json }
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The JSON as stored and served.
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

/// Encodes an event and checks first its size, then its id (E-8, E-9).
pub(crate) fn encode_true(event_bytes: usize, event: &Event) -> Result<Encoded, Refusal> {
    let encoded = Encoded::of(event);
    within(Limit::EventBytes, encoded.len(), event_bytes)?;
    if encoded.id_of(event) == event.id { Ok(encoded) } else { Err(Refusal::WrongId) }
}

fn is_signed(event: &Event) -> bool {
    let Ok(key) = XOnlyPublicKey::from_byte_array(*event.pubkey.as_bytes()) else { return false };
    let signature = schnorr::Signature::from_byte_array(*event.sig.as_bytes());
    signature.verify(event.id.as_bytes(), &key).is_ok()
}
