//! `/healthz`: the state of the node as a stable JSON document, described in docs/operating.md.

use kukuri_engine::Health;
use serde_json::{Map, Value, json};

use crate::front::HttpFront;

impl HttpFront {
    /// The document. A node is ready when its store answers: a consumer that is behind or stuck does not change that.
    pub(crate) fn health_document(&self, health: &Health) -> Value {
        let consumers: Map<String, Value> = health
            .consumers
            .iter()
            .map(|one| (one.name.to_owned(), json!({ "state": one.state, "backlog": one.backlog })))
            .collect();
        let mut document = json!({
            "status": "ready",
            "store": "ready",
            "events": health.stats.effective,
            "connections": self.relay.connections(),
            "subscriptions": health.subscriptions,
            "topics": health.topics,
            "capacity": health.stats.stage.as_str(),
            "disk": health.disk.as_str(),
            "backlog": health.backlog.as_str(),
            "consumers": consumers,
            "clock_held": health.stats.clock_held,
            "uptime_seconds": health.uptime.as_secs(),
        });
        if let Some(document) = document.as_object_mut() {
            document.extend(health.reports.iter().map(|(name, report)| ((*name).to_owned(), report.clone())));
        }
        document
    }
}

/// The document while the store does not answer.
pub(crate) fn unavailable_document() -> Value {
    json!({ "status": "unavailable", "store": "does not answer" })
}
