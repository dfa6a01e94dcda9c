//! The relay's metrics.

use kukuri_engine::{
    metric_label, metric_table,
    metrics::{Counter, Labelled},
};

metric_label! {
    /// The first word of a message.
    pub enum Verb: "verb" {
        Event = "EVENT",
        Auth = "AUTH",
        Req = "REQ",
        Count = "COUNT",
        Close = "CLOSE",
        Neg = "NEG",
        Unreadable = "unreadable",
    }
}

metric_label! {
    /// Why the relay closed a connection.
    pub enum CloseCause: "reason" {
        /// The client did not read in time.
        Slow = "slow",
        /// The client sent nothing, not even a pong.
        Silent = "silent",
        /// The client did not authenticate in time.
        Unauthenticated = "unauthenticated",
        /// The client did not speak WebSocket or UTF-8.
        Unreadable = "unreadable",
        /// The node stops.
        Stopping = "stopping",
    }
}

metric_table! {
    /// The relay's metrics.
    pub struct RelayMetrics {
        messages: Labelled<Counter, Verb> = "kukuri_requests_total", "Messages of clients, by their first word";
        refused_requests: Counter = "kukuri_requests_refused_total", "REQ, COUNT and NEG messages refused";
        stored_deliveries: Counter = "kukuri_stored_deliveries_total", "Stored events sent to clients";
        connections: Counter = "kukuri_connections_total", "WebSocket connections accepted";
        closed: Labelled<Counter, CloseCause> = "kukuri_connections_closed_total", "Connections the relay closed, by reason";
    }
}
