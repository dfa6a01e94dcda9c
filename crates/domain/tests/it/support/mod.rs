//! Events for the tests, written as short sentences: `note().by(BOB).at(5).tag(["d", "x"]).signed()`.
//!
//! Keys and signatures are the `nostr` crate's, so that nothing here is right only because the code under test agrees
//! with itself.

#![allow(dead_code, reason = "every test file compiles this module and uses its own part of it")]
#![allow(clippy::unwrap_used, reason = "what a test makes up is well-formed")]

use std::sync::Arc;

use kukuri_domain::{
    Admission, Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, Refusal, RelayUrls, Signature, Tags,
    Timestamp, TopicId,
    deletion::{DeletionTarget, Tombstone},
    sharing::{self, RequestRef},
};
use nostr::{
    event::{EventBuilder, FinalizeEvent, Tag},
    key::{Keys, SecretKey},
};

/// The second in which every test plays.
pub(crate) const NOW_SECONDS: u64 = 1_700_000_000;
/// The moment in which every test plays.
pub(crate) const NOW: Millis = Millis::from_secs(NOW_SECONDS);
/// The topic of every event that does not name another.
pub(crate) const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";
/// A second topic.
pub(crate) const OTHER_TOPIC: &str = "kukuri:0202020202020202020202020202020202020202020202020202020202020202";

/// Somebody with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Author(u8);

pub(crate) const ALICE: Author = Author(1);
pub(crate) const BOB: Author = Author(2);
pub(crate) const CAROL: Author = Author(3);

impl Author {
    pub(crate) fn nostr_keys(self) -> Keys {
        Keys::new(SecretKey::from_slice(&[self.0; 32]).unwrap())
    }

    pub(crate) fn key(self) -> PublicKey {
        PublicKey::from_bytes(*self.nostr_keys().public_key().as_bytes())
    }

    /// The key as tags spell it.
    pub(crate) fn hex(self) -> String {
        self.key().to_string()
    }
}

/// An event that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    author: Author,
    created_at: u64,
    kind: u16,
    tags: Vec<Vec<String>>,
    content: String,
}

/// An event of this kind by Alice, made now, with no tags at all.
pub(crate) fn bare(kind: u16) -> Draft {
    Draft { author: ALICE, created_at: NOW_SECONDS, kind, tags: Vec::new(), content: String::new() }
}

/// An event of this kind by Alice, made now, in [`TOPIC`].
pub(crate) fn event(kind: u16) -> Draft {
    bare(kind).tag(["t", TOPIC])
}

/// A text note by Alice, made now, in [`TOPIC`].
pub(crate) fn note() -> Draft {
    event(1).content("hello")
}

impl Draft {
    pub(crate) fn by(mut self, author: Author) -> Self {
        self.author = author;
        self
    }

    pub(crate) fn at(mut self, seconds: u64) -> Self {
        self.created_at = seconds;
        self
    }

    pub(crate) fn tag<const N: usize>(mut self, items: [impl Into<String>; N]) -> Self {
        self.tags.push(items.into_iter().map(Into::into).collect());
        self
    }

    pub(crate) fn tags<T: IntoIterator<Item: Into<String>>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags.extend(tags.into_iter().map(|tag| tag.into_iter().map(Into::into).collect()));
        self
    }

    pub(crate) fn content(mut self, content: impl Into<String>) -> Self {
        self.content = content.into();
        self
    }

    /// With its true id and a signature that is none.
    pub(crate) fn unsigned(self) -> Event {
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: self.author.key(),
            created_at: Timestamp(self.created_at),
            kind: Kind(self.kind),
            tags: self.tags.iter().collect::<Tags>(),
            content: self.content,
            sig: Signature::from_bytes([0; 64]),
        };
        event.id = event.true_id();
        event
    }

    /// Hashed and signed by the `nostr` crate.
    pub(crate) fn nostr(self) -> nostr::event::Event {
        EventBuilder::new(self.kind.into(), self.content)
            .tags(self.tags.into_iter().map(|tag| Tag::parse(tag).unwrap()))
            .custom_created_at(self.created_at.into())
            .finalize(&self.author.nostr_keys())
            .unwrap()
    }

    /// Hashed and signed by the `nostr` crate, as one of ours.
    pub(crate) fn signed(self) -> Event {
        ours(&self.nostr())
    }

    /// The JSON of [`Self::signed`].
    pub(crate) fn json(self) -> Vec<u8> {
        self.signed().to_json().to_vec()
    }

    /// As a store gets it, past every check but the signature.
    pub(crate) fn admitted(self) -> Admitted {
        admitted(&self.unsigned())
    }
}

