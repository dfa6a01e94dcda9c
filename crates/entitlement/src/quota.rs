//! Daily limits of WebSocket usage.

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
/// plan. A metric that no plan limits costs nothing.
///
/// Of a client with several keys the one is counted by which [`MemberPolicy`] lets the request pass; of those an event's author first.
pub struct QuotaPolicy(MemberPolicy);

impl QuotaPolicy {
    /// Counts in this control plane.
    pub fn new(control: Arc<Control>) -> Self {
        Self(MemberPolicy(control))
    }

    fn count(&self, context: &Context<'_>, member: &PublicKey, metric: Metric) -> Result<(), PersonRefused> {
        let (control, now) = (&self.0.0, context.now.seconds());
        let Some(limit) = control.people().limit(member, metric) else { return Ok(()) };
        match control.member_usage().count(member, metric, limit, now) {
            Err(Refused::QuotaExceeded { reset_at: Some(until), .. }) => Err(PersonRefused::QuotaExceeded { until }),
            _ => Ok(()),
        }
    }

    fn is_limited(&self, metric: Metric) -> bool {
        self.0.0.people().is_limited(metric)
    }
}

impl Policy for QuotaPolicy {
    fn check_read(&self, context: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        if !MemberPolicy::is_for_members(context, request.client) || request.kind == ReadKind::Recent {
            return Ok(());
        }
        let mut asks_for_the_past = None;
        for filter in request.filters {
            let metric = if filter.search().is_some() { Metric::SearchRequests } else { Metric::BackfillRequests };
            if !self.is_limited(metric) {
                continue;
            }
            let member = self.0.check_filter(context, request.client, filter)?;
            match metric {
                // A search costs what it costs over HTTP.
                Metric::SearchRequests => self.count(context, &member, metric)?,
                _ => asks_for_the_past = Some(member),
            }
        }
        Ok(asks_for_the_past.map_or(Ok(()), |member| self.count(context, &member, Metric::BackfillRequests))?)
    }

    fn check_admitted(&self, context: &Context<'_>, client: &Client, event: &Event) -> Result<(), PublishRefused> {
        let metric = Metric::EventPublishes;
        // People may always delete their own events.
        if !self.is_limited(metric) || !MemberPolicy::is_for_members(context, client) || event.kind.is_request() {
            return Ok(());
        }
        let member = self.0.publisher(context, client, event);
        Ok(member.map_or(Ok(()), |member| self.count(context, &member, metric))?)
    }
}
