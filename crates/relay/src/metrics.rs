//! Figures of a running relay, for Prometheus and for the status page.
//!
//! Handles are made once: counting is an atomic addition. Labels have few values; none holds an address or a key.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use kukuri_store::{Outcome, Purged, Stats, report::total};
use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::{door::TurnedAway, message::Verb};

/// From 50 µs to 10 s.
const SECONDS: [f64; 16] =
    [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
const SIZES: [f64; 7] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0];

/// What becomes of an event, as a label: accepted ways, then the prefixes of refusals.
const OUTCOMES: [&str; 10] = [
    "stored",
    "duplicate",
    "ephemeral",
    "invalid",
    "blocked",
    "replaced",
    "restricted",
    "auth-required",
    "rate-limited",
    "error",
];

/// Why the relay closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Slow,
    Silent,
    Unauthenticated,
    Unreadable,
    Stopping,
}

impl Closing {
    const ALL: [(Self, &str); 5] = [
        (Self::Slow, "slow"),
        (Self::Silent, "silent"),
        (Self::Unauthenticated, "unauthenticated"),
        (Self::Unreadable, "unreadable"),
        (Self::Stopping, "stopping"),
    ];
}

/// All figures.
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    recorder: Arc<PrometheusRecorder>,
    events: [Counter; OUTCOMES.len()],
    requests: [Counter; Verb::ALL.len()],
    refused_requests: Counter,
    turned_away: [Counter; TurnedAway::ALL.len()],
    closed: [Counter; Closing::ALL.len()],
    pub(crate) connections_made: Counter,
    pub(crate) deliveries: Counter,
    pub(crate) answered_events: Counter,
    pub(crate) batch_events: Histogram,
    pub(crate) commit_seconds: Histogram,
    pub(crate) query_seconds: Histogram,
    pub(crate) search_seconds: Histogram,
    pub(crate) foreign_lag_seconds: Histogram,
    pub(crate) published_lost: Counter,
    expired: Counter,
    purged: [Counter; 2],
    topics_opened: Counter,
    topics_closed: Counter,
    gauges: Gauges,
    stored: AtomicU64,
    /// Stored events a second, times 1,000, over the last while.
    pace: AtomicU64,
    sampled: AtomicU64,
}

/// The figures of one who follows the outbox.
pub(crate) struct ConsumerFigures {
    pub(crate) backlog: Gauge,
    pub(crate) state: Gauge,
    pub(crate) lag_seconds: Histogram,
}

struct Gauges {
    connections: Gauge,
    subscriptions: Gauge,
    stored_events: Gauge,
    store_rows: Gauge,
    store_bytes: Gauge,
    disk_bytes: Gauge,
    free_bytes: Gauge,
    topics: Gauge,
    stage: Gauge,
    disk_stage: Gauge,
    lag_stage: Gauge,
    outbox_head: Gauge,
    clock_held: Gauge,
}

