//! The fixed-size values of an event: its id, its author's key, its signature.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::hex::{self, HexError};

macro_rules! hex_bytes {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Wraps the bytes, unchecked.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// Reads lower-case hex; any other spelling is an error.
            pub fn from_hex(text: impl AsRef<[u8]>) -> Result<Self, HexError> {
                hex::decode(text.as_ref()).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = HexError;
            fn from_str(text: &str) -> Result<Self, HexError> {
                Self::from_hex(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Hex;
                impl de::Visitor<'_> for Hex {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::from_hex(text)
                            .map_err(|error| E::custom(format_args!(concat!($what, " {}"), error)))
                    }
                }
                deserializer.deserialize_str(Hex)
            }
        }
    };
}

hex_bytes! {
    /// The SHA-256 of an event's content: the idempotency key everywhere (E-1).
    ///
    /// Ordered by its bytes, which is the lexicographic order of its hex.
    EventId, 32, "an event id"
}

hex_bytes! {
    /// An author's x-only secp256k1 key. Not checked to be on the curve: [`crate::Event::verify`] does that.
    PublicKey, 32, "a public key"
}

hex_bytes! {
    /// A BIP-340 Schnorr signature.
    Signature, 64, "a signature"
}

impl EventId {
    /// The first eight bytes, enough to order and distinguish ids in an index.
    pub fn prefix(&self) -> [u8; 8] {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&self.0[..8]);
        prefix
    }
}
