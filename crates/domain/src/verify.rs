//! An event whose id and signature are true (E-1).

use bytes::Bytes;
use secp256k1::{XOnlyPublicKey, schnorr};

use crate::{event::Event, json::Encoded, limits, refusal::Refusal};

/// An event that its author really signed, with the JSON it is kept and served in.
///
/// Cheap checks come before this one (E-9): it costs some 45 µs, all the others together a few.
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

    /// The costly part of it, for an event that was found true to its id.
    pub(crate) fn check_signature(event: Event, encoded: Encoded) -> Result<Self, Refusal> {
        if !is_signed(&event) {
            return Err(Refusal::WrongSignature);
        }
        Ok(Self { event, json: encoded.into_json() })
    }

    /// Takes the event at its word. Only for one that this node verified before it stored it, or that a test made up.
    pub fn trusted(event: Event) -> Self {
        let json = event.to_json();
        Self { event, json }
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Its JSON as it is kept and served.
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

/// The JSON of an event that is true to its id, and no longer than this, which is seen first (E-8, E-9).
pub(crate) fn encode_true(event_bytes: usize, event: &Event) -> Result<Encoded, Refusal> {
    let encoded = Encoded::of(event);
    limits::check_encoded(encoded.len(), event_bytes)?;
    if encoded.id_of(event) == event.id { Ok(encoded) } else { Err(Refusal::WrongId) }
}

fn is_signed(event: &Event) -> bool {
    let Ok(key) = XOnlyPublicKey::from_byte_array(*event.pubkey.as_bytes()) else { return false };
    let signature = schnorr::Signature::from_byte_array(*event.sig.as_bytes());
    signature.verify(event.id.as_bytes(), &key).is_ok()
}
