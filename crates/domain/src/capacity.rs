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

/// What a byte of a request's JSON takes on disk, about: each of its targets leaves a tombstone and an index row, together
/// some five times as long as the tag that names it.
const REQUEST_BYTES_FACTOR: u64 = 6;
/// What the index rows, the id and the key of a stored event take on disk, about.
const INDEX_BYTES: u64 = 1_024;

/// Rows that are never purged to make room, with what they leave: requests with their tombstones and vanish marks, and
/// current versions with their floors (P-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permanent {
    /// Requests.
    pub requests: Usage,
    /// Current versions.
    pub current: Usage,
}

impl Permanent {
    /// Stored rows, and bytes of their JSON.
    pub fn stored(self) -> Usage {
        Usage { events: self.requests.events + self.current.events, bytes: self.requests.bytes + self.current.bytes }
    }

    /// These rows and more.
    #[must_use]
    pub fn with(self, more: Self) -> Self {
        let sum = |one: Usage, other: Usage| Usage {
            events: one.events.saturating_add(other.events),
            bytes: one.bytes.saturating_add(other.bytes),
        };
        Self { requests: sum(self.requests, more.requests), current: sum(self.current, more.current) }
    }

    /// The same rows as [`PermanentShare`] counts them: tombstones are counted as bytes of the request that left them.
    pub fn counted(self) -> Usage {
        let requests = self.requests.bytes.saturating_mul(REQUEST_BYTES_FACTOR);
        Usage { bytes: requests.saturating_add(self.current.bytes), ..self.stored() }
    }

    /// The bytes these rows take on disk, about.
    pub fn disk_bytes(self) -> u64 {
        let Usage { events, bytes } = self.counted();
        bytes.saturating_add(events.saturating_mul(INDEX_BYTES))
    }
}

/// How much of a capacity rows that are never purged may fill (P-6). Above it only authors with another event here may add
/// to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermanentShare {
    /// Percent of the capacity of the node and of each topic.
    pub percent: u8,
    /// Bytes of the store's file system: the share is of them where the node's capacity has no maximum of bytes. `None`:
    /// not known.
    pub file_system: Option<u64>,
}

impl Default for PermanentShare {
    fn default() -> Self {
        Self { percent: 50, file_system: None }
    }
}

impl PermanentShare {
    /// Whether these rows fill their share of a topic's capacity.
    pub fn is_filled_in_topic(&self, permanent: Permanent, capacity: Capacity) -> bool {
        capacity.is_reached(permanent.counted(), self.percent)
    }

    /// Whether these rows fill their share of the node's capacity, or of the file system.
    pub fn is_filled_in_node(&self, permanent: Permanent, capacity: Capacity) -> bool {
        let on_disk = Usage { events: 0, bytes: permanent.disk_bytes() };
        self.is_filled_in_topic(permanent, capacity) || self.disk(capacity).is_reached(on_disk, self.percent)
    }

    /// The percentage of the node's capacity, or of the file system, that these rows fill.
    pub fn percent_of_node(&self, permanent: Permanent, capacity: Capacity) -> u64 {
        let counted = permanent.counted();
        let parts = [
            (counted.events, capacity.max_events),
            (counted.bytes, capacity.max_bytes),
            (permanent.disk_bytes(), self.disk(capacity).max_bytes),
        ];
        let percent = |(used, max): (u64, Option<u64>)| {
            Some(u64::try_from(u128::from(used) * 100 / u128::from(max?.max(1))).unwrap_or(u64::MAX))
        };
        parts.into_iter().filter_map(percent).max().unwrap_or_default()
    }

    /// The file system as a capacity, where the node's has no maximum of bytes.
    fn disk(&self, capacity: Capacity) -> Capacity {
        Capacity { max_events: None, max_bytes: self.file_system.filter(|_| capacity.max_bytes.is_none()) }
    }

