//! The settings as the rules want them.

use std::collections::BTreeSet;

use kukuri_domain::{
    Kind,
    capacity::{Capacity, Thresholds},
    limits::Limits,
    retention::Retention,
    topic::{TopicError, TopicRules},
};

use super::{kinds::Kinds, settings::Settings, size::Size};

impl Settings {
    /// How large an event may be.
    pub(crate) fn limits(&self) -> Limits {
        let limits = &self.limits;
        Limits {
            event_bytes: limits.event_bytes.as_usize(),
            tag_count: limits.tag_count,
            tags_bytes: limits.tags_bytes.as_usize(),
            tag_bytes: limits.tag_bytes.as_usize(),
            topics: limits.topics_per_event,
            content_bytes: limits.content_bytes.as_usize(),
            ahead: limits.created_at_ahead.duration(),
        }
    }

    /// How long things are kept.
    pub(crate) fn retention(&self) -> Retention {
        let retention = &self.retention;
        Retention {
            regular: retention.regular.into(),
            current: retention.current.into(),
            replaced: retention.replaced.into(),
            requests: retention.requests.into(),
            dedupe: retention.dedupe.into(),
            outbox: retention.outbox.into(),
        }
    }

    /// How much may be stored.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity { max_events: self.capacity.max_events, max_bytes: self.capacity.max_bytes.map(Size::get) }
    }

    /// What happens as that is reached.
    pub(crate) fn thresholds(&self) -> Thresholds {
        let capacity = &self.capacity;
        Thresholds {
            live_only: capacity.live_only.get(),
            shedding: capacity.shedding.get(),
            purging: capacity.purging.get(),
            leave_below: capacity.leave_below.get(),
            purge_to: capacity.purge_to.get(),
        }
    }

    /// The kinds that can be found by words. Private ones never can (E-10).
    pub(crate) fn indexed_kinds(&self) -> BTreeSet<Kind> {
        let kinds = self.search.kinds.iter().flat_map(Kinds::range).map(Kind);
        kinds.filter(|kind| !kind.is_private()).collect()
    }

    /// How topics are read. The reserved ones were checked when they were loaded.
    pub(crate) fn topic_rules(&self) -> Result<TopicRules, TopicError> {
        TopicRules::new(self.topics.mode, &self.topics.reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Spelled;

    #[test]
    fn the_defaults_are_those_of_the_rules() {
        let settings = Settings::default();
        assert_eq!(settings.limits(), Limits::default());
        assert_eq!(settings.retention(), Retention::default());
        assert_eq!(settings.capacity(), Capacity::default());
        assert_eq!(settings.thresholds(), Thresholds::default());
        assert_eq!(settings.topic_rules().unwrap().mode, TopicRules::default().mode);
        assert_eq!(settings.indexed_kinds(), kukuri_search::document::DEFAULT_KINDS.map(Kind).into());
    }

    #[test]
    fn private_messages_are_not_indexed_whatever_is_set() {
        // E-10
        let mut settings = Settings::default();
        settings.search.kinds = vec![Kinds::one(1), Kinds::one(4), Kinds::parse("1058-1060").unwrap()];
        assert_eq!(settings.indexed_kinds(), [1, 1058, 1060].map(Kind).into());
    }
}
