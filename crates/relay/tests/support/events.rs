//! Events that are being written, and signed.

use std::time::{SystemTime, UNIX_EPOCH};

use kukuri_domain::{Event, EventId, Kind, Millis, PublicKey, Signature, Timestamp};
use secp256k1::{Keypair, SecretKey, schnorr};
use serde_json::Value;

pub(crate) const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";

/// Another topic for each number.
pub(crate) fn topic(number: u8) -> String {
    format!("kukuri:{}", format!("{number:02x}").repeat(32))
}

pub(crate) fn as_json(event: &Event) -> Value {
    serde_json::from_slice(&event.to_json()).unwrap()
}

pub(crate) fn id_of(event: &Event) -> String {
    event.id.to_string()
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The relay's clock.
pub(crate) fn millis() -> Millis {
    Millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

/// An event that is being written.
#[derive(Clone)]
pub(crate) struct Draft {
    author: u8,
    kind: u16,
    created_at: u64,
    tags: Vec<Vec<String>>,
    content: String,
}

/// An event of this kind, without tags, made now.
pub(crate) fn draft(author: u8, kind: u16) -> Draft {
    Draft { author, kind, created_at: now(), tags: Vec::new(), content: String::new() }
}

/// A note in the topic.
pub(crate) fn note(author: u8, content: &str) -> Draft {
    draft(author, 1).tag(["t", TOPIC]).content(content)
}

pub(crate) fn key_of(author: u8) -> String {
    let (key, _) = keypair(author).x_only_public_key();
    PublicKey::from_bytes(key.to_byte_array()).to_string()
}

fn keypair(author: u8) -> Keypair {
    Keypair::from_secret_key(&SecretKey::from_secret_bytes([author; 32]).unwrap())
}

impl Draft {
    pub(crate) fn tag<const N: usize>(mut self, items: [&str; N]) -> Self {
        self.tags.push(items.iter().map(ToString::to_string).collect());
        self
    }

    pub(crate) fn content(mut self, content: &str) -> Self {
        self.content = content.to_owned();
        self
    }

    pub(crate) fn at(mut self, created_at: u64) -> Self {
        self.created_at = created_at;
        self
    }

    pub(crate) fn sign(self) -> Event {
        let pair = keypair(self.author);
        let (key, _) = pair.x_only_public_key();
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: PublicKey::from_bytes(key.to_byte_array()),
            created_at: Timestamp(self.created_at),
            kind: Kind(self.kind),
            tags: self.tags.into_iter().collect(),
            content: self.content,
            sig: Signature::from_bytes([0; 64]),
        };
        event.id = event.true_id();
        let signature = schnorr::sign_no_aux_rand(event.id.as_bytes(), &pair);
        event.sig = Signature::from_bytes(*signature.as_byte_array());
        event
    }
}
