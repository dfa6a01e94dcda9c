//! Authors, kinds and addresses that the operator keeps out (`[deny]`).

use std::net::IpAddr;

use kukuri_domain::{Event, Origin, PublicKey};

use super::{Client, Context, Policy};
use crate::refused::{ClientRefused, ConnectRefused, PublishRefused};

pub(super) struct DenyPolicy;

impl Policy for DenyPolicy {
    fn check_connect(&self, context: &Context<'_>, ip: IpAddr) -> Result<(), ConnectRefused> {
        if context.config.deny.covers_ip(ip) { Err(ConnectRefused::Denied) } else { Ok(()) }
    }

    fn check_client(&self, context: &Context<'_>, client: &Client) -> Result<(), ClientRefused> {
        let deny = &context.config.deny;
        if deny.covers_ip(client.ip) {
            return Err(ClientRefused::DeniedAddress);
        }
        if client.keys.iter().any(|key| deny.pubkeys.contains(key)) { Err(ClientRefused::DeniedKey) } else { Ok(()) }
    }

    fn check_auth(&self, context: &Context<'_>, key: &PublicKey) -> Result<(), PublishRefused> {
        if context.config.deny.pubkeys.contains(key) { Err(PublishRefused::DeniedKey) } else { Ok(()) }
    }

    fn check_event(&self, context: &Context<'_>, event: &Event, _: &Origin) -> Result<(), PublishRefused> {
        if context.config.deny.covers_event(event) { Err(PublishRefused::Denied) } else { Ok(()) }
    }
}
