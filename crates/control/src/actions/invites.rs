//! Invites: made and revoked. The code itself is in no audit row.

use kukuri_domain::Timestamp;

use super::record;
use crate::{
    Refused, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    invite::{self, Invite},
};

/// Makes an invite. Answers with its code, which is shown once, and the invite.
#[derive(Clone, Debug)]
pub struct CreateInvite {
    /// How often it may be used.
    pub max_uses: u32,
    /// When it expires. `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl Action for CreateInvite {
    type Done = (String, Invite);

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<(String, Invite), Refused> {
        let (code, invite) = invite::create(transaction, self.max_uses, self.expires_at, acting.now).await?;
        let entry = Entry::new("invite.create", target(&invite)).field("max_uses", (), invite.max_uses).field(
            "expires_at",
            (),
            invite.expires_at.map(|expires_at| expires_at.0),
        );
        record(transaction, acting, entry).await?;
        Ok((code, invite))
    }
}

/// Revokes an invite. Answers with the invite as it was.
#[derive(Clone, Debug)]
pub struct RevokeInvite {
    /// Its id, the whole hash of its code, or the code.
    pub name: String,
}

impl Action for RevokeInvite {
    type Done = Invite;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<Invite, Refused> {
        let invite = invite::revoke(transaction, &self.name, acting.now).await?;
        let entry = Entry::new("invite.revoke", target(&invite)).field("revoked", false, true);
        record(transaction, acting, entry).await?;
        Ok(invite)
    }
}

fn target(invite: &Invite) -> Target {
    Target::Thing("invite", invite.id.clone())
}
