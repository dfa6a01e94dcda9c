//! Why an event is not taken in: one type, whose text is what the sender reads.

use std::fmt;

use crate::limits::Limit;

/// Why an event is refused. Its `Display` is the message of `OK false`, with the machine-readable prefix of NIP-01.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not an event.
    #[error("invalid: {0}")]
    Malformed(#[from] Malformed),
    /// Its id is not the hash of its content (E-1).
    #[error("invalid: event id does not match its content")]
    WrongId,
    /// Its signature is not its author's (E-1).
    #[error("invalid: signature verification failed")]
    WrongSignature,
    /// It is larger than this node takes, or too far ahead of its clock (E-8).
    #[error("invalid: {}", OverLimit { limit: *.limit, allowed: *.allowed })]
    OverLimit {
        /// Which limit.
        limit: Limit,
        /// Its value.
        allowed: u64,
    },
    /// It names no topic (T-5).
    #[error("invalid: missing topic")]
    MissingTopic,
    /// It names something that looks like a topic and is none (T-1).
    #[error("invalid: malformed topic")]
    MalformedTopic,
    /// It came over a gossip topic that it does not name (G-4).
    #[error("invalid: not an event of this topic")]
    WrongTopic,
    /// Addressable, without `d` (E-4).
    #[error("invalid: missing d")]
    MissingIdentifier,
    /// Of a scope other than public, without an epoch (E-7).
    #[error("invalid: missing epoch")]
    MissingEpoch,
    /// A vanish request that names no relay (NIP-62).
    #[error("invalid: missing relay")]
    MissingRelay,
    /// Its end has passed.
    #[error("invalid: expired")]
    Expired,
    /// An authentication is no event to keep (E-10).
    #[error("invalid: authentication events are not stored")]
    Authentication,
    /// Access control events pass between peers only (E-6).
    #[error("restricted: access control events are p2p-only")]
    P2pOnly,
    /// A protected event needs its author on the line (E-10).
    #[error("auth-required: protected event, only its author may publish it")]
    ProtectedUnauthenticated,
    /// A protected event was sent by somebody else (E-10).
    #[error("restricted: protected event, only its author may publish it")]
    Protected,
    /// Private messages do not travel between nodes (E-10).
    #[error("restricted: private messages are not passed between nodes")]
    PrivateBetweenNodes,
    /// One of its topics is not enabled on this node (T-8).
    #[error("restricted: topic not enabled")]
    TopicNotEnabled,
    /// Its author, or its recipient, deleted it (D-6).
    #[error("blocked: deleted by its author")]
    Deleted,
    /// Its author, or its recipient, asked this relay to forget (D-12).
    #[error("blocked: its author asked to vanish")]
    Vanished,
    /// A version that ranks higher is known (E-3).
    #[error("replaced: a newer version is known")]
    Replaced,
    /// It was here and was purged (E-9).
    #[error("blocked: no longer kept here")]
    Purged,
    /// Space is short: only live events are taken, no history (P-6, stage 1).
    #[error("restricted: no history is taken in while space is short")]
    LiveOnly,
    /// Space is short: its topics are shed (P-6, stage 2).
    #[error("restricted: topic is shed")]
    Shed,
    /// What its topic, or the node, must keep leaves no room (P-6, stage 3).
    #[error("restricted: topic is full")]
    Full,
    /// The disk or the store's map has no room left but for requests.
    #[error("error: disk full")]
    DiskFull,
    /// Deciding on it or storing it failed; nothing of it was kept.
    #[error("error: failed to store event")]
    Failed,
}

impl Refusal {
    /// The machine-readable word before the colon.
    pub fn prefix(&self) -> &'static str {
        match self {
            Self::Deleted | Self::Vanished | Self::Purged => "blocked",
            Self::Replaced => "replaced",
            Self::ProtectedUnauthenticated => "auth-required",
            Self::P2pOnly
            | Self::Protected
            | Self::PrivateBetweenNodes
            | Self::TopicNotEnabled
            | Self::LiveOnly
            | Self::Shed
            | Self::Full => "restricted",
            Self::DiskFull | Self::Failed => "error",
            Self::Malformed(_)
            | Self::WrongId
            | Self::WrongSignature
            | Self::OverLimit { .. }
            | Self::MissingTopic
            | Self::MalformedTopic
            | Self::WrongTopic
            | Self::MissingIdentifier
            | Self::MissingEpoch
            | Self::MissingRelay
            | Self::Expired
            | Self::Authentication => "invalid",
        }
    }
}

struct OverLimit {
    limit: Limit,
    allowed: u64,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = self.allowed;
        match self.limit {
            Limit::EventBytes => write!(f, "event is larger than event_bytes = {allowed}"),
            Limit::TagCount => write!(f, "event has more tags than tag_count = {allowed}"),
            Limit::TagsBytes => write!(f, "tags are larger than tags_bytes = {allowed}"),
            Limit::TagBytes => write!(f, "a tag is larger than tag_bytes = {allowed}"),
            Limit::Topics => write!(f, "event names more topics than topics = {allowed}"),
            Limit::ContentBytes => write!(f, "content is larger than content_bytes = {allowed}"),
            Limit::Ahead => write!(f, "created_at is further ahead than ahead = {allowed} seconds"),
        }
    }
}

/// What is wrong with a text that should be an event or a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(Box<str>);

impl Malformed {
    /// Messages quote what was sent; they need not quote all of it.
    const LONGEST: usize = 200;

    pub(crate) fn new(what: impl Into<Box<str>>) -> Self {
        Self(what.into())
    }

    pub(crate) fn from_json(error: &serde_json::Error) -> Self {
        let mut message = error.to_string();
        if message.len() > Self::LONGEST {
            message.truncate(message.floor_char_boundary(Self::LONGEST));
            message.push('…');
        }
        // A message is one line wherever it is shown.
        Self(message.replace(char::is_control, " ").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_the_word_before_the_colon() {
        for refusal in [
            Refusal::Malformed(Malformed::new("x")),
            Refusal::WrongId,
            Refusal::OverLimit { limit: Limit::TagCount, allowed: 3 },
            Refusal::MissingTopic,
            Refusal::Expired,
            Refusal::P2pOnly,
            Refusal::ProtectedUnauthenticated,
            Refusal::Protected,
            Refusal::PrivateBetweenNodes,
            Refusal::TopicNotEnabled,
            Refusal::Deleted,
            Refusal::Vanished,
            Refusal::Replaced,
            Refusal::Purged,
            Refusal::LiveOnly,
            Refusal::Shed,
            Refusal::Full,
            Refusal::DiskFull,
            Refusal::Failed,
        ] {
            let message = refusal.to_string();
            assert_eq!(message.split_once(": ").map(|(prefix, _)| prefix), Some(refusal.prefix()), "{message}");
        }
    }
}
