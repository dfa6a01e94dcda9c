//! Reasons to refuse an event: one table with the prefix, the text, the metric label and the permanence of every
//! refusal.

use std::{fmt, time::Duration};

use crate::limits::OverLimit;

/// Values of [`Refusal::is_permanent`].
const PERMANENT: bool = true;
const TEMPORARY: bool = false;

/// Declares [`Refusal`] from rows of `Variant(value: Type = example) => prefix, label, permanence, text`.
macro_rules! refusals {
    ($(
        $(#[$about:meta])*
        $variant:ident $(($value:ident: $type:ty = $example:expr))?
            => $prefix:literal, $label:literal, $permanence:ident, $text:expr;
    )+) => {
        /// The reason why an event is refused. `Display` is the message of `OK false`: the machine-readable prefix of
        /// NIP-01, then the text.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Refusal {
            $($(#[$about])* $variant $(($type))?,)+
        }

        impl Refusal {
            /// The machine-readable prefix before the colon.
            pub fn prefix(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $prefix,)+
                }
            }

            /// The reason in metrics: one of [`Refusal::LABELS`].
            pub fn label(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $label,)+
                }
            }

            /// Whether this node, as it is configured, will refuse every event with this id, so that catch-up need not
            /// request it again until the configuration changes. `false` for temporary reasons, and for faults that
            /// another event with the same claimed id may not have.
            pub fn is_permanent(&self) -> bool {
                match self {
                    $(Self::$variant { .. } => $permanence,)+
                }
            }

            /// One value of each variant.
            #[cfg(test)]
            fn examples() -> Vec<Self> {
                vec![$(Self::$variant $(($example))?),+]
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant $(($value))? => write!(f, "{}: {}", $prefix, $text),)+
                }
            }
        }
    };
}

refusals! {
    /// The text is not an event. Another text with the same claimed id may be one.
    Malformed(malformed: Malformed = Malformed::new("x"))
        => "invalid", "malformed", TEMPORARY, malformed;
    /// The id is not the hash of the content (E-1). The event that really has this id may still arrive.
    WrongId
        => "invalid", "signature", TEMPORARY, "event id does not match its content";
    /// The signature is not the author's (E-1). A copy with the right signature may still arrive.
    WrongSignature
        => "invalid", "signature", TEMPORARY, "signature verification failed";
    /// The event is larger than a limit (E-8).
    OverLimit(over: OverLimit = OverLimit { limit: crate::limits::Limit::TagCount, allowed: 3 })
        => "invalid", "oversize", PERMANENT, over;
    /// The event is further ahead of this node's clock than allowed (E-8).
    Future(allowed: Duration = Duration::from_secs(3))
        => "invalid", "future", TEMPORARY,
        format_args!("created_at is further ahead than limits.created_at_ahead = {} seconds", allowed.as_secs());
    /// The event names no topic (T-5).
    MissingTopic
        => "invalid", "wrong_topic", PERMANENT, "missing topic";
    /// The event names a malformed topic (T-1).
    MalformedTopic
        => "invalid", "wrong_topic", PERMANENT, "malformed topic";
    /// The event arrived over a gossip topic that it does not name (G-4). Another peer may send it over the right one.
    WrongTopic
        => "invalid", "wrong_topic", TEMPORARY, "not an event of this topic";
    /// The event is addressable and has no `d` tag (E-4).
    MissingIdentifier
        => "invalid", "malformed", PERMANENT, "missing d";
    /// The event's scope is not public, and it has no epoch (E-7).
    MissingEpoch
        => "invalid", "malformed", PERMANENT, "missing epoch";
    /// A vanish request that names no relay (NIP-62).
    MissingRelay
        => "invalid", "malformed", PERMANENT, "missing relay";
    /// The expiration has passed.
    Expired
        => "invalid", "expired", PERMANENT, "expired";
    /// Authentication events are not stored (E-10).
    Authentication
        => "invalid", "p2p_only", PERMANENT, "authentication events are not stored";
    /// Access control events pass between peers only (E-6).
    P2pOnly
        => "restricted", "p2p_only", PERMANENT, "access control events are p2p-only";
    /// A protected event from a client that has not authenticated (E-10). Its author may authenticate and send it.
    ProtectedUnauthenticated
        => "auth-required", "protected", TEMPORARY, "protected event, only its author may publish it";
    /// A protected event from a sender other than its author (E-10).
    Protected
        => "restricted", "protected", PERMANENT, "protected event, only its author may publish it";
    /// Private messages do not pass between nodes (E-10).
    PrivateBetweenNodes
        => "restricted", "private", PERMANENT, "private messages are not passed between nodes";
    /// One of its topics is not enabled on this node (T-8).
    TopicNotEnabled
        => "restricted", "not_enabled", TEMPORARY, "topic not enabled";
    /// Deleted by its author or its recipient (D-6).
    Deleted
        => "blocked", "superseded", PERMANENT, "deleted by its author";
    /// Its author or its recipient vanished from this relay (D-12).
    Vanished
        => "blocked", "superseded", PERMANENT, "its author asked to vanish";
    /// A version that ranks higher is known (E-3).
    Replaced
        => "replaced", "superseded", PERMANENT, "a newer version is known";
    /// The event was stored and then purged (E-9).
    Purged
        => "blocked", "superseded", PERMANENT, "no longer kept here";
    /// Space is short: only live events are accepted, no history (P-6, stage 1).
    LiveOnly
        => "restricted", "capacity", TEMPORARY, "no history is taken in while space is short";
    /// Space is short: the topics of the event are shed (P-6, stage 2).
    Shed
        => "restricted", "capacity", TEMPORARY, "topic is shed";
    /// Events that must be kept fill the topic or the node, and this is one of them (P-6).
    Full
        => "restricted", "capacity", TEMPORARY, "topic is full";
    /// Events that must be kept fill their share: their number may grow only by authors with another event here (P-6).
    PermanentFull
        => "restricted", "capacity", TEMPORARY,
        "space for events that are kept for ever is used up; only authors with another event here may add to it";
    /// The disk or the store's map has space left only for requests (kinds 5 and 62) of authors with another event here.
    DiskFull
        => "error", "capacity", TEMPORARY, "disk full";
    /// The decision or the write failed; nothing of the event was stored.
    Failed
        => "error", "failed", TEMPORARY, "failed to store event";
}

