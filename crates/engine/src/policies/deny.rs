//! Authors, kinds and addresses that the operator keeps out (`[deny]`).

use std::net::IpAddr;

use kukuri_domain::{Event, Origin, PublicKey};

use super::{Context, Policy};
use crate::refused::{ConnectRefused, Refused};

pub(super) struct DenyPolicy;

impl Policy for DenyPolicy {
    fn connect(&self, context: &Context<'_>, ip: IpAddr) -> Result<(), ConnectRefused> {
        if context.config.deny.covers_ip(ip) { Err(ConnectRefused::Denied) } else { Ok(()) }
    }

    fn authenticate(&self, context: &Context<'_>, key: &PublicKey) -> Result<(), Refused> {
        if context.config.deny.pubkeys.contains(key) { Err(Refused::DeniedKey) } else { Ok(()) }
    }

    fn publish(&self, context: &Context<'_>, event: &Event, _: &Origin) -> Result<(), Refused> {
        if context.config.deny.covers_event(event) { Err(Refused::Denied) } else { Ok(()) }
    }
}
