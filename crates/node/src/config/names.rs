//! Types of configuration keys that only the node has: modes, reserved topics, the log filter.

use kukuri_config::{TextSetting, TomlValue, choices};
use kukuri_domain::topic::{TopicRules, TopicsMode};
use tracing_subscriber::EnvFilter;

/// `auth.mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    Off,
    Required,
}

choices!(AuthMode: "off or required", Off = "off", Required = "required");

/// `search.index`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexPlace {
    Embedded,
    Postgres,
    Off,
}

choices!(IndexPlace: "embedded, postgres or off", Embedded = "embedded", Postgres = "postgres", Off = "off");

/// A topic id, or a prefix of ids, that the operator adds to the reserved ones (T-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReservedTopic(String);

impl AsRef<str> for ReservedTopic {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl TextSetting for ReservedTopic {
    const ALLOWED: &'static str = "kukuri:<name> or kukuri:<name>:*, at most 200 bytes";

    fn parse(text: &str) -> Option<Self> {
        TopicRules::new(TopicsMode::Required, &[text]).is_ok().then(|| Self(text.to_owned()))
    }

    fn to_value(&self) -> TomlValue {
        self.as_ref().into()
    }
}

/// `log`
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

impl TextSetting for LogFilter {
    const ALLOWED: &'static str = "a level (error, warn, info, debug, trace), also by module: info,kukuri_relay=debug";

    fn parse(text: &str) -> Option<Self> {
        EnvFilter::try_new(text).is_ok().then(|| Self::new(text))
    }

    fn to_value(&self) -> TomlValue {
        self.0.as_str().into()
    }
}
