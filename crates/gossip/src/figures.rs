//! Figures for collectors. Labels have few values; none names a topic or a peer.

use kukuri_catchup::{End, Report};
use kukuri_domain::{Refusal, limits::Limit};
use kukuri_relay::{Refused, Relay};
use kukuri_store::Outcome;
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

/// A type with a few values, each the label of a counter.
macro_rules! labels {
    ($(#[$about:meta])* $type:ident { $($variant:ident = $label:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type { $($variant),+ }

        impl $type {
            const ALL: [(Self, &str); [$($label),+].len()] = [$((Self::$variant, $label)),+];
        }
    };
}

labels! {
    /// Why something that came in was dropped.
    Dropped {
        Topic = "topic",
        NotEnabled = "not_enabled",
        P2pOnly = "p2p_only",
        Protected = "protected",
        Private = "private",
        Oversize = "oversize",
        Ahead = "ahead",
        Signature = "signature",
        Malformed = "malformed",
        Version = "version",
        Repeat = "repeat",
        Expired = "expired",
        Gone = "gone",
        Denied = "denied",
        Room = "room",
        Failed = "failed",
        Rate = "rate",
        Queue = "queue",
        NotFetched = "not_fetched",
    }
}

labels! {
    /// Why something that should go out was not sent.
    NotSent {
        Rate = "rate",
        Queue = "queue",
        Alone = "alone",
        NoNeighbour = "no_neighbour",
    }
}

labels! {
    /// What was sent.
    Sent {
        Event = "event",
        Announcement = "announcement",
    }
}

labels! {
    /// How a catch-up ended.
    Ended {
        Finished = "finished",
        NotShared = "not_shared",
        NoHistory = "no_history",
        Over = "over",
        Broken = "broken",
        Misbehaved = "misbehaved",
        Failed = "failed",
    }
}

fn of_end(end: &End) -> Ended {
    match end {
        End::Finished => Ended::Finished,
        End::NotShared => Ended::NotShared,
        End::NoHistory => Ended::NoHistory,
        End::Over => Ended::Over,
        End::Silent | End::Lost(_) | End::Ended(_) => Ended::Broken,
        End::Misbehaved(_) | End::OtherVersion(_) => Ended::Misbehaved,
        End::Store(_) => Ended::Failed,
    }
}

/// What became of something that came in: `None` if it was taken.
pub(crate) fn fate(answer: &Result<Outcome, Refused>) -> Option<Dropped> {
    match answer {
        Ok(Outcome::Stored | Outcome::Ephemeral) => None,
        Ok(Outcome::Duplicate) => Some(Dropped::Repeat),
        Ok(Outcome::Refused(refusal)) | Err(Refused::Rule(refusal)) => Some(of_refusal(refusal)),
        Err(Refused::Denied) => Some(Dropped::Denied),
        Err(_) => Some(Dropped::Room),
    }
}

fn of_refusal(refusal: &Refusal) -> Dropped {
    match refusal {
        Refusal::MissingTopic | Refusal::WrongTopic | Refusal::MalformedTopic => Dropped::Topic,
        Refusal::TopicNotEnabled => Dropped::NotEnabled,
        Refusal::P2pOnly | Refusal::Authentication => Dropped::P2pOnly,
        Refusal::Protected | Refusal::ProtectedUnauthenticated => Dropped::Protected,
        Refusal::PrivateBetweenNodes => Dropped::Private,
        Refusal::OverLimit { limit: Limit::Ahead, .. } => Dropped::Ahead,
        Refusal::OverLimit { .. } => Dropped::Oversize,
        Refusal::WrongId | Refusal::WrongSignature => Dropped::Signature,
        Refusal::Malformed(_) | Refusal::MissingIdentifier | Refusal::MissingEpoch | Refusal::MissingRelay => {
            Dropped::Malformed
        }
        Refusal::Expired => Dropped::Expired,
        Refusal::Deleted | Refusal::Vanished | Refusal::Replaced | Refusal::Purged => Dropped::Gone,
        Refusal::LiveOnly | Refusal::Shed | Refusal::Full | Refusal::DiskFull => Dropped::Room,
        Refusal::Failed => Dropped::Failed,
    }
}

/// All figures.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) received: Counter,
    pub(crate) accepted: Counter,
    pub(crate) lagged: Counter,
    pub(crate) fetched: Counter,
    pub(crate) served: Counter,
    pub(crate) refused_connections: Counter,
    pub(crate) rebuilds: Counter,
    pub(crate) rejoins: Counter,
    dropped: [Counter; Dropped::ALL.len()],
    sent: [Counter; Sent::ALL.len()],
    not_sent: [Counter; NotSent::ALL.len()],
    sessions: [Counter; Ended::ALL.len()],
    /// Events and hints, then bytes; in, then out.
    caught_up: [[Counter; 2]; 2],
    pub(crate) topics: Gauge,
    pub(crate) left_out: Gauge,
    pub(crate) lonely_topics: Gauge,
    pub(crate) peers: Gauge,
    pub(crate) neighbours: Gauge,
    pub(crate) incoming: Gauge,
    pub(crate) outgoing: Gauge,
    pub(crate) state: Gauge,
}

