//! Retention of rows, ids and outbox rows (P-2, P-5). Age is measured from `ingested_at`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{kind::Kind, time::Millis};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A retention period. Ordered by length; `Forever` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// For this long after ingestion.
    For(Duration),
    /// Never purged.
    Forever,
}

impl Keep {
    /// For this many days.
    pub const fn days(days: u64) -> Self {
        Self::For(Duration::from_secs(DAY.as_secs() * days))
    }

    /// Rows ingested at or before the returned time are due. `None`: no row is.
    pub fn cutoff(self, now: Millis) -> Option<Millis> {
        match self {
            Self::For(duration) => Some(now.before(duration)),
            Self::Forever => None,
        }
    }

    /// Whether a row ingested at `since` is due.
    pub fn is_over(self, since: Millis, now: Millis) -> bool {
        self.cutoff(now).is_some_and(|cutoff| since <= cutoff)
    }
}

/// The class of a stored row, for retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetentionClass {
    /// A regular event, hidden or not.
    Regular,
    /// A deletion or vanish request.
    Request,
    /// The effective version of a key.
    Current,
    /// A version of a key that is no longer effective.
    History,
}

impl RetentionClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Regular, Self::Request, Self::Current, Self::History];

    /// The class of a stored row.
    pub fn of(kind: Kind, is_effective: bool) -> Self {
        if kind.is_request() {
            Self::Request
        } else if !kind.is_keyed() {
            Self::Regular
        } else if is_effective {
            Self::Current
        } else {
            Self::History
        }
    }

    /// Whether rows of this class may be purged to make room (P-6, stage 3).
    pub fn gives_way(self) -> bool {
        matches!(self, Self::Regular | Self::History)
    }
}

/// The node's retention; a topic may override it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Regular events.
    pub regular: Keep,
    /// Effective versions.
    pub current: Keep,
    /// Replaced versions.
    pub replaced: Keep,
    /// Requests, and their tombstones, floors and vanish marks.
    pub requests: Keep,
    /// Id records of events that are no longer stored.
    pub dedupe: Keep,
    /// Outbox rows.
    pub outbox: Keep,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            regular: Keep::days(30),
            current: Keep::Forever,
            replaced: Keep::days(7),
            requests: Keep::Forever,
            dedupe: Keep::days(180),
            outbox: Keep::days(30),
        }
    }
}

/// A topic's own retention: a field that is not set follows the node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopicRetention {
    /// Regular events.
    pub regular: Option<Keep>,
    /// Effective versions.
    pub current: Option<Keep>,
    /// Replaced versions.
    pub replaced: Option<Keep>,
}

/// A retention that would let purged or deleted events come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    /// Purged events would be accepted again (P-2).
    #[error("retention.dedupe must not be shorter than the longest finite retention of events")]
    DedupeTooShort,
    /// Deleted events would come back (P-5).
    #[error("retention.requests must not be shorter than the longest retention of events")]
    RequestsTooShort,
}

impl Retention {
    /// The retention of a row in one topic.
    pub fn in_topic(&self, class: RetentionClass, topic: &TopicRetention) -> Keep {
        match class {
            RetentionClass::Regular => topic.regular.unwrap_or(self.regular),
            RetentionClass::Current => topic.current.unwrap_or(self.current),
            RetentionClass::History => topic.replaced.unwrap_or(self.replaced),
            RetentionClass::Request => self.requests,
        }
    }

    /// The retention of a row: the longest of all its topics (P-5).
    pub fn keep<'a>(&self, class: RetentionClass, topics: impl IntoIterator<Item = &'a TopicRetention>) -> Keep {
        let longest = topics.into_iter().map(|topic| self.in_topic(class, topic)).max();
        longest.unwrap_or_else(|| self.in_topic(class, &TopicRetention::default()))
    }

    /// Refuses a retention that would let purged or deleted events come back, including the topics' own retentions.
    pub fn validate<'a>(&self, topics: impl IntoIterator<Item = &'a TopicRetention>) -> Result<(), RetentionError> {
        let of_topics = topics.into_iter().flat_map(|topic| [topic.regular, topic.current, topic.replaced]);
        let of_events = [self.regular, self.current, self.replaced];
        let all: Vec<_> = of_events.into_iter().chain(of_topics.flatten()).collect();
        if all.iter().any(|&keep| keep > self.requests) {
            return Err(RetentionError::RequestsTooShort);
        }
        if all.iter().any(|&keep| keep != Keep::Forever && keep > self.dedupe) {
            return Err(RetentionError::DedupeTooShort);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_as_long_as_any_of_its_topics_keeps_it() {
        // P-5
        let retention = Retention::default();
        let short = TopicRetention { regular: Some(Keep::days(1)), ..TopicRetention::default() };
        let long = TopicRetention { regular: Some(Keep::days(90)), ..TopicRetention::default() };
        let silent = TopicRetention::default();
        for (topics, days) in
            [(vec![&short], 1), (vec![&short, &silent], 30), (vec![&short, &long, &silent], 90), (vec![], 30)]
        {
            assert_eq!(retention.keep(RetentionClass::Regular, topics), Keep::days(days));
        }
        assert_eq!(retention.keep(RetentionClass::Current, [&short]), Keep::Forever);
    }

    #[test]
    fn retention_that_lets_purged_or_deleted_events_return_is_refused() {
        // P-2, P-5
        let fits = Retention::default();
        assert_eq!(fits.validate([]), Ok(()));
        let short_memory = Retention { dedupe: Keep::days(29), ..fits };
        assert_eq!(short_memory.validate([]), Err(RetentionError::DedupeTooShort));
        let long_topic = TopicRetention { regular: Some(Keep::days(181)), ..TopicRetention::default() };
        assert_eq!(fits.validate([&long_topic]), Err(RetentionError::DedupeTooShort));
        let forgetful = Retention { requests: Keep::days(180), ..fits };
        assert_eq!(forgetful.validate([]), Err(RetentionError::RequestsTooShort), "current versions stay forever");
        let bounded = Retention { current: Keep::days(180), requests: Keep::days(180), ..fits };
        assert_eq!(bounded.validate([]), Ok(()));
    }
}
