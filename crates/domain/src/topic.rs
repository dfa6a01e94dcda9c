//! Topics: a community's name, its id, and the gossip topic it maps to (T-1 to T-7).

use std::{borrow::Cow, collections::HashSet, fmt, sync::Arc};

use unicode_normalization::UnicodeNormalization;

use crate::{event::Event, filter::Filter, hex, id::PublicKey, kind::Kind, refusal::Refusal, tags::Letter};

const PREFIX: &str = "kukuri:";
const USER_PREFIX: &str = "user:";
pub(crate) const GLOBAL: &str = "kukuri:global";

/// The canonical id of a topic (T-1). Cheap to clone: events share it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(Arc<str>);

/// A text that is not a topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// Nothing is left of the name after normalization.
    #[error("a topic's name must not be empty")]
    EmptyName,
    /// The text starts like an id but is malformed: hashing it as a name would hide a typing error.
    #[error(
        "`{0}` is no topic id: kukuri:<64 lowercase hex>, kukuri:global, kukuri:user:<64 lowercase hex> or a reserved id"
    )]
    Malformed(String),
    /// A reserved entry of the configuration is neither an id nor a prefix.
    #[error("reserved topic `{0}` must be `kukuri:<name>` or `kukuri:<name>:*`, at most {max} bytes", max = TopicId::MAX_LEN)]
    Reserved(String),
}

impl TopicId {
    /// Longer ids are malformed: an id has to fit a key of every store.
    pub const MAX_LEN: usize = 200;

    /// The topic of events without any other (T-7, T-9), enabled from the start (T-8).
    pub fn global() -> Self {
        Self(GLOBAL.into())
    }

    /// Whether it is [`TopicId::global`].
    pub fn is_global(&self) -> bool {
        &*self.0 == GLOBAL
    }

    /// The topic that a name maps to in a network: `kukuri:` and the hex of blake3 over network id and normalized name.
    /// An id maps to itself (T-2).
    pub fn from_name(network: &str, name: &str, rules: &TopicRules) -> Result<Self, TopicError> {
        let normalized = fold_name(name);
        // A typing error in an id must not become a topic of its own, whatever its case or white space.
        for text in [name, &normalized] {
            match rules.read(text) {
                TopicValue::Topic(id) => return Ok(id),
                TopicValue::Malformed => return Err(TopicError::Malformed(name.to_owned())),
                TopicValue::Hashtag => {}
            }
        }
        if normalized.is_empty() {
            return Err(TopicError::EmptyName);
        }
        let hash = blake3::hash(format!("{network}{normalized}").as_bytes());
        Ok(Self(format!("{PREFIX}{}", hash.to_hex()).into()))
    }

    /// An id that this node stored before, unchecked.
    pub fn new_unchecked(id: &str) -> Self {
        Self(id.into())
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the iroh-gossip topic (T-3).
    pub fn gossip_id(&self) -> [u8; 32] {
        let decoded = self.0.strip_prefix(PREFIX).and_then(|name| hex::decode(name.as_bytes()).ok());
        decoded.unwrap_or_else(|| *blake3::hash(self.0.as_bytes()).as_bytes())
    }
}

/// A name as it is hashed: NFKC, lower case without a locale, trimmed, runs of white space as one space (T-2).
pub fn fold_name(name: &str) -> String {
    let lower = name.nfkc().collect::<String>().to_lowercase();
    lower.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether every event and filter has to name topics (T-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicsMode {
    /// Events and filters name their topics.
    #[default]
    Required,
    /// Events without a topic belong to [`TopicId::global`]; filters may match everything.
    Global,
}

/// The meaning of a `t` tag's value (T-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicValue {
    /// A topic.
    Topic(TopicId),
    /// A plain hashtag: kept in the event, but not a topic.
    Hashtag,
    /// The value starts with `kukuri:` but is not a topic.
    Malformed,
}

/// Whether a `t` value claims to be a topic; in an admitted event such a value is one (T-1).
pub fn claims_to_be_topic(value: &str) -> bool {
    value.starts_with(PREFIX)
}

/// The configuration by which this node reads topics; constant while the node runs.
#[derive(Clone, Debug, Default)]
pub struct TopicRules {
    /// Whether events must name a topic.
    pub mode: TopicsMode,
    reserved: TopicPatterns,
}

/// Topics, by exact ids and by prefixes with `*` after the last colon.
#[derive(Clone, Debug, Default)]
pub struct TopicPatterns(Vec<String>);

impl TopicPatterns {
    /// Patterns, each an exact id or `prefix:*`.
    pub fn new(patterns: &[impl AsRef<str>]) -> Result<Self, TopicError> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| pattern.as_ref().to_owned()).collect();
        match patterns.iter().find(|pattern| !is_pattern(pattern)) {
            Some(pattern) => Err(TopicError::Reserved(pattern.clone())),
            None => Ok(Self(patterns)),
        }
    }

