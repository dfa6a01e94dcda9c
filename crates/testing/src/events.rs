//! Makes and signs events.

use std::time::{SystemTime, UNIX_EPOCH};

use kukuri_domain::{Event, EventId, Kind, Millis, PublicKey, Signature, Timestamp};
use secp256k1::{Keypair, SecretKey, schnorr};
use serde_json::Value;

/// The topic of [`note`].
pub const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";

/// A topic for each number. 1 is [`TOPIC`].
pub fn topic(number: u8) -> String {
    format!("kukuri:{}", format!("{number:02x}").repeat(32))
}

/// An event as JSON.
pub fn as_json(event: &Event) -> Value {
    serde_json::from_slice(&event.to_json()).unwrap()
}

/// The id of an event in hexadecimal.
pub fn id_of(event: &Event) -> String {
    event.id.to_string()
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Milliseconds since 1970.
pub fn millis() -> Millis {
    Millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

/// An event without id and signature.
#[derive(Clone)]
pub struct Draft {
    secret: [u8; 32],
    kind: u16,
    created_at: u64,
    tags: Vec<Vec<String>>,
    content: String,
}

/// An event of this kind, without tags, made now.
pub fn draft(author: u8, kind: u16) -> Draft {
    Draft { secret: [author; 32], kind, created_at: now(), tags: Vec::new(), content: String::new() }
}

/// A note in the topic.
pub fn note(author: u8, content: &str) -> Draft {
    draft(author, 1).tag(["t", TOPIC]).content(content)
}

/// The public key of an author in hexadecimal.
pub fn key_of(author: u8) -> String {
    let (key, _) = keypair([author; 32]).x_only_public_key();
    PublicKey::from_bytes(key.to_byte_array()).to_string()
}

fn keypair(secret: [u8; 32]) -> Keypair {
    Keypair::from_secret_key(&SecretKey::from_secret_bytes(secret).unwrap())
}

impl Draft {
    /// Sets the author's secret key.
    pub fn by(mut self, secret: [u8; 32]) -> Self {
        self.secret = secret;
        self
    }

    /// Adds a tag.
    pub fn tag<const N: usize>(mut self, items: [&str; N]) -> Self {
        self.tags.push(items.iter().map(ToString::to_string).collect());
        self
    }

    /// Sets the content.
    pub fn content(mut self, content: &str) -> Self {
        self.content = content.to_owned();
        self
    }

    /// Sets `created_at`, in seconds since 1970.
    pub fn at(mut self, created_at: u64) -> Self {
        self.created_at = created_at;
        self
    }

    /// Computes the id and signs the event.
    pub fn sign(self) -> Event {
        let pair = keypair(self.secret);
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
        sign(&mut event, &pair);
        event
    }
}

/// Signs an event whose id is set.
pub fn sign(event: &mut Event, pair: &Keypair) {
    let signature = schnorr::sign_no_aux_rand(event.id.as_bytes(), pair);
    event.sig = Signature::from_bytes(*signature.as_byte_array());
}
