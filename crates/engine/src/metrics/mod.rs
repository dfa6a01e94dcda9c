//! The engine's metrics, and the recorder that all parts of a node register theirs with.
//!
//! The recorder is an argument: several engines may run in one process. What exports it is not the engine's business.

mod table;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use kukuri_store::{Outcome, report::total};
pub use metrics::{Counter, Gauge, Histogram};
pub use table::{Handle, Labelled, Metric, MetricLabel, MetricSpec, PerConsumer};

use crate::{engine::Health, metric_label, metric_table, refused::PublishRefused};

metric_label! {
    /// The outcome of an event: accepted in some way, or the prefix of its refusal.
    pub enum EventOutcome: "outcome" {
        Stored = "stored",
        Duplicate = "duplicate",
        Ephemeral = "ephemeral",
        Invalid = "invalid",
        Blocked = "blocked",
        Replaced = "replaced",
        Restricted = "restricted",
        AuthRequired = "auth-required",
        RateLimited = "rate-limited",
        Error = "error",
    }
}

metric_label! {
    /// What a read waits for.
    pub enum PermitKind: "kind" { Session = "session", CostlyQuery = "costly_query", Search = "search" }
}

metric_label! {
    /// Why a purge removed an event.
    pub enum PurgeReason: "reason" { Retention = "retention", Capacity = "capacity" }
}

metric_table! {
    /// The engine's metrics.
    pub struct EngineMetrics {
        events: Labelled<Counter, EventOutcome> = "kukuri_events_total", "Events received, by outcome";
        batch_events: Histogram = "kukuri_batch_size", "Events in one transaction";
        commit_seconds: Histogram = "kukuri_commit_seconds", "Time of a transaction";
        query_seconds: Histogram = "kukuri_query_seconds", "Time to read the answer to a request";
        queries_over_budget: Counter = "kukuri_queries_over_budget_total",
            "Queries that reached limits.query_rows or limits.query_time";
        read_permits_waiting: Labelled<Gauge, PermitKind> = "kukuri_read_permits_waiting",
            "Reads that wait for their turn: for a session of the database, as a costly query, as a search";
        search_seconds: Histogram = "kukuri_search_seconds", "Time of a search";
        other_process_delay: Histogram = "kukuri_other_process_delivery_delay_seconds",
            "Age of an event that another process on the same store wrote, when it is delivered live";
        queue_overflow: Counter = "kukuri_gossip_queue_overflow_total",
            "Events that gossip did not take from the engine in time";
        deliveries: Counter = "kukuri_live_deliveries_total", "Live events queued for clients";
        expired: Counter = "kukuri_expired_events_total", "Events that expired";
        purged: Labelled<Counter, PurgeReason> = "kukuri_purged_events_total", "Events purged, by reason";
        topics_opened: Counter = "kukuri_topics_opened_total", "Topics opened by their first use";
        topics_closed: Counter = "kukuri_topics_closed_total", "Topics closed after topics.idle without an event";
        subscriptions: Gauge = "kukuri_subscriptions", "Live subscriptions";
        live_filters: Gauge = "kukuri_live_filters", "Filters of live subscriptions, as limits.live_filters counts them";
        answer_bytes: Gauge = "kukuri_answer_bytes", "Bytes of answers that wait to be read, of limits.answer_memory";
        effective_events: Gauge = "kukuri_effective_events", "Effective events";
        store_rows: Gauge = "kukuri_store_rows", "Events in the store, hidden ones included";
        store_bytes: Gauge = "kukuri_store_json_bytes", "Bytes of their JSON";
        store_disk_bytes: Gauge = "kukuri_store_disk_bytes", "Bytes the store uses on disk";
        disk_free_bytes: Gauge = "kukuri_disk_free_bytes", "Free bytes on the disk of the data directory";
        topics_enabled: Gauge = "kukuri_topics_enabled", "Enabled topics";
        capacity_stage: Gauge = "kukuri_capacity_stage", "0 open, 1 live only, 2 shedding, 3 purging";
        permanent_stage: Gauge = "kukuri_permanent_stage",
            "0 open, 1 full: requests and new keys only from authors with another event here";
        permanent_percent: Gauge = "kukuri_permanent_percent",
            "Percent of the capacity, or of the file system, that requests and current versions fill";
        disk_stage: Gauge = "kukuri_disk_stage", "0 open, 1 live only, 2 shedding, 3 full";
        backlog_stage: Gauge = "kukuri_backlog_stage", "0 near, 1 live only, 2 shedding, 3 cutting rates";
        outbox_head: Gauge = "kukuri_outbox_head", "The highest outbox sequence";
        clock_held: Gauge = "kukuri_clock_held", "1 while nothing is purged because of its age, as the clock may be wrong";
        consumer_backlog: PerConsumer<Gauge> = "kukuri_consumer_backlog", "Outbox rows that a consumer has not processed yet";
        consumer_state: PerConsumer<Gauge> = "kukuri_consumer_state",
            "0 following, 1 starting, 2 standby, 3 rebuilding, 4 paused, 5 retrying, 6 stuck, 7 too far behind, 8 stopped";
        consumer_lag_seconds: PerConsumer<Histogram> = "kukuri_consumer_lag_seconds",
            "Time from a change's commit until a consumer has processed it";
    }
}