    /// Whether one of them is of this topic.
    pub fn contains(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => topic.len() > prefix.len() && topic.starts_with(prefix),
            None => topic == pattern,
        })
    }
}

impl TopicRules {
    /// Rules with reserved ids, each an exact id or `prefix:*` (T-1).
    pub fn new(mode: TopicsMode, reserved: &[impl AsRef<str>]) -> Result<Self, TopicError> {
        Ok(Self { mode, reserved: TopicPatterns::new(reserved)? })
    }

    /// Classifies the value of a `t` tag.
    pub fn read(&self, value: &str) -> TopicValue {
        let Some(name) = value.strip_prefix(PREFIX) else { return TopicValue::Hashtag };
        let of_a_user = || name.strip_prefix(USER_PREFIX).is_some_and(|key| PublicKey::from_hex(key).is_ok());
        let is_topic = value == GLOBAL
            || hex::decode::<32>(name.as_bytes()).is_ok()
            || of_a_user()
            || self.reserved.contains(value);
        if is_topic && value.len() <= TopicId::MAX_LEN {
            TopicValue::Topic(TopicId(value.into()))
        } else {
            TopicValue::Malformed
        }
    }

    /// All topics an event names, each once; [`TopicId::global`] if it names none and needs none (T-4, T-5, T-7, T-9).
    pub fn bind(&self, event: &Event) -> Result<Box<[TopicId]>, Refusal> {
        let mut topics = Vec::new();
        let mut seen = HashSet::new();
        for value in event.tags.values("t") {
            match self.read(value) {
                TopicValue::Topic(topic) if seen.insert(value) => topics.push(topic),
                TopicValue::Topic(_) | TopicValue::Hashtag => {}
                TopicValue::Malformed => return Err(Refusal::MalformedTopic),
            }
        }
        if topics.is_empty() {
            if self.mode == TopicsMode::Required && event.kind != Kind::VANISH {
                return Err(Refusal::MissingTopic);
            }
            topics.push(TopicId::global());
        }
        Ok(topics.into())
    }

    /// Refuses a filter without topics, if this node requires them (T-6).
    pub fn check(&self, filter: &Filter) -> Result<(), FilterWithoutTopic> {
        if self.mode == TopicsMode::Global {
            return Ok(());
        }
        let values = filter.tag_values(Letter::T).ok_or(FilterWithoutTopic)?;
        let all_topics = values.iter().all(|value| matches!(self.read(value), TopicValue::Topic(_)));
        if all_topics { Ok(()) } else { Err(FilterWithoutTopic) }
    }
}

/// The topics that an event is bound to, of those that it names: all, but for a request those that are known here
/// (enabled, or with stored events). A request without any is bound to [`TopicId::global`] (T-4, T-9).
///
/// So requests make no topic known, and strangers can't create topics with them. Which topics a request is bound to
/// differs between nodes and with time; [`sharing::tells_of`](crate::sharing::tells_of) does not depend on it.
pub fn bound<E>(
    kind: Kind,
    named: &[TopicId],
    mut is_known: impl FnMut(&TopicId) -> Result<bool, E>,
) -> Result<Cow<'_, [TopicId]>, E> {
    if !kind.is_request() {
        return Ok(Cow::Borrowed(named));
    }
    let mut known = Vec::new();
    for topic in named {
        if is_known(topic)? {
            known.push(topic.clone());
        }
    }
    if known.is_empty() {
        known.push(TopicId::global());
    }
    Ok(Cow::Owned(known))
}

