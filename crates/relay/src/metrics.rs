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
        /// The configuration has come to deny its address, or a key of it.
        Denied = "denied",
        /// The client did not speak WebSocket or UTF-8.
        Unreadable = "unreadable",
        /// The system gave no random bytes for a challenge.
        Failed = "failed",
        /// The node stops.
        Stopping = "stopping",
    }
}

metric_label! {
    /// Why a REQ, COUNT or NEG message is refused.
    pub enum RequestRefused: "reason" {
        /// It can't be served as it is written.
        Invalid = "invalid",
        /// Its sender has to authenticate.
        AuthRequired = "auth_required",
        /// Its sender is banned, or lacks an account, a consent or a subscription.
        NotServed = "not_served",
        /// Its sender exceeds a rate.
        TooFast = "too_fast",
        /// Its answer would cost more than a query may.
        TooCostly = "too_costly",
        /// Too many costly queries run at the same time.
        Busy = "busy",
        /// Too many answers wait to be read.
        AnswerMemory = "answer_memory",
        /// More subscriptions, or values in them, than one connection may have.
        Subscriptions = "subscriptions",
        /// More live filters than an address, or the node, may have.
        LiveFilters = "live_filters",
        /// More reconciliations, or events in them, than a connection, an address or the node may have.
        Reconciliations = "reconciliations",
        /// Its reconciliation is over.
        Over = "over",
        /// The store failed.
        Failed = "failed",
    }
}

metric_table! {
    /// The relay's metrics.
    pub struct RelayMetrics {
        messages: Labelled<Counter, Verb> = "kukuri_requests_total", "Messages of clients, by their first word";
        refused_requests: Labelled<Counter, RequestRefused> = "kukuri_requests_refused_total",
            "REQ, COUNT and NEG messages refused, by reason";
        stored_deliveries: Counter = "kukuri_stored_deliveries_total", "Stored events sent to clients";
        connections: Counter = "kukuri_connections_total", "WebSocket connections accepted";
        closed: Labelled<Counter, CloseCause> = "kukuri_connections_closed_total", "Connections the relay closed, by reason";
    }
}
