//! An event as NIP-01 defines it, and the facts that follow from the event alone.

use bytes::Bytes;
use serde::Deserialize;

use crate::{
    address::{Address, Rank},
    id::{EventId, PublicKey, Signature},
    json,
    kind::{Kind, KindClass},
    refusal::{Malformed, Refusal},
    tags::Tags,
    time::{Millis, Timestamp},
};

/// A well-formed event, whose id and signature are not checked yet: see [`Self::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The id, as claimed by the sender.
    pub id: EventId,
    /// The author's public key.
    pub pubkey: PublicKey,
    /// `created_at` in Unix seconds, as claimed by the author.
    pub created_at: Timestamp,
    /// The kind.
    pub kind: Kind,
    /// Its tags.
    pub tags: Tags,
    /// The content; its form depends on the kind.
    pub content: String,
    /// The author's signature of the id, as claimed by the sender.
    pub sig: Signature,
}

/// The event as deserialized by serde. [`Event`] has no `Deserialize`, because [`Event::from_json`] checks more than
/// types.
#[derive(Deserialize)]
struct Fields {
    id: EventId,
    pubkey: PublicKey,
    created_at: Timestamp,
    kind: Kind,
    tags: Tags,
    content: String,
    sig: Signature,
}

impl Event {
    /// Reads an event from JSON.
    ///
    /// Every field of NIP-01 must occur once, with its type and spelling, and without values that no store can hold
    /// (E-8: NUL, times at or past 2^53). Unknown fields are ignored and not kept.
    pub fn from_json(json: impl AsRef<[u8]>) -> Result<Self, Refusal> {
        let json = json.as_ref().trim_ascii_start();
        if json.first() != Some(&b'{') {
            return Err(Malformed::new("an event is a JSON object").into());
        }
        // One check of the whole text is faster than one per string, and covers ignored fields, too.
        let json = str::from_utf8(json).map_err(|_| Malformed::new("an event is UTF-8 text"))?;
        let fields: Fields = serde_json::from_str(json).map_err(|error| Malformed::from_json(&error))?;
        let Fields { id, pubkey, created_at, kind, tags, content, sig } = fields;
        let event = Self { id, pubkey, created_at, kind, tags, content, sig };
        event.check_storable()?;
        Ok(event)
    }

    /// Checks the bounds that every store has, independent of the configuration (E-8).
    fn check_storable(&self) -> Result<(), Malformed> {
        if self.created_at > Timestamp::MAX_IN_EVENT {
            return Err(Malformed::new("created_at must be below 2^53"));
        }
        if self.content.contains('\0') {
            return Err(Malformed::new("content must not hold a NUL character"));
        }
        if self.tags.contains_char('\0') {
            return Err(Malformed::new("tags must not hold a NUL character"));
        }
        Ok(())
    }

    /// The canonical JSON that this node stores and serves: no white space, fields in the order of NIP-01.
    pub fn to_json(&self) -> Bytes {
        json::Encoded::of(self).into_json()
    }

    /// The id computed from the event's content.
    pub fn true_id(&self) -> EventId {
        json::Encoded::of(self).id_of(self)
    }

    /// The rank among the versions of its key (E-3).
    pub fn rank(&self) -> Rank {
        Rank { created_at: self.created_at, id: self.id }
    }

    /// The key of its versions, if the event is replaceable or addressable. The first `d` counts (E-4).
    pub fn address(&self) -> Option<Address> {
        match self.kind.class() {
            KindClass::Replaceable => Some(Address::replaceable(self.kind, self.pubkey)),
            KindClass::Addressable => {
                Some(Address::addressable(self.kind, self.pubkey, self.identifier().unwrap_or_default()))
            }
            KindClass::Regular | KindClass::Ephemeral => None,
        }
    }

    /// The value of the first `d` tag.
    pub fn identifier(&self) -> Option<&str> {
        self.tags.values("d").next()
    }

    /// The keys that may delete the event: its author, and for a gift wrap each recipient too (D-10).
    pub fn owners(&self) -> impl Iterator<Item = PublicKey> + '_ {
        let recipients =
            (self.kind == Kind::GIFT_WRAP).then(|| self.recipients().filter(|&recipient| recipient != self.pubkey));
        std::iter::once(self.pubkey).chain(recipients.into_iter().flatten())
    }

    /// Whether `pubkey` is one of its owners.
    pub fn is_owned_by(&self, pubkey: &PublicKey) -> bool {
        self.owners().any(|owner| owner == *pubkey)
    }

    /// The public keys in its `p` tags.
    pub fn recipients(&self) -> impl Iterator<Item = PublicKey> + '_ {
        self.tags.values("p").filter_map(|value| PublicKey::from_hex(value).ok())
    }

    /// The expiration (NIP-40). Requests have none. A malformed value is ignored.
    pub fn expiration(&self) -> Option<Timestamp> {
        if self.kind.is_request() {
            return None;
        }
        decimal(self.tags.values("expiration").next()?).map(Timestamp)
    }

    /// Whether a node tells of itself with this event (B-2). The kinds are those of group metadata in NIP-29 as well, so the tag `k`
    /// decides.
    pub fn describes_a_node(&self) -> bool {
        matches!(self.kind, Kind::NODE_DESCRIPTOR | Kind::TOPIC_SERVICE) && self.tags.values("k").any(|k| k == "kukuri")
    }

    /// Whether the event is a sign that its topics are in use (T-8). What nodes tell of themselves is none: they tell it again and
    /// again, and would keep a topic open that nobody uses.
    pub fn is_sign_of_use(&self) -> bool {
        !self.describes_a_node()
    }

    /// Whether the expiration has passed: from then on the event is not served.
    pub fn is_expired(&self, now: Millis) -> bool {
        self.expiration().is_some_and(|end| end <= now.seconds())
    }

    /// Whether only the author may publish the event (NIP-70).
    pub fn is_protected(&self) -> bool {
        self.tags.iter().any(|tag| tag.name() == Some("-"))
    }
}

/// Parses a tag value that consists of decimal digits only.
pub(crate) fn decimal(value: &str) -> Option<u64> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten()
}
