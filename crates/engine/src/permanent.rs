//! Whether events that are never purged fill their share of the capacity, of the node and of topics (P-6). Read from the
//! store's statistics, and logged when it changes.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use kukuri_domain::{TopicId, capacity::Capacity};
use kukuri_store::{Stats, TopicStats, report::permanent};
use parking_lot::Mutex;

use crate::config::EngineConfig;

/// How far events that are never purged fill the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermanentLevel {
    /// Whether their share is filled: only authors with another event here may add to them.
    pub is_full: bool,
    /// Percent of the capacity, or of the file system, that they fill.
    pub percent: u64,
}

impl PermanentLevel {
    pub(crate) fn of(stats: &Stats, config: &EngineConfig) -> Self {
        let (EngineConfig { capacity, permanent: share, .. }, of_node) = (config, permanent(&stats.by_class));
        Self {
            is_full: share.is_filled_in_node(of_node, *capacity),
            percent: share.percent_of_node(of_node, *capacity),
        }
    }

    /// The word for it in `/healthz`.
    pub fn as_str(self) -> &'static str {
        if self.is_full { "full" } else { "open" }
    }
}

/// The places whose share is filled, as last measured.
#[derive(Default)]
pub(crate) struct PermanentWatch {
    /// `None`: the node.
    filled: Mutex<BTreeSet<Option<TopicId>>>,
    was_refused: AtomicBool,
}

impl PermanentWatch {
    /// Notes that the store refused an event because a share is filled.
    pub(crate) fn note_refusal(&self) {
        self.was_refused.store(true, Relaxed);
    }

    /// Whether a measurement could show a change. Most of the time the statistics need not be read.
    pub(crate) fn is_due(&self) -> bool {
        self.was_refused.swap(false, Relaxed) || !self.filled.lock().is_empty()
    }

    /// Notes which shares are filled: of the node, and of the topics that have a capacity.
    pub(crate) fn measure(&self, stats: &Stats, topics: &[(TopicStats, Capacity)], config: &EngineConfig) {
        let share = &config.permanent;
        let is_filled = |(topic, capacity): &&(TopicStats, Capacity)| {
            share.is_filled_in_topic(permanent(&topic.by_class), *capacity)
        };
        let mut filled: BTreeSet<_> =
            topics.iter().filter(is_filled).map(|(topic, _)| Some(topic.topic.clone())).collect();
        if PermanentLevel::of(stats, config).is_full {
            filled.insert(None);
        }
        let before = std::mem::replace(&mut *self.filled.lock(), filled.clone());
        let scope = |place: &Option<TopicId>| place.as_ref().map_or("node".to_owned(), ToString::to_string);
        for place in filled.difference(&before) {
            tracing::warn!(
                scope = scope(place),
                percent = share.percent,
                "requests and current versions fill capacity.permanent_share: requests and new replaceable or addressable \
                 events are accepted only from authors with another event here; raise [capacity] or deny who floods"
            );
        }
        for place in before.difference(&filled) {
            tracing::info!(
                scope = scope(place),
                "requests and current versions no longer fill capacity.permanent_share: everybody may publish them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use kukuri_domain::capacity::Usage;

    use super::*;

    #[test]
    fn a_filled_share_is_measured_until_it_has_room_again() {
        // P-6
        let watch = PermanentWatch::default();
        let capacity = Capacity { max_events: Some(10), max_bytes: None };
        let config = EngineConfig { capacity, ..EngineConfig::default() };
        let measure = |requests| {
            let by_class = [Usage::default(), Usage { events: requests, bytes: 0 }, Usage::default(), Usage::default()];
            let stats = Stats { by_class, ..Stats::default() };
            watch.measure(&stats, &[], &config);
            PermanentLevel::of(&stats, &config)
        };
        assert!(!watch.is_due());
        watch.note_refusal();
        assert!(watch.is_due() && !watch.is_due(), "after a refusal, once");
        assert_eq!(measure(5), PermanentLevel { is_full: true, percent: 50 });
        assert!(watch.is_due() && watch.is_due(), "while it is filled");
        assert_eq!(measure(4).as_str(), "open");
        assert!(!watch.is_due());
    }
}
