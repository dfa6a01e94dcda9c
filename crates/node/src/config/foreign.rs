//! Configuration keys whose type belongs to another crate.

use std::ops::Deref;

use axum::http::HeaderName;
use kukuri_config::{Span, TextSetting, TomlValue};
use kukuri_domain::{DeletionMode, PublicKey, retention::Keep, topic::TopicsMode};
use kukuri_gossip::{PeerAddress, PeerPolicy};

/// Wraps a type of another crate, because that crate can't implement [`TextSetting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign<T>(pub(crate) T);

impl<T> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Implements [`TextSetting`] for an enum: one word per variant.
macro_rules! choices {
    ($type:ident: $allowed:literal, $($variant:ident = $text:literal),+) => {
        impl TextSetting for Foreign<$type> {
            const ALLOWED: &'static str = $allowed;

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self($type::$variant)),)+
                    _ => None,
                }
            }

            fn to_value(&self) -> TomlValue {
                match self.0 {
                    $($type::$variant => $text.into(),)+
                }
            }
        }
    };
}

choices!(TopicsMode: "required or global", Required = "required", Global = "global");
choices!(DeletionMode: "soft or physical", Soft = "soft", Physical = "physical");
choices!(PeerPolicy: "known or open", Known = "known", Open = "open");

impl TextSetting for Foreign<PeerAddress> {
    const ALLOWED: &'static str = "a peer's ticket, or its id and an address, such as <64 hex>@192.0.2.1:7778";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn to_value(&self) -> TomlValue {
        self.0.to_string().into()
    }
}

impl TextSetting for Foreign<PublicKey> {
    const ALLOWED: &'static str = "a public key of 64 lowercase hex digits";

    fn parse(text: &str) -> Option<Self> {
        PublicKey::from_hex(text).ok().map(Self)
    }

    fn to_value(&self) -> TomlValue {
        self.0.to_string().into()
    }
}

impl TextSetting for Foreign<HeaderName> {
    const ALLOWED: &'static str = "the name of an HTTP header, such as x-forwarded-for";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn to_value(&self) -> TomlValue {
        self.0.as_str().into()
    }
}

impl TextSetting for Foreign<Keep> {
    const ALLOWED: &'static str = "forever, or a time such as 12h or 30d, at most 36500d";

    fn parse(text: &str) -> Option<Self> {
        if text == "forever" {
            return Some(Self(Keep::Forever));
        }
        Span::parse(text).map(|span| Self(Keep::For(span.duration())))
    }

    fn to_value(&self) -> TomlValue {
        match self.0 {
            Keep::For(duration) => Span::from(duration).to_value(),
            Keep::Forever => "forever".into(),
        }
    }
}
