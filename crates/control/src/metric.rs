//! What plans limit.

use std::fmt;

/// Something that a plan limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Topics that a person subscribes to at a time.
    MaxTopics,
    /// Searches.
    SearchRequests,
    /// Questions for trending topics.
    TrendingRequests,
    /// Questions about trust.
    TrustRequests,
    /// Reports.
    ReportSubmits,
    /// Events published over WebSocket.
    EventPublishes,
    /// Requests over WebSocket for history.
    BackfillRequests,
}

/// Over what a metric is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A UTC day.
    Day,
    /// It is a level: what there is at a time.
    Level,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::MaxTopics,
        Self::SearchRequests,
        Self::TrendingRequests,
        Self::TrustRequests,
        Self::ReportSubmits,
        Self::EventPublishes,
        Self::BackfillRequests,
    ];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxTopics => "max_topics",
            Self::SearchRequests => "index.search_requests",
            Self::TrendingRequests => "index.trending_requests",
            Self::TrustRequests => "trust.requests",
            Self::ReportSubmits => "moderation.report_submits",
            Self::EventPublishes => "relay.ws_event_publishes",
            Self::BackfillRequests => "relay.ws_backfill_requests",
        }
    }

    /// The metric of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Over what it is counted.
    pub const fn window(self) -> Window {
        if matches!(self, Self::MaxTopics) { Window::Level } else { Window::Day }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Window {
    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Level => "level",
        }
    }
}
