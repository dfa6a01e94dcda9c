//! Why the engine refuses to publish, to read, or to accept a connection: each reason with the prefix and text its sender
//! reads.

use kukuri_domain::{Refusal, Timestamp, TopicId, topic::FilterWithoutTopic};
use kukuri_search::{FindError, QueryError};
use kukuri_store::StoreError;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{live::VALUES_PER_FILTER, metric_label};

/// A client has to authenticate first (W-7).
pub const AUTH_REQUIRED: &str = "auth-required: this relay serves authenticated clients only";

/// A client exceeds a rate.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate-limited: too many {what}; try again in {seconds} s")]
pub struct TooFast {
    pub(crate) what: &'static str,
    /// When the client may try again.
    pub seconds: u64,
}

/// Why a person is not served: one who is banned, or one who lacks something where clients have to authenticate (S-5). Its `Display` is
/// the text that a client reads, with NIP-01's prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PersonRefused {
    /// The operator has banned the key.
    #[error("blocked: this node does not serve this key: {reason}")]
    Banned {
        /// The operator's public reason.
        reason: String,
    },
    /// The key has no account.
    #[error("restricted: account required {url}")]
    NoAccount {
        /// Where to sign in.
        url: String,
    },
    /// The operator has disabled the account, or it is being deleted.
    #[error("restricted: this account is not active")]
    AccountInactive,
    /// Policies in effect are not accepted.
    #[error("restricted: consent required {url}")]
    ConsentRequired {
        /// Where they are.
        url: String,
    },
    /// A topic is not subscribed to.
    #[error("restricted: subscription required: {topic}")]
    SubscriptionRequired {
        /// The topic.
        topic: TopicId,
    },
    /// A filter names no topic, and so would read topics that are not subscribed to.
    #[error("restricted: subscription required: a filter has to name topics in #t")]
    FilterWithoutTopic,
    /// The plan's limit of a day is reached.
    #[error("restricted: quota exceeded until {}", utc(*until))]
    QuotaExceeded {
        /// When counting starts again at 0.
        until: Timestamp,
    },
}

/// A time for people and programs, in UTC (RFC 3339).
fn utc(time: Timestamp) -> String {
    let moment = i64::try_from(time.0).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| time.to_string())
}

impl PersonRefused {
    fn prefix(&self) -> &'static str {
        if matches!(self, Self::Banned { .. }) { "blocked" } else { "restricted" }
    }

    /// The reason in metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Banned { .. } => "denied",
            Self::NoAccount { .. } | Self::AccountInactive => "account",
            Self::ConsentRequired { .. } => "consent",
            Self::SubscriptionRequired { .. } | Self::FilterWithoutTopic => "subscription",
            Self::QuotaExceeded { .. } => "quota",
        }
    }
}

/// Why an event was refused before the writer saw it. Its `Display` is the message of `OK false`, with NIP-01's prefix.
#[derive(Debug, thiserror::Error)]
pub enum PublishRefused {
    /// A rule of the domain refuses it.
    #[error(transparent)]
    Rule(#[from] Refusal),
    /// Its sender exceeds a rate.
    #[error(transparent)]
    TooFast(#[from] TooFast),
    /// Its sender has to authenticate first (W-7).
    #[error("{AUTH_REQUIRED}")]
    Unauthenticated,
    /// The operator denies its author or its kind.
    #[error("blocked: this author or this kind is on the deny list")]
    Denied,
    /// The operator denies the key that its sender authenticates as.
    #[error("blocked: this public key is on the deny list")]
    DeniedKey,
    /// Outbox consumers are far behind: each client may publish less (O-9).
    #[error("rate-limited: node is behind")]
    RateCut,
    /// Outbox consumers are behind: no history is taken in (O-9).
    #[error("restricted: no history is taken in while the node is behind")]
    Behind,
    /// As many topics are open as `topics.max` allows (T-8).
    #[error("restricted: this node takes in no more topics than topics.max = {0}")]
    TooManyTopics(usize),
    /// Its sender is not served.
    #[error(transparent)]
    Person(#[from] PersonRefused),
}

impl PublishRefused {
    /// The machine-readable word before the colon.
    pub fn prefix(&self) -> &'static str {
        match self {
            Self::Rule(refusal) => refusal.prefix(),
            Self::TooFast(_) | Self::RateCut => "rate-limited",
            Self::Unauthenticated => "auth-required",
            Self::Denied | Self::DeniedKey => "blocked",
            Self::TooManyTopics(_) | Self::Behind => "restricted",
            Self::Person(refused) => refused.prefix(),
        }
    }

    /// The reason in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Rule(refusal) => refusal.label(),
            Self::Denied | Self::DeniedKey => "denied",
            Self::Person(refused) => refused.label(),
            Self::TooFast(_) | Self::RateCut | Self::Unauthenticated | Self::TooManyTopics(_) | Self::Behind => {
                "capacity"
            }
        }
    }

    /// Whether this node, as it is configured, will refuse an event with this id whenever it comes: see
    /// [`Refusal::is_permanent`].
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Rule(refusal) => refusal.is_permanent(),
            Self::Denied | Self::DeniedKey => true,
            Self::TooFast(_)
            | Self::RateCut
            | Self::Unauthenticated
            | Self::TooManyTopics(_)
            | Self::Behind
            | Self::Person(_) => false,
        }
    }
}

