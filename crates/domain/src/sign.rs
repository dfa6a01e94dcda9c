//! Events that this node makes itself: unsigned, then signed with one of its keys (B-2).

use secp256k1::{Keypair, schnorr};

use crate::{
    event::Event,
    id::{EventId, PublicKey, Signature},
    kind::Kind,
    tags::Tags,
    time::Timestamp,
};

/// An event without author, time, id and signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsignedEvent {
    /// The kind.
    pub kind: Kind,
    /// Its tags.
    pub tags: Tags,
    /// The content.
    pub content: String,
}

impl UnsignedEvent {
    /// Signs the event. The same event, key and time give the same bytes: no randomness is needed.
    pub fn sign(self, key: &Keypair, created_at: Timestamp) -> Event {
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: public_key(key),
            created_at,
            kind: self.kind,
            tags: self.tags,
            content: self.content,
            sig: Signature::from_bytes([0; 64]),
        };
        event.id = event.true_id();
        let signature = schnorr::sign_no_aux_rand(event.id.as_bytes(), key);
        event.sig = Signature::from_bytes(*signature.as_byte_array());
        event
    }
}

/// The public key of a key pair, as events name it.
pub fn public_key(key: &Keypair) -> PublicKey {
    PublicKey::from_bytes(key.x_only_public_key().0.to_byte_array())
}

#[cfg(test)]
mod tests {
    use secp256k1::SecretKey;

    use super::*;

    #[test]
    fn signed_event_is_verified_here_and_by_another_library() {
        // E-1
        let key = Keypair::from_secret_key(&SecretKey::from_secret_bytes([7; 32]).unwrap());
        let tags = [["d", "descriptor"], ["t", "kukuri:global"]].into_iter().collect();
        let unsigned = UnsignedEvent { kind: Kind::NODE_DESCRIPTOR, tags, content: "{\"name\":\"茶\"}".to_owned() };
        let event = unsigned.clone().sign(&key, Timestamp(1_700_000_000));
        assert_eq!((event.pubkey, event.verify()), (public_key(&key), Ok(())));
        assert_eq!(unsigned.sign(&key, Timestamp(1_700_000_000)), event);
        let theirs = nostr::event::Event::from_json(event.to_json()).unwrap();
        assert!(theirs.verify().is_ok());
        assert_eq!(theirs.content, event.content);
    }
}
