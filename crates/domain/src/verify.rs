//! Verification of an event's id and signature (E-1).

use secp256k1::{XOnlyPublicKey, schnorr};

use crate::{
    event::Event,
    json::Encoded,
    limits::{Limit, within},
    parsed_keys,
    refusal::Refusal,
};

impl Event {
    /// Checks the id against the content, and the signature against the id.
    pub fn verify(&self) -> Result<(), Refusal> {
        encode_true(usize::MAX, self)?;
        check_signature(self)
    }
}

/// Encodes an event and checks first its size, then its id (E-8, E-9).
pub(crate) fn encode_true(event_bytes: usize, event: &Event) -> Result<Encoded, Refusal> {
    let encoded = Encoded::of(event);
    within(Limit::EventBytes, encoded.len(), event_bytes)?;
    if encoded.id_of(event) == event.id { Ok(encoded) } else { Err(Refusal::WrongId) }
}

/// Checks only the signature. Cheap checks come before this one (E-9): it takes about 45 µs, all others together only a
/// few.
pub(crate) fn check_signature(event: &Event) -> Result<(), Refusal> {
    let (signature, kept) =
        (schnorr::Signature::from_byte_array(*event.sig.as_bytes()), parsed_keys::find(&event.pubkey));
    let parse = || XOnlyPublicKey::from_byte_array(*event.pubkey.as_bytes()).map_err(|_| Refusal::WrongSignature);
    let key = kept.map_or_else(parse, Ok)?;
    signature.verify(event.id.as_bytes(), &key).map_err(|_| Refusal::WrongSignature)?;
    if kept.is_none() {
        parsed_keys::keep(event.pubkey, key);
    }
    Ok(())
}
