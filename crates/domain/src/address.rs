//! The address (key) of a replaceable or addressable event, and the rank of its versions (E-3).

use std::{cmp::Ordering, fmt, str::FromStr};

use crate::{
    event::decimal,
    id::{EventId, PublicKey},
    kind::{Kind, KindClass},
    time::Timestamp,
};

/// `kind:pubkey:d`, with an empty `d` for a replaceable kind: the value of an `a` tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    kind: Kind,
    pubkey: PublicKey,
    identifier: Box<str>,
}

/// A digest of an [`Address`]: 32 bytes, regardless of the length of `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressDigest(pub [u8; 32]);

/// A text that is not an address (D-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is kind:pubkey:d of an addressable kind, or kind:pubkey: of a replaceable one")]
pub struct AddressError;

impl Address {
    /// The address of a replaceable kind.
    pub fn replaceable(kind: Kind, pubkey: PublicKey) -> Self {
        Self { kind, pubkey, identifier: "".into() }
    }

    /// The address of an addressable kind.
    pub fn addressable(kind: Kind, pubkey: PublicKey, identifier: &str) -> Self {
        Self { kind, pubkey, identifier: identifier.into() }
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The author.
    pub fn pubkey(&self) -> PublicKey {
        self.pubkey
    }

    /// The `d` value; empty for a replaceable kind.
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    /// The blake3 digest.
    pub fn digest(&self) -> AddressDigest {
        let mut hash = blake3::Hasher::new();
        hash.update(&self.kind.0.to_be_bytes());
        hash.update(self.pubkey.as_bytes());
        hash.update(self.identifier.as_bytes());
        AddressDigest(*hash.finalize().as_bytes())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// `d` is everything after the second colon; a regular or ephemeral kind, or a replaceable one with a `d`, is
    /// malformed (D-2).
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut parts = text.splitn(3, ':');
        let (Some(kind), Some(pubkey), Some(identifier)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(AddressError);
        };
        let kind = decimal(kind).and_then(|kind| kind.try_into().ok()).map(Kind).ok_or(AddressError)?;
        let pubkey = PublicKey::from_hex(pubkey).map_err(|_| AddressError)?;
        match kind.class() {
            KindClass::Addressable => Ok(Self::addressable(kind, pubkey, identifier)),
            KindClass::Replaceable if identifier.is_empty() => Ok(Self::replaceable(kind, pubkey)),
            _ => Err(AddressError),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.kind, self.pubkey, self.identifier)
    }
}

/// The rank of a version within its key: the newest ranks highest, on a tie the lower id (E-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    /// `created_at` of the version.
    pub created_at: Timestamp,
    /// Id of the version.
    pub id: EventId,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.created_at.cmp(&other.created_at).then_with(|| other.id.cmp(&self.id))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> EventId {
        EventId::from_bytes([byte; 32])
    }

    #[test]
    fn the_newest_version_ranks_highest_and_a_tie_goes_to_the_lower_id() {
        // E-3
        let rank = |seconds, byte| Rank { created_at: Timestamp(seconds), id: id(byte) };
        assert!(rank(2, 9) > rank(1, 0));
        assert!(rank(2, 1) > rank(2, 2));
        assert_eq!(rank(2, 1).cmp(&rank(2, 1)), Ordering::Equal);
    }

    #[test]
    fn address_is_parsed_by_its_first_two_colons_and_checked_by_kind() {
        // D-2
        let key = "ab".repeat(32);
        for (text, right, why) in [
            (format!("30023:{key}:a:b"), true, "d is everything after the second colon"),
            (format!("30023:{key}:"), true, "an empty d is one"),
            (format!("0:{key}:"), true, "a replaceable kind has an empty d"),
            (format!("0:{key}:x"), false, "a replaceable kind has no d"),
            (format!("1:{key}:"), false, "a regular kind has no address"),
            (format!("20001:{key}:"), false, "an ephemeral kind has no address"),
            (format!("30023:{key}"), false, "the second colon is missing"),
            (format!("+30023:{key}:"), false, "a kind is digits only"),
            (format!("70000:{key}:"), false, "no such kind"),
            (format!("30023:{}:", key.to_uppercase()), false, "keys are lower-case hex"),
            (String::new(), false, "nothing at all"),
        ] {
            let parsed = text.parse::<Address>();
            assert_eq!(parsed.is_ok(), right, "{why}: {text}");
            if let Ok(address) = parsed {
                assert_eq!(address.to_string(), text);
            }
        }
    }
}
