//! Clients that have to authenticate before they are served (W-7).

use super::{Client, Context, Policy, ReadRequest};
use crate::refused::{PublishRefused, ReadRefused};

pub(super) struct AuthPolicy;

impl Policy for AuthPolicy {
    fn check_read(&self, context: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        if has_to_authenticate(context, request.client) { Err(ReadRefused::Unauthenticated) } else { Ok(()) }
    }

    fn check_event_text(&self, context: &Context<'_>, client: &Client, _: usize) -> Result<(), PublishRefused> {
        if has_to_authenticate(context, client) { Err(PublishRefused::Unauthenticated) } else { Ok(()) }
    }
}

fn has_to_authenticate(context: &Context<'_>, client: &Client) -> bool {
    client.keys.is_empty() && context.config.auth.is_demanded(client.connected_at, context.now)
}
