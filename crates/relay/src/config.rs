//! What an operator sets for the relay.

use std::time::Duration;

use kukuri_domain::{Admission, retention::Retention};

/// The relay's configuration.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// What is admitted: limits, topics, what this relay is called.
    pub admission: Admission,
    /// How it presents itself (NIP-11).
    pub info: Info,
    /// How much a client may ask for.
    pub requests: RequestLimits,
    /// Whether a topic is enabled by its first use, and up to how many (T-8).
    pub topics: TopicIntake,
    /// How long things are kept.
    pub retention: Retention,
}

/// How the relay presents itself.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// How to reach its operator.
    pub contact: Option<String>,
}

impl Default for Info {
    fn default() -> Self {
        Self { name: "kukuri-node".to_owned(), description: "A community node".to_owned(), contact: None }
    }
}

/// How much one client may ask for (W-4).
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Filters in a request.
    pub filters: usize,
    /// Values in the lists of one filter.
    pub filter_values: usize,
    /// Subscriptions of one connection.
    pub subscriptions: usize,
    /// Stored events per filter; more is clamped.
    pub limit: usize,
    /// Events of one connection that wait for their answer; more are not read until then.
    pub in_flight: usize,
    /// A connection that is silent for this long is asked, and closed if it stays silent as long again.
    pub silence: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            message_bytes: 512 * 1024,
            filters: 20,
            filter_values: 2_000,
            subscriptions: 64,
            limit: 500,
            in_flight: 1_024,
            silence: Duration::from_secs(60),
        }
    }
}

/// How topics become enabled.
#[derive(Clone, Debug)]
pub enum TopicIntake {
    /// By an operator only.
    Closed,
    /// By their first use, as long as fewer than this are enabled.
    Open {
        /// The most enabled topics.
        most: usize,
    },
}

impl Default for TopicIntake {
    fn default() -> Self {
        Self::Open { most: 1_000 }
    }
}
