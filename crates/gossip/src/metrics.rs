//! The bridge's metrics. Labels have few values; none names a topic or a peer.

use kukuri_catchup::{Report, SessionEnd};
#[cfg(doc)]
use kukuri_domain::Refusal;
use kukuri_engine::{
    PublishRefused, metric_label, metric_table,
    metrics::{Counter, Gauge, Labelled, MetricLabel},
};
use kukuri_store::Outcome;

metric_label! {
    /// Why a message of a peer was dropped; among the reasons are all labels of refused events ([`Refusal::label`]).
    pub enum Dropped: "reason" {
        Capacity = "capacity",
        Denied = "denied",
        Expired = "expired",
        Failed = "failed",
        Future = "future",
        Malformed = "malformed",
        NotEnabled = "not_enabled",
        NotFetched = "not_fetched",
        Oversize = "oversize",
        P2pOnly = "p2p_only",
        Private = "private",
        Protected = "protected",
        Queue = "queue",
        Rate = "rate",
        Repeat = "repeat",
        Signature = "signature",
        Superseded = "superseded",
        Version = "version",
        WrongTopic = "wrong_topic",
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
        dropped: Labelled<Counter, Dropped> = "kukuri_gossip_dropped_total",
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

impl GossipMetrics {
    /// Counts the engine's answer to a peer's event.
    pub(crate) fn count_answer(&self, answer: &Result<Outcome, PublishRefused>) {
        let label = match answer {
            Ok(Outcome::Stored | Outcome::Ephemeral) => return self.accepted.increment(1),
            Ok(Outcome::Duplicate) => return self.count_dropped(Dropped::Repeat),
            Ok(Outcome::Refused(refusal)) => refusal.label(),
            Err(refused) => refused.label(),
        };
        self.count_dropped(Dropped::from_value(label).unwrap_or(Dropped::Failed));
    }

    pub(crate) fn count_dropped(&self, reason: Dropped) {
        self.dropped.of(reason).increment(1);
    }

    pub(crate) fn count_session(&self, report: &Report) {
        self.sessions.of(session_result(&report.end)).increment(1);
        self.session_items.of(Direction::In).increment(report.events_in + report.hints_in);
        self.session_items.of(Direction::Out).increment(report.events_out + report.hints_out);
        self.session_bytes.of(Direction::In).increment(report.bytes_in);
        self.session_bytes.of(Direction::Out).increment(report.bytes_out);
    }

    pub(crate) fn count_not_sent(&self, reason: NotSent) {
        self.not_sent.of(reason).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use kukuri_domain::Refusal;

    use super::*;

    #[test]
    fn every_label_of_a_refusal_is_a_reason_to_drop() {
        for label in Refusal::LABELS {
            assert!(Dropped::from_value(label).is_some(), "{label}");
        }
        assert!(Dropped::from_value(PublishRefused::Denied.label()).is_some());
        assert!(Dropped::ALL.is_sorted_by_key(|reason| reason.value()));
    }
}
