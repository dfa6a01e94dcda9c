//! Event kinds and the rules that follow from their number alone (E-2, E-6, E-10, D-5).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::Number;

/// An event's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Kind(pub u16);

/// The class of a kind: whether its events are stored, and which of them are effective (E-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KindClass {
    /// Every event is effective.
    Regular,
    /// The highest version per author and kind is effective.
    Replaceable,
    /// Delivered live, never stored (E-5).
    Ephemeral,
    /// The highest version per kind, author and `d` tag is effective.
    Addressable,
}

impl Kind {
    /// Encrypted direct message of NIP-04.
    pub const DIRECT_MESSAGE: Self = Self(4);
    /// Deletion request (NIP-09).
    pub const DELETION: Self = Self(5);
    /// Request to vanish (NIP-62).
    pub const VANISH: Self = Self(62);
    /// Gift wrap (NIP-59), owned by its recipients too (D-10).
    pub const GIFT_WRAP: Self = Self(1059);
    /// Ephemeral gift wrap.
    pub const EPHEMERAL_GIFT_WRAP: Self = Self(21059);
    /// Client authentication (NIP-42), never stored.
    pub const AUTHENTICATION: Self = Self(22242);
    /// A signed HTTP request (NIP-98).
    pub const HTTP_AUTHENTICATION: Self = Self(27235);
    /// The descriptor of a node (B-1). NIP-29 uses the kind too: see [`Event::describes_a_node`](crate::Event::describes_a_node).
    pub const NODE_DESCRIPTOR: Self = Self(39000);
    /// A topic that a node serves, in one role (B-1).
    pub const TOPIC_SERVICE: Self = Self(39001);

    /// The class of this kind (E-2); a kind in no named range is regular.
    pub const fn class(self) -> KindClass {
        match self.0 {
            0 | 3 | 10_000..20_000 => KindClass::Replaceable,
            20_000..30_000 => KindClass::Ephemeral,
            30_000..40_000 => KindClass::Addressable,
            _ => KindClass::Regular,
        }
    }

    /// Whether the kind is replaceable or addressable: versions compete for one key.
    pub const fn is_keyed(self) -> bool {
        matches!(self.class(), KindClass::Replaceable | KindClass::Addressable)
    }

    /// Whether the kind is a deletion or vanish request: never deleted, never expired, never shed (D-5, X-4, P-6).
    pub const fn is_request(self) -> bool {
        matches!(self, Self::DELETION | Self::VANISH)
    }

    /// Whether the kind is for access control, which passes between peers only (E-6).
    pub const fn is_p2p_only(self) -> bool {
        matches!(self.0, 39_020..=39_022)
    }

    /// Whether events are shown only to their authenticated parties (E-10).
    pub const fn is_private(self) -> bool {
        matches!(self, Self::DIRECT_MESSAGE | Self::GIFT_WRAP | Self::EPHEMERAL_GIFT_WRAP)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number { max: u16::MAX.into(), expected: "a kind from 0 to 65535" };
        deserializer.deserialize_u64(number).map(|number| Self(number as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_class_of_its_range() {
        // E-2
        for (kind, class) in [
            (0, KindClass::Replaceable),
            (1, KindClass::Regular),
            (2, KindClass::Regular),
            (3, KindClass::Replaceable),
            (4, KindClass::Regular),
            (5, KindClass::Regular),
            (44, KindClass::Regular),
            (45, KindClass::Regular),
            (62, KindClass::Regular),
            (999, KindClass::Regular),
            (1_000, KindClass::Regular),
            (9_999, KindClass::Regular),
            (10_000, KindClass::Replaceable),
            (19_999, KindClass::Replaceable),
            (20_000, KindClass::Ephemeral),
            (29_999, KindClass::Ephemeral),
            (30_000, KindClass::Addressable),
            (39_999, KindClass::Addressable),
            (40_000, KindClass::Regular),
            (65_535, KindClass::Regular),
        ] {
            assert_eq!(Kind(kind).class(), class, "kind {kind}");
        }
    }
}
