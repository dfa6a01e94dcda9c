//! `invite`: codes with which people get an account while the admission mode is `invite`.

use clap::Subcommand;
use kukuri_control::{
    Control,
    actions::{CreateInvite, RevokeInvite},
    invite::{self, Invite},
};
use kukuri_domain::Timestamp;
use serde_json::json;

use super::{
    people::{Lines, as_lines, now, perform},
    table::{fields, moment, table},
};
use crate::{config::Settings, output, wiring};

const DAY: u64 = 24 * 3_600;

#[derive(Subcommand)]
pub(crate) enum InviteCommand {
    /// Makes an invite and prints its code, once.
    Create {
        /// How many accounts it may make.
        #[arg(long, value_name = "N", default_value_t = 1)]
        uses: u32,
        /// After how many days it expires [default: never].
        #[arg(long, value_name = "N")]
        days: Option<u32>,
    },
    /// Lists all invites, the newest first, without their codes.
    List(Lines),
    /// Revokes an invite. Accounts that it has made stay.
    Revoke {
        /// Its id, or its code.
        id: String,
    },
}

pub(crate) async fn run(settings: &Settings, command: InviteCommand) -> anyhow::Result<()> {
    let control = &*wiring::control::for_command(settings).await?;
    match command {
        InviteCommand::Create { uses, days } => create(control, uses, days).await,
        InviteCommand::List(lines) => list(control, &lines).await,
        InviteCommand::Revoke { id } => {
            let invite = perform(control, RevokeInvite { name: id }).await?;
            let Invite { id, used_count, max_uses, .. } = invite;
            output::print(&format!("invite {id} is revoked; it was used {used_count} of {max_uses} times\n"))
        }
    }
}

async fn create(control: &Control, max_uses: u32, days: Option<u32>) -> anyhow::Result<()> {
    let expires_at = days.map(|days| Timestamp(now().0.saturating_add(u64::from(days) * DAY)));
    let (code, invite) = perform(control, CreateInvite { max_uses, expires_at }).await?;
    let lines = [
        ("code", code),
        ("id", invite.id.clone()),
        ("uses", invite.max_uses.to_string()),
        ("expires", expiry(&invite)),
    ];
    output::print(&format!("{}The code is not shown again: the node keeps only its hash.\n", fields(&lines)))
}

fn expiry(invite: &Invite) -> String {
    invite.expires_at.map_or_else(|| "never".to_owned(), moment)
}

async fn list(control: &Control, lines: &Lines) -> anyhow::Result<()> {
    let (invites, now) = (invite::list(control.database()).await?, now());
    if lines.json {
        return output::print(&as_lines(invites.iter().map(|invite| as_value(invite, now))));
    }
    let rows = invites.iter().map(|invite| {
        [
            invite.id.clone(),
            state(invite, now).to_owned(),
            format!("{} of {}", invite.used_count, invite.max_uses),
            moment(invite.created_at),
            expiry(invite),
        ]
    });
    output::print(&table(["id", "state", "used", "made", "expires"], rows))
}

fn state(invite: &Invite, now: Timestamp) -> &'static str {
    match invite {
        Invite { revoked_at: Some(_), .. } => "revoked",
        Invite { used_count, max_uses, .. } if used_count >= max_uses => "used up",
        Invite { expires_at: Some(expires_at), .. } if *expires_at <= now => "expired",
        _ => "open",
    }
}

fn as_value(invite: &Invite, now: Timestamp) -> serde_json::Value {
    json!({
        "id": invite.id,
        "state": state(invite, now),
        "max_uses": invite.max_uses,
        "used_count": invite.used_count,
        "created_at": invite.created_at.0,
        "expires_at": invite.expires_at.map(|time| time.0),
        "revoked_at": invite.revoked_at.map(|time| time.0),
    })
}