impl Refusal {
    /// Every value of [`Refusal::label`].
    pub const LABELS: [&'static str; 13] = [
        "malformed",
        "signature",
        "future",
        "oversize",
        "wrong_topic",
        "expired",
        "p2p_only",
        "protected",
        "private",
        "not_enabled",
        "superseded",
        "capacity",
        "failed",
    ];
}

impl std::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Describes why a text is not an event or a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(Box<str>);

impl Malformed {
    /// Maximum bytes of a message, because messages quote the received text.
    const MAX_LEN: usize = 200;

    pub(crate) fn new(what: impl Into<Box<str>>) -> Self {
        Self(what.into())
    }

    pub(crate) fn from_json(error: &serde_json::Error) -> Self {
        let mut message = error.to_string();
        if message.len() > Self::MAX_LEN {
            message.truncate(message.floor_char_boundary(Self::MAX_LEN));
            message.push('…');
        }
        // A message is one line, also in logs.
        Self(message.replace(char::is_control, " ").into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::limits::Limit;

    fn all() -> impl Iterator<Item = Refusal> {
        let over = |limit| Refusal::OverLimit(OverLimit { limit, allowed: 3 });
        let limits = [
            Limit::EventBytes,
            Limit::TagCount,
            Limit::TagsBytes,
            Limit::TagBytes,
            Limit::TopicsPerEvent,
            Limit::ContentBytes,
        ];
        Refusal::examples().into_iter().chain(limits.into_iter().map(over))
    }

    #[test]
    fn every_message_is_one_line_after_a_prefix_of_nip01() {
        for refusal in all() {
            let message = refusal.to_string();
            let (prefix, text) = message.split_once(": ").unwrap();
            assert_eq!(prefix, refusal.prefix(), "{message}");
            let prefixes = ["invalid", "restricted", "auth-required", "blocked", "replaced", "error"];
            assert!(prefixes.contains(&prefix) && !text.is_empty() && !text.contains('\n'), "{message}");
        }
    }

    #[test]
    fn every_label_is_listed_and_used() {
        let used: BTreeSet<&str> = all().map(|refusal| refusal.label()).collect();
        assert_eq!(used, BTreeSet::from(Refusal::LABELS));
    }

    #[test]
    fn refusals_that_may_change_later_are_not_permanent() {
        let temporary: Vec<Refusal> = all().filter(|refusal| !refusal.is_permanent()).collect();
        let expected = [
            Refusal::Malformed(Malformed::new("x")),
            Refusal::WrongId,
            Refusal::WrongSignature,
            Refusal::Future(Duration::from_secs(3)),
            Refusal::WrongTopic,
            Refusal::ProtectedUnauthenticated,
            Refusal::TopicNotEnabled,
            Refusal::LiveOnly,
            Refusal::Shed,
            Refusal::Full,
            Refusal::PermanentFull,
            Refusal::DiskFull,
            Refusal::Failed,
        ];
        assert_eq!(temporary, expected);
    }
}
