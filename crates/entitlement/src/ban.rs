//! Keys that this node does not serve.

use std::sync::Arc;

use kukuri_control::{Control, Refused};
use kukuri_domain::{Event, Kind, Origin, PublicKey};
use kukuri_engine::{
    Client, ClientRefused, PublishRefused,
    policies::{Context, Policy},
    refused::PersonRefused,
};

/// Refuses events of banned authors from every origin, and clients that authenticate as a banned key.
pub struct BanPolicy(pub Arc<Control>);

impl BanPolicy {
    fn check(&self, context: &Context<'_>, key: &PublicKey) -> Result<(), PersonRefused> {
        let (people, now) = (self.0.people(), context.now.seconds());
        let checked = people.check_ban(key, now).and_then(|()| {
            // Seldom are there any: an HMAC for each event would not be free.
            if people.has_nameless_bans() {
                return people.check_nameless_bans(&self.0.secrets().pseudonyms(key), now);
            }
            Ok(())
        });
        match checked {
            Err(Refused::Banned { reason, .. }) => Err(PersonRefused::Banned { reason }),
            _ => Ok(()),
        }
    }
}

impl Policy for BanPolicy {
    fn check_client(&self, context: &Context<'_>, client: &Client) -> Result<(), ClientRefused> {
        Ok(client.keys.iter().try_for_each(|key| self.check(context, key))?)
    }

    fn check_auth(&self, context: &Context<'_>, key: &PublicKey) -> Result<(), PublishRefused> {
        Ok(self.check(context, key)?)
    }

    fn check_event(&self, context: &Context<'_>, event: &Event, origin: &Origin) -> Result<(), PublishRefused> {
        // Nobody is kept from vanishing (NIP-62), and what the node itself and its operator bring in is theirs to decide.
        if event.kind == Kind::VANISH || matches!(origin, Origin::Node | Origin::Import) {
            return Ok(());
        }
        Ok(self.check(context, &event.pubkey)?)
    }
}
