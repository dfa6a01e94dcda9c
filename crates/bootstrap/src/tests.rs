//! A node, its key and a topic, for the tests of this crate.

use kukuri_domain::{Timestamp, TopicId, sign::public_key};
use secp256k1::{Keypair, SecretKey};

use crate::{Endpoints, Operator, Profile};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000);

pub(crate) fn key() -> Keypair {
    #[allow(clippy::unwrap_used, reason = "these bytes are a key")]
    Keypair::from_secret_key(&SecretKey::from_secret_bytes([7; 32]).unwrap())
}

pub(crate) fn topic() -> TopicId {
    TopicId::new_unchecked(&format!("kukuri:{}", "01".repeat(32)))
}

pub(crate) fn profile() -> Profile {
    let endpoints =
        Endpoints { http: "https://node.example".to_owned(), ws: "wss://node.example".to_owned(), p2p: None };
    Profile {
        name: "お茶の間".to_owned(),
        contact: Some("mailto:operator@node.example".to_owned()),
        operator: Operator { jurisdiction: Some("JP".to_owned()), ..Operator::default() },
        ..Profile::new(public_key(&key()), endpoints)
    }
}