/// A recorder of metrics that other parts of the node share with the engine.
pub type SharedRecorder = Arc<dyn metrics::Recorder + Send + Sync>;

impl EngineMetrics {
    /// Counts an event that was refused before the writer saw it.
    pub(crate) fn count_refused(&self, refused: &PublishRefused) {
        self.events.of(outcome_of_prefix(refused.prefix())).increment(1);
    }

    /// Counts an event that was decided on.
    pub(crate) fn count_outcome(&self, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Stored => EventOutcome::Stored,
            Outcome::Duplicate => EventOutcome::Duplicate,
            Outcome::Ephemeral => EventOutcome::Ephemeral,
            Outcome::Refused(refusal) => outcome_of_prefix(refusal.prefix()),
        };
        self.events.of(outcome).increment(1);
    }

    pub(crate) fn set_gauges(&self, health: &Health, disk_free_bytes: Option<u64>) {
        let stats = &health.stats;
        let rows = total(&stats.by_class);
        self.subscriptions.set(health.subscriptions as f64);
        self.live_filters.set(health.live_filters as f64);
        self.answer_bytes.set(health.answer_bytes as f64);
        self.topics_enabled.set(health.topics as f64);
        self.effective_events.set(stats.effective as f64);
        self.store_rows.set(rows.events as f64);
        self.store_bytes.set(rows.bytes as f64);
        self.capacity_stage.set(f64::from(stats.stage as u8));
        self.permanent_stage.set(f64::from(u8::from(health.permanent.is_full)));
        self.permanent_percent.set(health.permanent.percent as f64);
        self.disk_stage.set(f64::from(health.disk as u8));
        self.backlog_stage.set(f64::from(health.backlog as u8));
        self.outbox_head.set(stats.head.0 as f64);
        self.clock_held.set(f64::from(u8::from(stats.clock_held)));
        stats.disk_bytes.iter().for_each(|bytes| self.store_disk_bytes.set(*bytes as f64));
        disk_free_bytes.iter().for_each(|bytes| self.disk_free_bytes.set(*bytes as f64));
    }
}

/// Every prefix of a refusal is an outcome; a test goes through them.
fn outcome_of_prefix(prefix: &str) -> EventOutcome {
    EventOutcome::from_value(prefix).unwrap_or(EventOutcome::Error)
}

/// Stored events a second, as a moving average over about ten seconds.
#[derive(Default)]
pub(crate) struct EventRate {
    stored: AtomicU64,
    sampled: AtomicU64,
    /// Events a second, times 1,000.
    average: AtomicU64,
}

impl EventRate {
    pub(crate) fn count_stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    /// Called once a second.
    pub(crate) fn sample(&self) {
        let stored = self.stored.load(Ordering::Relaxed);
        let before = self.sampled.swap(stored, Ordering::Relaxed);
        let last_second = stored.saturating_sub(before) * 1_000;
        let average = self.average.load(Ordering::Relaxed);
        self.average.store((average * 9 + last_second) / 10, Ordering::Relaxed);
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.average.load(Ordering::Relaxed) as f64 / 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_prefix_of_nip01_used_here_is_an_outcome() {
        for prefix in ["invalid", "blocked", "replaced", "restricted", "auth-required", "rate-limited", "error"] {
            assert_eq!(outcome_of_prefix(prefix).value(), prefix);
        }
    }
}