/// Why a connected client is no longer served. Its `Display` is the text of a NOTICE and of the close.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientRefused {
    /// The operator denies its address.
    #[error("blocked: this address is on the deny list")]
    DeniedAddress,
    /// The operator denies a key that it has authenticated as.
    #[error("blocked: this public key is on the deny list")]
    DeniedKey,
    /// A key that it has authenticated as is not served.
    #[error(transparent)]
    Person(#[from] PersonRefused),
}

/// Why a request to read is refused. Its `Display` is the reason of `CLOSED`, with NIP-01's prefix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefused {
    /// Its sender has to authenticate first (W-7).
    #[error("{AUTH_REQUIRED}")]
    Unauthenticated,
    /// Its sender is not served.
    #[error(transparent)]
    Person(#[from] PersonRefused),
    /// Its sender exceeds a rate.
    #[error(transparent)]
    TooFast(#[from] TooFast),
    /// It has too many filters (W-4).
    #[error("invalid: more filters than limits.filters = {0}")]
    TooManyFilters(usize),
    /// A filter has too many values (W-4).
    #[error("invalid: a filter has more values than limits.filter_values = {0}")]
    TooManyValues(usize),
    /// Its address has as many live filters as it may have (Y-3).
    #[error(
        "error: more live filters from this address than limits.live_filters_per_address = {0}; a filter counts once per \
         {VALUES_PER_FILTER} values"
    )]
    TooManyLiveFilters(usize),
    /// All clients together have as many live filters as they may have (Y-3).
    #[error("error: this relay has no room for more live filters; try again later")]
    NoRoomForLiveFilters,
    /// A filter has to name topics (T-6).
    #[error(transparent)]
    TopicMissing(#[from] FilterWithoutTopic),
    /// More of its filters search than may (Y-2).
    #[error("invalid: more filters with a search than limits.search_filters = {0}")]
    TooManySearches(usize),
    /// Its answer would take more rows, or more time, than a query may (Y-2).
    #[error("error: too costly; narrow the filter")]
    TooCostly,
    /// It waited for its turn for as long as a query may take (Y-1).
    #[error("error: too many costly queries at the same time; try again later")]
    Busy,
    /// The node has no search index.
    #[error("unsupported: there is no search here")]
    NoSearch,
    /// The words of a search can't be searched for.
    #[error("invalid: {0}")]
    BadSearch(#[from] QueryError),
    /// Only a REQ can search.
    #[error("unsupported: only a REQ can search")]
    SearchOutsideReq,
}

impl ReadRefused {
    /// The refusal of a read that exceeds its budget. `None`: the store failed.
    pub fn of_store(error: &StoreError) -> Option<Self> {
        match error {
            StoreError::TooCostly => Some(Self::TooCostly),
            StoreError::Busy => Some(Self::Busy),
            _ => None,
        }
    }

    /// The same for a read that may search.
    pub fn of_find(error: &FindError) -> Option<Self> {
        match error {
            FindError::Store(error) => Self::of_store(error),
            FindError::Index(_) => None,
        }
    }
}

metric_label! {
    /// Why a connection is refused.
    pub enum ConnectRefused: "reason" {
        /// Its address is denied.
        Denied = "denied",
        /// The node has all the connections it can serve.
        Full = "full",
        /// Its address has as many connections as it may have.
        TooMany = "too_many",
        /// Its address connects too often.
        TooFast = "too_fast",
        /// It sent no HTTP request in time.
        NoHandshake = "no_handshake",
        /// It came through the proxy, which named no client address.
        NoAddress = "no_address",
    }
}

impl ConnectRefused {
    /// The text for the client.
    pub fn text(self) -> &'static str {
        match self {
            Self::Denied => "this address is denied",
            Self::Full => "this node has no room for more connections",
            Self::TooMany => "too many connections from this address",
            Self::TooFast => "too many new connections from this address; try again in a minute",
            Self::NoHandshake => "no request in time",
            Self::NoAddress => "the proxy does not say where this comes from",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_every_refusal_starts_with_its_prefix() {
        let too_fast = || TooFast { what: "events", seconds: 3 };
        let refusals = [
            PublishRefused::Rule(Refusal::MissingTopic),
            PublishRefused::TooFast(too_fast()),
            PublishRefused::Unauthenticated,
            PublishRefused::Denied,
            PublishRefused::DeniedKey,
            PublishRefused::RateCut,
            PublishRefused::Behind,
            PublishRefused::TooManyTopics(5),
            PublishRefused::Person(PersonRefused::Banned { reason: "spam".to_owned() }),
            PublishRefused::Person(PersonRefused::AccountInactive),
            PublishRefused::Person(PersonRefused::NoAccount { url: "https://node.example".to_owned() }),
            PublishRefused::Person(PersonRefused::ConsentRequired { url: "https://node.example".to_owned() }),
            PublishRefused::Person(PersonRefused::SubscriptionRequired { topic: TopicId::global() }),
        ];
        for refused in refusals {
            let text = refused.to_string();
            assert_eq!(text.split_once(": ").map(|(prefix, _)| prefix), Some(refused.prefix()), "{text}");
        }
    }
}
