//! Clients that have to authenticate before they are served (W-7).

use super::{Client, Context, Policy, ReadRequest};
use crate::refused::{ReadRefused, Refused};

pub(super) struct AuthPolicy;

impl Policy for AuthPolicy {
    fn read(&self, context: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        if has_to_authenticate(context, request.client) { Err(ReadRefused::Unauthenticated) } else { Ok(()) }
    }

    fn publish_text(&self, context: &Context<'_>, client: &Client, _: usize) -> Result<(), Refused> {
        if has_to_authenticate(context, client) { Err(Refused::Unauthenticated) } else { Ok(()) }
    }
}

fn has_to_authenticate(context: &Context<'_>, client: &Client) -> bool {
    client.keys.is_empty() && context.config.auth.is_demanded(client.connected_at, context.now)
}
