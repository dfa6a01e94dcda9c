//! What members may use a day over WebSocket.

use std::sync::Arc;

use kukuri_control::{Control, Refused, metric::Metric};
use kukuri_domain::{Event, PublicKey};
use kukuri_engine::{
    Client, PublishRefused, ReadKind, ReadRefused,
    policies::{Context, Policy, ReadRequest},
    refused::PersonRefused,
};

use crate::MemberPolicy;

/// Counts what members publish and what they ask of the past, where clients have to authenticate, and refuses what exceeds their
/// plan. A plan without a limit is not counted.
///
/// A client with several keys is counted by the last one that is served, an event by its author if that is one of them.
pub struct QuotaPolicy(pub Arc<Control>);

impl QuotaPolicy {
    /// Counts a unit for the first of these keys that is served.
    fn count<'k>(
        &self,
        context: &Context<'_>,
        mut keys: impl Iterator<Item = &'k PublicKey>,
        metric: Metric,
    ) -> Result<(), PersonRefused> {
        let (people, now) = (self.0.people(), context.now.seconds());
        let Some(key) = keys.find(|key| people.check_served(key, now).is_ok()) else { return Ok(()) };
        let Some(limit) = people.limit(key, metric) else { return Ok(()) };
        match self.0.member_usage().count(key, metric, limit, now) {
            Err(Refused::QuotaExceeded { reset_at: Some(until), .. }) => Err(PersonRefused::QuotaExceeded { until }),
            _ => Ok(()),
        }
    }
}

impl Policy for QuotaPolicy {
    fn check_read(&self, context: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        if !MemberPolicy::is_for_members(context, request.client) || request.kind == ReadKind::Recent {
            return Ok(());
        }
        let keys = || request.client.keys.iter().rev();
        // A search costs what it costs over HTTP.
        let searches = request.filters.iter().filter(|filter| filter.search().is_some()).count();
        for _ in 0..searches {
            self.count(context, keys(), Metric::SearchRequests)?;
        }
        if searches < request.filters.len() {
            self.count(context, keys(), Metric::BackfillRequests)?;
        }
        Ok(())
    }

    fn check_admitted(&self, context: &Context<'_>, client: &Client, event: &Event) -> Result<(), PublishRefused> {
        // What is theirs, people may always take back.
        if !MemberPolicy::is_for_members(context, client) || event.kind.is_request() {
            return Ok(());
        }
        let author = client.keys.iter().filter(|key| **key == event.pubkey);
        Ok(self.count(context, author.chain(client.keys.iter().rev()), Metric::EventPublishes)?)
    }
}