/// The same event in our types, field by field: no parser of ours has seen it.
pub(crate) fn ours(event: &nostr::event::Event) -> Event {
    Event {
        id: EventId::from_bytes(*event.id.as_bytes()),
        pubkey: PublicKey::from_bytes(*event.pubkey.as_bytes()),
        created_at: Timestamp(event.created_at.as_secs()),
        kind: Kind(event.kind.into()),
        tags: event.tags.iter().map(Tag::as_slice).collect(),
        content: event.content.clone(),
        sig: Signature::from_bytes(*event.sig.as_bytes()),
    }
}

/// The event as a store gets it, imported by a relay that goes by [`RELAY`].
pub(crate) fn admitted(event: &Event) -> Admitted {
    relay().screen(event.clone(), Origin::Import, NOW).unwrap().admit_unchecked()
}

/// What the relay of the tests is called.
pub(crate) const RELAY: &str = "wss://relay.example.com";

/// A node with default limits, whose events must name topics.
pub(crate) fn relay() -> Admission {
    Admission { relay_urls: RelayUrls::new(&[RELAY]), ..Admission::default() }
}

/// What a stranger is told who sends this text to a relay.
pub(crate) fn refusal_of(text: impl AsRef<[u8]>) -> Option<Refusal> {
    relay().admit(text.as_ref(), Origin::unauthenticated_client(), NOW).err()
}

/// A client that has authenticated as these authors.
pub(crate) fn client(authors: &[Author]) -> Origin {
    Origin::Client { authenticated: authors.iter().map(|author| author.key()).collect::<Arc<[_]>>() }
}

/// A peer on a gossip topic.
pub(crate) fn gossip(topic: &str) -> Origin {
    Origin::Gossip { peer: [7; 32], topic: TopicId::new_unchecked(topic) }
}

/// The tombstones that a deletion request leaves for its targets, none of which has come yet.
pub(crate) fn tombstones(request: &Event) -> Vec<Tombstone> {
    DeletionTarget::parse_from_event(request)
        .into_iter()
        .map(|target| Tombstone {
            target,
            deletion_id: request.id,
            applied_at: None,
            shareable: sharing::may_pass_on(request).then(|| RequestRef::of(request)),
        })
        .collect()
}

/// The fields of an event as raw JSON, to be spoiled one by one.
#[derive(Clone)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(crate) const NAMES: [&str; 7] = ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"];

    pub(crate) fn of(event: &Event) -> Self {
        let json: serde_json::Value = serde_json::from_slice(&event.to_json()).unwrap();
        Self(Self::NAMES.iter().map(|&name| (name.to_owned(), json[name].to_string())).collect())
    }

    /// With `raw` in place of the field.
    pub(crate) fn set(mut self, name: &str, raw: impl Into<String>) -> Self {
        self.0.iter_mut().find(|(field, _)| field == name).unwrap().1 = raw.into();
        self
    }

    /// Without the field.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(field, _)| field != name);
        self
    }

    /// With one more field at the end, of a new name or not.
    pub(crate) fn and(mut self, name: &str, raw: impl Into<String>) -> Self {
        self.0.push((name.to_owned(), raw.into()));
        self
    }

    /// The raw JSON of a field.
    pub(crate) fn raw(&self, name: &str) -> &str {
        &self.0.iter().find(|(field, _)| field == name).unwrap().1
    }

    pub(crate) fn json(&self) -> String {
        let fields: Vec<_> = self.0.iter().map(|(name, raw)| format!(r#""{name}":{raw}"#)).collect();
        format!("{{{}}}", fields.join(","))
    }
}
