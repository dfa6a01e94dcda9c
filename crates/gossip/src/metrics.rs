//! The bridge's metrics. Labels have few values; none names a topic or a peer.

use kukuri_catchup::{Report, SessionEnd};
use kukuri_domain::Refusal;
use kukuri_engine::{
    Refused, metric_label, metric_table,
    metrics::{ByValue, Counter, Gauge, LabelValues, Labelled, MetricLabel},
};
use kukuri_store::Outcome;

metric_label! {
    /// Why a message of a peer was dropped, apart from refusals of its event: see [`Refusal::label`].
    pub enum Dropped: "reason" {
        Oversize = "oversize",
        Malformed = "malformed",
        Version = "version",
        Repeat = "repeat",
        Denied = "denied",
        Capacity = "capacity",
        Failed = "failed",
        Rate = "rate",
        Queue = "queue",
        NotFetched = "not_fetched",
    }
}

/// The reasons of [`Dropped`] and of refused events.
pub struct DropReasons;

impl LabelValues for DropReasons {
    const NAME: &'static str = Dropped::NAME;

    fn all() -> Vec<&'static str> {
        let own = Dropped::ALL.iter().map(|dropped| dropped.value());
        let mut all: Vec<_> = Refusal::LABELS.into_iter().chain(own).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

metric_label! {
    /// Why a message was not broadcast.
    pub enum NotSent: "reason" {
        Rate = "rate",
        Queue = "queue",
        NoPeer = "no_peer",
        NoNeighbour = "no_neighbour",
    }
}

metric_label! {
    /// The type of a broadcast message.
    pub enum Sent: "what" { Event = "event", Announcement = "announcement" }
}

metric_label! {
    /// How a catch-up session ended.
    pub enum SessionResult: "end" {
        Finished = "finished",
        NotShared = "not_shared",
        NoHistory = "no_history",
        LimitReached = "limit_reached",
        Broken = "broken",
        Misbehaved = "misbehaved",
        Failed = "failed",
    }
}

metric_label! {
    /// From peers, or to peers.
    pub enum Direction: "direction" { In = "in", Out = "out" }
}

metric_table! {
    /// The bridge's metrics.
    pub struct GossipMetrics {
        received: Counter = "kukuri_gossip_received_total", "Messages received from peers";
        accepted: Counter = "kukuri_gossip_accepted_total", "Messages of peers that brought a new event";
        dropped: ByValue<Counter, DropReasons> = "kukuri_gossip_dropped_total",
            "Messages of peers that were dropped, by reason";
        lagged: Counter = "kukuri_gossip_lagged_total", "Times that iroh-gossip dropped events of a topic";
        fetched: Counter = "kukuri_gossip_fetched_total", "Announced events that were fetched";
        served: Counter = "kukuri_gossip_served_total", "Events given to peers that asked for them";
        refused_connections: Counter = "kukuri_gossip_refused_connections_total", "Connections of peers refused";
        rebuilds: Counter = "kukuri_gossip_rebuilds_total",
            "Times that the endpoint was replaced because iroh-gossip was stuck or had ended";
        rejoins: Counter = "kukuri_gossip_rejoins_total", "Times that a topic with too few neighbours was rejoined";
        sent: Labelled<Counter, Sent> = "kukuri_gossip_sent_total",
            "Messages broadcast, once for each topic of an event";
        not_sent: Labelled<Counter, NotSent> = "kukuri_gossip_not_sent_total",
            "Messages that were not broadcast, by reason";
        sessions: Labelled<Counter, SessionResult> = "kukuri_catchup_sessions_total",
            "Catch-up sessions with peers, by how they ended";
        session_items: Labelled<Counter, Direction> = "kukuri_catchup_items_total",
            "New events and floors received by catch-up, and those given";
        session_bytes: Labelled<Counter, Direction> = "kukuri_catchup_bytes_total", "Bytes of catch-up sessions";
        topics: Gauge = "kukuri_gossip_topics", "Joined topics";
        topics_over_limit: Gauge = "kukuri_gossip_topics_over_limit",
            "Carried topics that are not joined because of gossip.max_topics";
        topics_without_neighbours: Gauge = "kukuri_gossip_topics_without_neighbours",
            "Joined topics without a neighbour";
        peers: Gauge = "kukuri_gossip_peers", "Peers that are neighbours in some topic";
        neighbours: Gauge = "kukuri_gossip_neighbours", "Neighbours, counted once for each topic";
        queue: Labelled<Gauge, Direction> = "kukuri_gossip_queue", "Queued messages";
        state: Gauge = "kukuri_gossip_state", "0 running, 1 being replaced";
    }
}

fn session_result(end: &SessionEnd) -> SessionResult {
    match end {
        SessionEnd::Finished => SessionResult::Finished,
        SessionEnd::NotShared => SessionResult::NotShared,
        SessionEnd::NoHistory => SessionResult::NoHistory,
        SessionEnd::LimitReached => SessionResult::LimitReached,
        SessionEnd::PeerTimeout | SessionEnd::StreamBroken(_) | SessionEnd::EndedByPeer(_) => SessionResult::Broken,
        SessionEnd::Misbehaved(_) | SessionEnd::OtherVersion(_) => SessionResult::Misbehaved,
        SessionEnd::Store(_) => SessionResult::Failed,
    }
}

/// The label under which the answer to a peer's event counts as dropped. `None`: the event was new and accepted.
pub(crate) fn drop_reason(answer: &Result<Outcome, Refused>) -> Option<&'static str> {
    match answer {
        Ok(Outcome::Stored | Outcome::Ephemeral) => None,
        Ok(Outcome::Duplicate) => Some(Dropped::Repeat.value()),
        Ok(Outcome::Refused(refusal)) => Some(refusal.label()),
        Err(refused) => Some(refused.label()),
    }
}

impl GossipMetrics {
    pub(crate) fn count_dropped(&self, reason: &'static str) {
        if let Some(counter) = self.dropped.of(reason) {
            counter.increment(1);
        }
    }

    pub(crate) fn count_session(&self, report: &Report) {
        self.sessions.of(session_result(&report.end)).increment(1);
        self.session_items.of(Direction::In).increment(report.events_in + report.hints_in);
        self.session_items.of(Direction::Out).increment(report.events_out + report.hints_out);
        self.session_bytes.of(Direction::In).increment(report.bytes_in);
        self.session_bytes.of(Direction::Out).increment(report.bytes_out);
    }

    pub(crate) fn count_sent(&self, what: Sent) {
        self.sent.of(what).increment(1);
    }

    pub(crate) fn count_not_sent(&self, reason: NotSent) {
        self.not_sent.of(reason).increment(1);
    }
}