    /// The usage that counts for the stages: rows of a permanent class count up to their share only, so that nothing else
    /// is purged because they grew beyond it.
    pub fn counted_for_stages(&self, total: Usage, permanent: Permanent, capacity: Capacity) -> Usage {
        let stored = permanent.stored();
        let beyond = |used: u64, max: Option<u64>| {
            let share = max.map(|max| u128::from(max) * u128::from(self.percent) / 100);
            share.map_or(0, |share| used.saturating_sub(u64::try_from(share).unwrap_or(u64::MAX)))
        };
        Usage {
            events: total.events.saturating_sub(beyond(stored.events, capacity.max_events)),
            bytes: total.bytes.saturating_sub(beyond(stored.bytes, capacity.max_bytes)),
        }
    }
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
    /// Whether rows that are never purged fill their share: see [`PermanentShare`].
    pub is_share_filled: bool,
    /// Whether the disk has space left for requests only.
    pub is_disk_full: bool,
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

/// The refusal of an event for lack of capacity. Requests are refused only by [`refuse_newcomer`].
pub fn refuse(kind: Kind, source: Source, node: Load, topics: &[Load]) -> Option<Refusal> {
    if kind.is_request() {
        return None;
    }
    if node.is_disk_full {
        return Some(Refusal::DiskFull);
    }
    // A regular event gives way later, within the part of the capacity that is not for permanent rows.
    if kind.is_keyed() && (node.is_full || topics.iter().any(|topic| topic.is_full)) {
        return Some(Refusal::Full);
    }
    if node.stage >= Stage::Shedding && topics.iter().all(|topic| topic.is_shed_first) {
        return Some(Refusal::Shed);
    }
    let is_history = matches!(source, Source::Sync | Source::Import);
    let is_short = node.stage >= Stage::LiveOnly || topics.iter().any(|topic| topic.stage >= Stage::LiveOnly);
    (is_history && is_short).then_some(Refusal::LiveOnly)
}

/// The refusal of a request, or of the first version of a key, whose author has no other event here (P-6). Nothing else gives
/// way for such events. The node's own are never refused.
pub fn refuse_newcomer(kind: Kind, source: Source, node: Load, topics: &[Load]) -> Option<Refusal> {
    if source == Source::Node || !(kind.is_request() || kind.is_keyed()) {
        None
    } else if node.is_disk_full {
        Some(Refusal::DiskFull)
    } else {
        let is_filled = node.is_share_filled || topics.iter().any(|topic| topic.is_share_filled);
        is_filled.then_some(Refusal::PermanentFull)
    }
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
    fn events_are_refused_by_stage_but_requests_are_not() {
        // P-6
        let at = |stage| Load { stage, ..Load::default() };
        let full = Load { stage: Stage::Purging, is_full: true, ..Load::default() };
        let disk_full = Load { is_disk_full: true, ..Load::default() };
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
            (Kind(0), Source::Client, full, vec![high], Some(Refusal::Full), "nothing can give way"),
            (note, Source::Client, full, vec![high], None, "a regular event gives way later"),
            (note, Source::Client, disk_full, vec![high], Some(Refusal::DiskFull), "space for requests only"),
            (Kind::DELETION, Source::Sync, full, vec![low], None, "requests pass"),
            (Kind::VANISH, Source::Client, full, vec![low], None, "requests pass"),
            (Kind::VANISH, Source::Client, disk_full, vec![low], None, "requests pass"),
        ] {
            assert_eq!(refuse(kind, source, node, &topics), expected, "{why}");
        }
        let tight = at(Stage::LiveOnly);
        assert_eq!(refuse(note, Source::Sync, at(Stage::Open), &[tight]), Some(Refusal::LiveOnly));
    }