/// What is true at the moment of looking.
pub(crate) struct Now<'s> {
    pub(crate) connections: usize,
    pub(crate) subscriptions: usize,
    pub(crate) topics: usize,
    pub(crate) disk_level: u8,
    pub(crate) lag: u8,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) stats: &'s Stats,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new();
        // Buckets are refused only if they are empty.
        let builder = builder
            .set_buckets_for_metric(metrics_exporter_prometheus::Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .and_then(|builder| {
                builder.set_buckets_for_metric(metrics_exporter_prometheus::Matcher::Suffix("_size".to_owned()), &SIZES)
            })
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        // A recorder of its own for every relay: several may run in one process.
        let recorder = Arc::new(recorder);
        metrics::with_local_recorder(&*recorder, || Self::describe(&recorder))
    }

    /// Figures that are made in here are this relay's.
    pub(crate) fn with_recorder<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, make)
    }

    /// The figures of a consumer.
    pub(crate) fn of_consumer(&self, name: &'static str) -> ConsumerFigures {
        self.with_recorder(|| ConsumerFigures {
            backlog: gauge!("kukuri_consumer_backlog", "consumer" => name),
            state: gauge!("kukuri_consumer_state", "consumer" => name),
            lag_seconds: histogram!("kukuri_consumer_lag_seconds", "consumer" => name),
        })
    }

    fn describe(recorder: &Arc<PrometheusRecorder>) -> Self {
        let count = |name: &'static str, text: &'static str| {
            metrics::describe_counter!(name, text);
            counter!(name)
        };
        let level = |name: &'static str, text: &'static str| {
            metrics::describe_gauge!(name, text);
            gauge!(name)
        };
        let spread = |name: &'static str, unit: Unit, text: &'static str| {
            metrics::describe_histogram!(name, unit, text);
            histogram!(name)
        };
        metrics::describe_counter!("kukuri_events_total", "Events received, by what became of them");
        metrics::describe_counter!("kukuri_requests_total", "Messages other than events, by their word");
        metrics::describe_counter!("kukuri_connections_refused_total", "Connections turned away, by reason");
        metrics::describe_counter!("kukuri_connections_closed_total", "Connections the relay closed, by reason");
        metrics::describe_counter!("kukuri_purged_events_total", "Events purged, by reason");
        metrics::describe_gauge!("kukuri_consumer_backlog", "Outbox rows that a consumer has still to do");
        metrics::describe_gauge!(
            "kukuri_consumer_state",
            "0 following, 1 starting, 2 standby, 3 rebuilding, 4 paused, 5 retrying, 6 stuck, 7 too far behind, 8 stopped"
        );
        metrics::describe_histogram!(
            "kukuri_consumer_lag_seconds",
            Unit::Seconds,
            "Time from an event's acceptance until a consumer's effect is there: for index-v1, until it is in the index"
        );
        Self {
            handle: recorder.handle(),
            recorder: Arc::clone(recorder),
            events: OUTCOMES.map(|outcome| counter!("kukuri_events_total", "outcome" => outcome)),
            requests: Verb::ALL.map(|verb| counter!("kukuri_requests_total", "verb" => verb.word())),
            refused_requests: count("kukuri_requests_refused_total", "Requests refused"),
            turned_away: TurnedAway::ALL
                .map(|why| counter!("kukuri_connections_refused_total", "reason" => why.label())),
            closed: Closing::ALL.map(|(_, label)| counter!("kukuri_connections_closed_total", "reason" => label)),
            connections_made: count("kukuri_connections_total", "Connections made"),
            deliveries: count("kukuri_live_deliveries_total", "Live events queued for clients"),
            answered_events: count("kukuri_stored_deliveries_total", "Stored events sent to clients"),
            batch_events: spread("kukuri_batch_size", Unit::Count, "Events in one transaction"),
            commit_seconds: spread("kukuri_commit_seconds", Unit::Seconds, "Time of a transaction"),
            query_seconds: spread("kukuri_query_seconds", Unit::Seconds, "Time to read the answer to a request"),
            search_seconds: spread("kukuri_search_seconds", Unit::Seconds, "Time to find what answers words"),
            foreign_lag_seconds: spread(
                "kukuri_foreign_lag_seconds",
                Unit::Seconds,
                "Age of events of other processes on the same store when they are made live",
            ),
            published_lost: count(
                "kukuri_published_lost_total",
                "Events of clients that a bridge to other nodes did not take in time",
            ),
            expired: count("kukuri_expired_events_total", "Events that expired"),
            purged: ["retention", "capacity"].map(|why| counter!("kukuri_purged_events_total", "reason" => why)),
            topics_opened: count("kukuri_topics_opened_total", "Topics opened by their first use"),
            topics_closed: count("kukuri_topics_closed_total", "Topics closed for idleness"),
            gauges: Gauges {
                connections: level("kukuri_connections", "Connections"),
                subscriptions: level("kukuri_subscriptions", "Live subscriptions"),
                stored_events: level("kukuri_effective_events", "Events that are visible"),
                store_rows: level("kukuri_store_rows", "Events kept, hidden ones too"),
                store_bytes: level("kukuri_store_json_bytes", "Bytes of their JSON"),
                disk_bytes: level("kukuri_store_disk_bytes", "Bytes the store uses on disk"),
                free_bytes: level("kukuri_disk_free_bytes", "Free bytes on the disk of the data directory"),
                topics: level("kukuri_topics_enabled", "Topics that are enabled"),
                stage: level("kukuri_capacity_stage", "0 open, 1 live only, 2 shedding, 3 purging"),
                disk_stage: level("kukuri_disk_stage", "0 open, 1 live only, 2 shedding, 3 full"),
                lag_stage: level("kukuri_backlog_stage", "0 near, 1 live only, 2 shedding, 3 cutting rates"),
                outbox_head: level("kukuri_outbox_head", "The highest outbox sequence"),
                clock_held: level("kukuri_clock_held", "1 while purges wait for the clock to be confirmed"),
            },
            stored: AtomicU64::new(0),
            pace: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
        }
    }

    /// An event was answered.
    pub(crate) fn answered(&self, outcome: &Outcome) {
        let label = match outcome {
            Outcome::Stored => {
                self.stored.fetch_add(1, Ordering::Relaxed);
                "stored"
            }
            Outcome::Duplicate => "duplicate",
            Outcome::Ephemeral => "ephemeral",
            Outcome::Refused(refusal) => refusal.prefix(),
        };
        self.refused_event(label);
    }

    /// An event was refused with this prefix.
    pub(crate) fn refused_event(&self, label: &str) {
        let known = OUTCOMES.iter().position(|outcome| *outcome == label);
        if let Some(counter) = known.and_then(|known| self.events.get(known)) {
            counter.increment(1);
        }
    }

    pub(crate) fn asked(&self, verb: Verb) {
        if let Some(counter) = Verb::ALL.iter().position(|known| *known == verb).and_then(|at| self.requests.get(at)) {
            counter.increment(1);
        }
    }

    pub(crate) fn refused_request(&self) {
        self.refused_requests.increment(1);
    }

    pub(crate) fn turned_away(&self, why: TurnedAway) {
        let at = TurnedAway::ALL.iter().position(|known| *known == why);
        if let Some(counter) = at.and_then(|at| self.turned_away.get(at)) {
            counter.increment(1);
        }
    }

    pub(crate) fn closed(&self, why: Closing) {
        let at = Closing::ALL.iter().position(|(known, _)| *known == why);
        if let Some(counter) = at.and_then(|at| self.closed.get(at)) {
            counter.increment(1);
        }
    }

    pub(crate) fn expired(&self, events: u64) {
        self.expired.increment(events);
    }

    pub(crate) fn purged(&self, purged: &Purged) {
        let [retention, capacity] = &self.purged;
        retention.increment(purged.by_retention);
        capacity.increment(purged.by_capacity);
    }

    pub(crate) fn topic_opened(&self) {
        self.topics_opened.increment(1);
    }

    pub(crate) fn topic_closed(&self) {
        self.topics_closed.increment(1);
    }

    /// Takes a measure of the pace; called once a second.
    pub(crate) fn sample(&self) {
        let stored = self.stored.load(Ordering::Relaxed);
        let before = self.sampled.swap(stored, Ordering::Relaxed);
        let now = stored.saturating_sub(before) * 1_000;
        let pace = self.pace.load(Ordering::Relaxed);
        // A moving average over some ten seconds.
        self.pace.store((pace * 9 + now) / 10, Ordering::Relaxed);
    }

    /// Stored events a second.
    pub(crate) fn pace(&self) -> f64 {
        self.pace.load(Ordering::Relaxed) as f64 / 1_000.0
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn render(&self, now: &Now<'_>) -> String {
        let gauges = &self.gauges;
        let rows = total(&now.stats.by_class);
        for (gauge, value) in [
            (&gauges.connections, now.connections as f64),
            (&gauges.subscriptions, now.subscriptions as f64),
            (&gauges.topics, now.topics as f64),
            (&gauges.stored_events, now.stats.effective as f64),
            (&gauges.store_rows, rows.events as f64),
            (&gauges.store_bytes, rows.bytes as f64),
            (&gauges.stage, f64::from(now.stats.stage as u8)),
            (&gauges.disk_stage, f64::from(now.disk_level)),
            (&gauges.lag_stage, f64::from(now.lag)),
            (&gauges.outbox_head, now.stats.head.0 as f64),
            (&gauges.clock_held, f64::from(u8::from(now.stats.clock_held))),
        ] {
            gauge.set(value);
        }
        if let Some(bytes) = now.stats.disk_bytes {
            gauges.disk_bytes.set(bytes as f64);
        }
        if let Some(bytes) = now.free_bytes {
            gauges.free_bytes.set(bytes as f64);
        }
        self.handle.render()
    }

    /// Keeps what histograms hold from growing between two visits of a collector.
    pub(crate) fn tidy(&self) {
        self.handle.run_upkeep();
    }
}
