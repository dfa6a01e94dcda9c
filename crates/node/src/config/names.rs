//! Values with a name: modes, keys, topics.

use kukuri_domain::{
    DeletionMode, PublicKey,
    topic::{TopicRules, TopicsMode},
};
use kukuri_gossip::{PeerAddress, PeerPolicy};
use tracing_subscriber::EnvFilter;

use super::value::{Spelled, choices};

choices!(TopicsMode: "required or global", Required = "required", Global = "global");
choices!(DeletionMode: "soft or physical", Soft = "soft", Physical = "physical");

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    Off,
}

choices!(Switch: "on or off", On = "on", Off = "off");

/// Whether clients must say who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    Off,
    Required,
}

choices!(AuthMode: "off or required", Off = "off", Required = "required");

/// Where the index for search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexPlace {
    Embedded,
    Postgres,
    Off,
}

choices!(IndexPlace: "embedded, postgres or off", Embedded = "embedded", Postgres = "postgres", Off = "off");

choices!(PeerPolicy: "known or open", Known = "known", Open = "open");

impl Spelled for PeerAddress {
    const ALLOWED: &'static str = "a peer's ticket, or its id and an address, such as <64 hex>@192.0.2.1:7778";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn spell(&self) -> toml::Value {
        self.to_string().into()
    }
}

impl Spelled for PublicKey {
    const ALLOWED: &'static str = "a public key of 64 lowercase hex digits";

    fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text).ok()
    }

    fn spell(&self) -> toml::Value {
        self.to_string().into()
    }
}

/// A topic, or all under a prefix, that this node knows beside those of the rules (T-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReservedTopic(String);

impl AsRef<str> for ReservedTopic {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Spelled for ReservedTopic {
    const ALLOWED: &'static str = "kukuri:<name> or kukuri:<name>:*, at most 200 bytes";

    fn parse(text: &str) -> Option<Self> {
        TopicRules::new(TopicsMode::Required, &[text]).is_ok().then(|| Self(text.to_owned()))
    }

    fn spell(&self) -> toml::Value {
        self.as_ref().into()
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilter(String);

impl LogFilter {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn to_filter(&self) -> EnvFilter {
        EnvFilter::new(&self.0)
    }
}

impl Spelled for LogFilter {
    const ALLOWED: &'static str = "a level (error, warn, info, debug, trace), also by module: info,kukuri_relay=debug";

    fn parse(text: &str) -> Option<Self> {
        EnvFilter::try_new(text).is_ok().then(|| Self::new(text))
    }

    fn spell(&self) -> toml::Value {
        self.0.as_str().into()
    }
}