    #[test]
    fn requests_and_new_keys_of_newcomers_are_refused_while_the_share_is_filled() {
        // P-6
        let open = Load::default();
        let filled = Load { is_share_filled: true, ..open };
        let disk_full = Load { is_disk_full: true, ..filled };
        let (article, profile, note) = (Kind(30_023), Kind(0), Kind(1));
        for (kind, source, node, topic, expected, why) in [
            (Kind::DELETION, Source::Client, open, open, None, "there is room"),
            (Kind::DELETION, Source::Client, filled, open, Some(Refusal::PermanentFull), "the node's share"),
            (Kind::VANISH, Source::Gossip, open, filled, Some(Refusal::PermanentFull), "the topic's share"),
            (article, Source::Sync, filled, open, Some(Refusal::PermanentFull), "an addressable event"),
            (profile, Source::Import, filled, open, Some(Refusal::PermanentFull), "a replaceable event"),
            (note, Source::Client, filled, filled, None, "a regular event gives way later"),
            (Kind::DELETION, Source::Client, disk_full, open, Some(Refusal::DiskFull), "the disk comes first"),
            (article, Source::Node, disk_full, filled, None, "the node's own events"),
        ] {
            assert_eq!(refuse_newcomer(kind, source, node, &[topic]), expected, "{why}");
        }
    }

    #[test]
    fn permanent_rows_fill_their_share_by_number_by_bytes_or_on_disk() {
        // P-6
        let none = Capacity::default();
        let events = |max| Capacity { max_events: Some(max), max_bytes: None };
        let bytes = |max| Capacity { max_events: None, max_bytes: Some(max) };
        let requests = |events, bytes| Permanent { requests: Usage { events, bytes }, ..Permanent::default() };
        let current = |events, bytes| Permanent { current: Usage { events, bytes }, ..Permanent::default() };
        let both = Permanent { requests: Usage { events: 2, bytes: 10 }, current: Usage { events: 3, bytes: 440 } };
        for (permanent, capacity, file_system, is_filled, percent, why) in [
            (both, none, None, false, 0, "nothing bounds it"),
            (both, events(10), None, true, 50, "both classes count"),
            (both, events(11), None, false, 45, "not yet"),
            (both, bytes(1_000), None, true, 50, "a request's bytes count with its tombstones"),
            (current(1, 499), bytes(1_000), None, false, 49, "a version's count as they are"),
            (current(1, 1_976), none, Some(6_000), true, 50, "of the file system, with index rows"),
            (current(1, 1_975), none, Some(6_000), false, 49, "of the file system"),
            (current(1, 1_976), bytes(1_000_000), Some(6_000), false, 0, "a capacity in bytes comes first"),
            (current(1, 1_976), events(100), Some(6_000), true, 50, "a capacity in events does not bound bytes"),
            (requests(9, 0), events(10), None, true, 90, "beyond it"),
        ] {
            let share = PermanentShare { file_system, ..PermanentShare::default() };
            assert_eq!(share.is_filled_in_node(permanent, capacity), is_filled, "{why}");
            assert_eq!(share.percent_of_node(permanent, capacity), percent, "{why}");
        }
    }

    #[test]
    fn permanent_rows_beyond_their_share_do_not_count_for_the_stages() {
        // P-6
        let share = PermanentShare::default();
        let capacity = Capacity { max_events: Some(100), max_bytes: Some(1_000) };
        let usage = |events, bytes| Usage { events, bytes };
        for (total, permanent, expected, why) in [
            (usage(90, 900), usage(50, 500), usage(90, 900), "within the share"),
            (usage(90, 900), usage(60, 500), usage(80, 900), "rows beyond it"),
            (usage(190, 2_900), usage(150, 2_500), usage(90, 900), "as if it were the share"),
        ] {
            let permanent = Permanent { current: permanent, ..Permanent::default() };
            assert_eq!(share.counted_for_stages(total, permanent, capacity), expected, "{why}");
        }
        let unbounded = share.counted_for_stages(usage(9, 9), Permanent::default(), Capacity::default());
        assert_eq!(unbounded, usage(9, 9));
    }

    #[test]
    fn the_lowest_priority_is_shed_unless_all_are_equal() {
        assert_eq!(shed_priority([2, 0, 1, 0]), Some(0));
        assert_eq!(shed_priority([1, 1]), None);
        assert_eq!(shed_priority([]), None);
    }
}
