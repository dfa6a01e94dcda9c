//! Capacity stages of topics and of the node (P-6). They follow from running counters, without counting rows.

use crate::{admission::Source, kind::Kind, refusal::Refusal};

/// Stored rows and bytes, of a topic or of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of rows, hidden ones included.
    pub events: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
}

/// Maximum of stored rows and bytes. `None`: unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of rows.
    pub max_events: Option<u64>,
    /// Maximum bytes of JSON.
    pub max_bytes: Option<u64>,
}

/// Thresholds of the stages, in percent of a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Start of [`Stage::LiveOnly`].
    pub live_only: u8,
    /// Start of [`Stage::Shedding`].
    pub shedding: u8,
    /// Start of [`Stage::Purging`].
    pub purging: u8,
    /// Hysteresis: a stage ends this many percentage points below its start.
    pub leave_below: u8,
    /// A purge for capacity stops at this usage.
    pub purge_to: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { live_only: 80, shedding: 90, purging: 100, leave_below: 5, purge_to: 95 }
    }
}

/// The capacity stage of a topic or of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// All events are accepted.
    #[default]
    Open,
    /// Stage 1: live events are accepted, history is refused.
    LiveOnly,
    /// Stage 2: topics of the lowest priority refuse events.
    Shedding,
    /// Stage 3: the oldest rows are purged.
    Purging,
}

impl Stage {
    /// The name in logs and in `/healthz`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::LiveOnly => "live_only",
            Self::Shedding => "shedding",
            Self::Purging => "purging",
        }
    }

    /// The next stage for this usage. A stage starts at its threshold and ends `leave_below` points lower.
    #[must_use]
    pub fn next(self, usage: Usage, capacity: Capacity, thresholds: &Thresholds) -> Self {
        let begins = [
            (Self::Purging, thresholds.purging),
            (Self::Shedding, thresholds.shedding),
            (Self::LiveOnly, thresholds.live_only),
        ];
        let holds = |&(stage, percent): &(Self, u8)| {
            if stage <= self {
                capacity.is_exceeded(usage, percent.saturating_sub(thresholds.leave_below))
            } else {
                capacity.is_reached(usage, percent)
            }
        };
        begins.iter().find(|entry| holds(entry)).map_or(Self::Open, |(stage, _)| *stage)
    }
}

impl Capacity {
    /// Whether `usage` has reached `percent` of this capacity, in rows or in bytes.
    pub fn is_reached(&self, usage: Usage, percent: u8) -> bool {
        self.compare(usage, percent, |used, limit| used >= limit)
    }

    /// Whether `usage` is more than `percent` of this capacity.
    pub fn is_exceeded(&self, usage: Usage, percent: u8) -> bool {
        self.compare(usage, percent, |used, limit| used > limit)
    }

    fn compare(&self, usage: Usage, percent: u8, is_over: fn(u128, u128) -> bool) -> bool {
        let limits = [(usage.events, self.max_events), (usage.bytes, self.max_bytes)];
        let mut limits = limits.into_iter().filter_map(|(used, max)| Some((used, max?)));
        limits.any(|(used, max)| is_over(u128::from(used) * 100, u128::from(max) * u128::from(percent)))
    }
}

/// The load of a topic or of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The capacity stage.
    pub stage: Stage,
    /// Whether rows that are never purged fill the capacity alone.
    pub is_full: bool,
    /// Whether this is a topic of the priority that is shed first: see [`shed_priority`].
    pub is_shed_first: bool,
}

/// The priority that is shed first: the lowest. `None`: all priorities are equal.
pub fn shed_priority(priorities: impl IntoIterator<Item = u8>) -> Option<u8> {
    let mut priorities = priorities.into_iter();
    let first = priorities.next()?;
    let (lowest, highest) = priorities.fold((first, first), |(low, high), next| (low.min(next), high.max(next)));
    (lowest < highest).then_some(lowest)
}

/// The refusal of an event for lack of capacity. Requests are never refused.
pub fn refuse(kind: Kind, source: Source, node: Load, topics: &[Load]) -> Option<Refusal> {
    if kind.is_request() {
        return None;
    }
    if node.is_full || topics.iter().any(|topic| topic.is_full) {
        return Some(Refusal::Full);
    }
    if node.stage >= Stage::Shedding && topics.iter().all(|topic| topic.is_shed_first) {
        return Some(Refusal::Shed);
    }
    let is_history = matches!(source, Source::Sync | Source::Import);
    let is_short = node.stage >= Stage::LiveOnly || topics.iter().any(|topic| topic.stage >= Stage::LiveOnly);
    (is_history && is_short).then_some(Refusal::LiveOnly)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_begins_at_its_threshold_and_is_left_five_points_lower() {
        // P-6
        let capacity = Capacity { max_events: Some(1_000), max_bytes: None };
        let thresholds = Thresholds::default();
        let mut stage = Stage::Open;
        for (events, expected) in [
            (799, Stage::Open),
            (800, Stage::LiveOnly),
            (751, Stage::LiveOnly),
            (750, Stage::Open),
            (1_000, Stage::Purging),
            (951, Stage::Purging),
            (950, Stage::Shedding),
            (851, Stage::Shedding),
            (850, Stage::LiveOnly),
            (1_200, Stage::Purging),
            (0, Stage::Open),
        ] {
            stage = stage.next(Usage { events, bytes: 0 }, capacity, &thresholds);
            assert_eq!(stage, expected, "at {events}");
        }
    }

    #[test]
    fn events_are_refused_by_stage_but_requests_never() {
        // P-6
        let at = |stage| Load { stage, ..Load::default() };
        let full = Load { stage: Stage::Purging, is_full: true, ..Load::default() };
        let low = Load { is_shed_first: true, ..Load::default() };
        let high = Load::default();
        let note = Kind(1);
        for (kind, source, node, topics, expected, why) in [
            (note, Source::Sync, at(Stage::Open), vec![high], None, "room for all"),
            (note, Source::Sync, at(Stage::LiveOnly), vec![high], Some(Refusal::LiveOnly), "history waits"),
            (note, Source::Import, at(Stage::LiveOnly), vec![high], Some(Refusal::LiveOnly), "imports too"),
            (note, Source::Client, at(Stage::LiveOnly), vec![low], None, "live goes on"),
            (note, Source::Gossip, at(Stage::Shedding), vec![low], Some(Refusal::Shed), "low topics are shed"),
            (note, Source::Client, at(Stage::Shedding), vec![low, high], None, "a topic still takes it"),
            (note, Source::Client, full, vec![high], Some(Refusal::Full), "nothing can give way"),
            (Kind::DELETION, Source::Sync, full, vec![low], None, "requests always pass"),
            (Kind::VANISH, Source::Client, full, vec![low], None, "requests always pass"),
        ] {
            assert_eq!(refuse(kind, source, node, &topics), expected, "{why}");
        }
        let tight = at(Stage::LiveOnly);
        assert_eq!(refuse(note, Source::Sync, at(Stage::Open), &[tight]), Some(Refusal::LiveOnly));
    }

    #[test]
    fn the_lowest_priority_is_shed_unless_all_are_equal() {
        assert_eq!(shed_priority([2, 0, 1, 0]), Some(0));
        assert_eq!(shed_priority([1, 1]), None);
        assert_eq!(shed_priority([]), None);
    }
}