impl Figures {
    /// Shown with the relay's own.
    pub(crate) fn new(relay: &Relay) -> Self {
        relay.measure(Self::describe)
    }

    fn describe() -> Self {
        let count = |name: &'static str, text: &'static str| {
            describe_counter!(name, text);
            counter!(name)
        };
        let level = |name: &'static str, text: &'static str| {
            describe_gauge!(name, text);
            gauge!(name)
        };
        describe_counter!("kukuri_gossip_dropped_total", "Messages of peers that were dropped, by reason");
        describe_counter!("kukuri_gossip_sent_total", "Messages broadcast, once for each topic of an event");
        describe_counter!("kukuri_gossip_not_sent_total", "Messages that were not broadcast, by reason");
        describe_counter!("kukuri_catchup_sessions_total", "Comparisons of a topic with a peer, by how they ended");
        describe_counter!(
            "kukuri_catchup_items_total",
            "New events and floors that catch-up brought, and those it gave"
        );
        describe_counter!("kukuri_catchup_bytes_total", "Bytes of catch-up with peers");
        describe_gauge!("kukuri_gossip_queue", "Messages that wait");
        Self {
            received: count("kukuri_gossip_received_total", "Messages of peers"),
            accepted: count("kukuri_gossip_accepted_total", "Messages of peers that brought a new event"),
            lagged: count("kukuri_gossip_lagged_total", "Gaps in what the library handed over"),
            fetched: count("kukuri_gossip_fetched_total", "Announced events that were fetched"),
            served: count("kukuri_gossip_served_total", "Events given to peers that asked for them"),
            refused_connections: count("kukuri_gossip_refused_connections_total", "Connections of peers turned away"),
            rebuilds: count("kukuri_gossip_rebuilds_total", "Times that the endpoint was replaced"),
            rejoins: count("kukuri_gossip_rejoins_total", "Times that a topic was joined anew for want of neighbours"),
            dropped: Dropped::ALL.map(|(_, reason)| counter!("kukuri_gossip_dropped_total", "reason" => reason)),
            sent: Sent::ALL.map(|(_, what)| counter!("kukuri_gossip_sent_total", "what" => what)),
            not_sent: NotSent::ALL.map(|(_, reason)| counter!("kukuri_gossip_not_sent_total", "reason" => reason)),
            sessions: Ended::ALL.map(|(_, end)| counter!("kukuri_catchup_sessions_total", "end" => end)),
            caught_up: ["kukuri_catchup_items_total", "kukuri_catchup_bytes_total"]
                .map(|name| ["in", "out"].map(|direction| counter!(name, "direction" => direction))),
            topics: level("kukuri_gossip_topics", "Topics that are joined"),
            left_out: level("kukuri_gossip_topics_left_out", "Topics that are not joined: there are too many"),
            lonely_topics: level("kukuri_gossip_topics_alone", "Topics without a neighbour"),
            peers: level("kukuri_gossip_peers", "Peers that are neighbours in some topic"),
            neighbours: level("kukuri_gossip_neighbours", "Neighbours, counted once for each topic"),
            incoming: gauge!("kukuri_gossip_queue", "direction" => "in"),
            outgoing: gauge!("kukuri_gossip_queue", "direction" => "out"),
            state: level("kukuri_gossip_state", "0 running, 1 being replaced"),
        }
    }

    pub(crate) fn dropped(&self, why: Dropped) {
        if let Some(counter) = self.dropped.get(why as usize) {
            counter.increment(1);
        }
    }

    /// Counts a session of catch-up.
    pub(crate) fn caught_up(&self, report: &Report) {
        if let Some(counter) = self.sessions.get(of_end(&report.end) as usize) {
            counter.increment(1);
        }
        let [[items_in, items_out], [bytes_in, bytes_out]] = &self.caught_up;
        items_in.increment(report.events_in + report.hints_in);
        items_out.increment(report.events_out + report.hints_out);
        bytes_in.increment(report.bytes_in);
        bytes_out.increment(report.bytes_out);
    }

    pub(crate) fn sent(&self, what: Sent) {
        if let Some(counter) = self.sent.get(what as usize) {
            counter.increment(1);
        }
    }

    pub(crate) fn not_sent(&self, why: NotSent) {
        if let Some(counter) = self.not_sent.get(why as usize) {
            counter.increment(1);
        }
    }
}
