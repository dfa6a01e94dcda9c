//! Types of configuration keys that only the node has, and those that belong to another crate.

use std::time::Duration;

use axum::http::HeaderName;
use kukuri_bootstrap::ShutdownStatus;
use kukuri_config::{TextSetting, TomlValue, checked_text, choices};
use kukuri_domain::{
    DeletionMode, PublicKey,
    nip19::{npub, parse_public_key},
    retention::Keep,
    topic::{TopicRules, TopicsMode},
};
use kukuri_gossip::{PeerAddress, PeerPolicy};
use tracing_subscriber::EnvFilter;

/// `auth.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    Off,
    Required,
}

choices!(AuthMode: "off or required", (AuthMode::Off) = "off", (AuthMode::Required) = "required");

/// `search.index`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexPlace {
    Embedded,
    Postgres,
    Off,
}

choices!(IndexPlace: "embedded, postgres or off",
    (IndexPlace::Embedded) = "embedded", (IndexPlace::Postgres) = "postgres", (IndexPlace::Off) = "off");

checked_text! {
    /// A topic id, or a prefix of ids, that the operator adds to the reserved ones (T-1).
    pub(crate) TopicPattern: "kukuri:<name> or kukuri:<name>:*, at most 200 bytes",
    |text| TopicRules::new(TopicsMode::Required, &[text]).is_ok()
}

checked_text! {
    /// `log`
    pub(crate) LogFilter: "a level (error, warn, info, debug, trace), also by module: info,kukuri_relay=debug",
    |text| EnvFilter::try_new(text).is_ok()
}

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

/// Wraps a type of another crate, because that crate can't implement [`TextSetting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign<T>(pub(crate) T);

choices!(Foreign<TopicsMode>: "required or global",
    (Foreign(TopicsMode::Required)) = "required", (Foreign(TopicsMode::Global)) = "global");
choices!(Foreign<DeletionMode>: "soft or physical",
    (Foreign(DeletionMode::Soft)) = "soft", (Foreign(DeletionMode::Physical)) = "physical");
choices!(Foreign<PeerPolicy>: "known or open",
    (Foreign(PeerPolicy::Known)) = "known", (Foreign(PeerPolicy::Open)) = "open");

/// Types that `FromStr` reads and `Display` writes.
macro_rules! texts {
    ($($type:ty: $allowed:literal),+) => {$(
        impl TextSetting for Foreign<$type> {
            const ALLOWED: &'static str = $allowed;
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok().map(Self)
            }
            fn to_value(&self) -> TomlValue {
                self.0.to_string().into()
            }
        }
    )+};
}
texts!(
    PeerAddress: "a peer's ticket, or its id and an address, such as <64 hex>@192.0.2.1:7778",
    PublicKey: "a public key of 64 lowercase hex digits",
    HeaderName: "the name of an HTTP header, such as x-forwarded-for"
);

choices!(Foreign<ShutdownStatus>: "active, winding_down or retired",
    (Foreign(ShutdownStatus::Active)) = "active", (Foreign(ShutdownStatus::WindingDown)) = "winding_down",
    (Foreign(ShutdownStatus::Retired)) = "retired");

/// The public key of a node, as people write it (U-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeKey(pub(crate) PublicKey);

impl TextSetting for NodeKey {
    const ALLOWED: &'static str = "a public key, as 64 hex digits or npub1…";

    fn parse(text: &str) -> Option<Self> {
        parse_public_key(text).ok().map(Self)
    }

    fn to_value(&self) -> TomlValue {
        npub(&self.0).into()
    }
}

impl TextSetting for Foreign<Keep> {
    const ALLOWED: &'static str = "forever, or a time such as 12h or 30d, at most 36500d";

    fn parse(text: &str) -> Option<Self> {
        if text == "forever" {
            return Some(Self(Keep::Forever));
        }
        Duration::parse(text).map(|time| Self(Keep::For(time)))
    }

    fn to_value(&self) -> TomlValue {
        match self.0 {
            Keep::For(time) => time.to_value(),
            Keep::Forever => "forever".into(),
        }
    }
}