/// Whether a pattern is `kukuri:<name>` or `kukuri:<name>:*`.
fn is_pattern(pattern: &str) -> bool {
    let name = pattern.strip_prefix(PREFIX).map(|name| name.strip_suffix(":*").unwrap_or(name));
    pattern.len() <= TopicId::MAX_LEN && name.is_some_and(|name| !name.is_empty() && !name.contains('*'))
}

/// A filter must name topics on this node (T-6). Its `Display` is the message of `CLOSED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid: #t must name topics")]
pub struct FilterWithoutTopic;

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: &str = "kukuri:main:";

    fn from_name(name: &str) -> Result<TopicId, TopicError> {
        TopicId::from_name(NETWORK, name, &TopicRules::default())
    }

    #[test]
    fn names_that_differ_only_in_form_map_to_one_id() {
        // T-2
        for (left, right, why) in [
            ("Bitcoin", "bitcoin", "case"),
            ("ＢＩＴＣＯＩＮ", "bitcoin", "full-width letters"),
            ("ﾄｳｷｮｳ", "トウキョウ", "half-width katakana"),
            ("  a \t b\u{3000}c ", "a b c", "white space"),
            ("ガ", "カ\u{3099}", "combining marks"),
        ] {
            assert_eq!(from_name(left).unwrap(), from_name(right).unwrap(), "{why}");
        }
        assert_ne!(
            from_name("bitcoin").unwrap(),
            TopicId::from_name("kukuri:dev:", "bitcoin", &TopicRules::default()).unwrap()
        );
    }

    #[test]
    fn topic_id_maps_to_itself_and_a_malformed_id_is_an_error() {
        // T-2
        let id = from_name("bitcoin").unwrap();
        assert_eq!(from_name(id.as_str()).unwrap(), id);
        assert_eq!(from_name("kukuri:global").unwrap(), TopicId::global());
        assert_eq!(from_name(" Kukuri:GLOBAL ").unwrap(), TopicId::global());
        for slip in ["kukuri:nonsense", " kukuri:nonsense", "KUKURI:nonsense", "kukuri：nonsense"] {
            assert!(matches!(from_name(slip), Err(TopicError::Malformed(_))), "{slip}");
        }
        assert_eq!(from_name(" \u{3000}"), Err(TopicError::EmptyName));
    }

    #[test]
    fn the_gossip_topic_is_the_decoded_hex_or_the_hash_of_the_id() {
        // T-3
        let hashed = TopicId::new_unchecked(&format!("kukuri:{}", "0f".repeat(32)));
        assert_eq!(hashed.gossip_id(), [0x0f; 32]);
        assert_eq!(TopicId::global().gossip_id(), *blake3::hash(b"kukuri:global").as_bytes());
    }

    #[test]
    fn a_t_value_is_a_topic_a_hashtag_or_malformed() {
        // T-1
        let rules = TopicRules::new(TopicsMode::Required, &["kukuri:lobby", "kukuri:room:*"]).unwrap();
        let hex = "0a".repeat(32);
        for (value, expected) in [
            (format!("kukuri:{hex}"), "topic"),
            ("kukuri:global".into(), "topic"),
            (format!("kukuri:user:{hex}"), "topic"),
            ("kukuri:lobby".into(), "topic"),
            ("kukuri:room:1".into(), "topic"),
            ("kukuri:room:".into(), "malformed"),
            ("kukuri:lobby2".into(), "malformed"),
            (format!("kukuri:{}", hex.to_uppercase()), "malformed"),
            (format!("kukuri:{}", &hex[1..]), "malformed"),
            (format!("kukuri:room:{}", "x".repeat(TopicId::MAX_LEN)), "malformed"),
            ("kukuri:".into(), "malformed"),
            ("Kukuri:global".into(), "hashtag"),
            ("東京".into(), "hashtag"),
            (String::new(), "hashtag"),
        ] {
            let read = match rules.read(&value) {
                TopicValue::Topic(_) => "topic",
                TopicValue::Hashtag => "hashtag",
                TopicValue::Malformed => "malformed",
            };
            assert_eq!(read, expected, "{value}");
        }
        for entry in ["room:*", "kukuri:*", "kukuri:a*b", "kukuri::*", "kukuri:"] {
            assert!(TopicRules::new(TopicsMode::Required, &[entry]).is_err(), "{entry}");
        }
    }
}
