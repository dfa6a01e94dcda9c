//! `admission`: who gets an account.

use clap::Subcommand;
use kukuri_control::{
    Control,
    actions::{SetAdmission, SetAllowed},
    admission::{self, AdmissionMode},
};
use kukuri_domain::nip19::npub;
use serde_json::json;

use super::people::{Lines, as_lines, perform, public_key};
use crate::{config::Settings, output, wiring};

#[derive(Subcommand)]
pub(crate) enum AdmissionCommand {
    /// Prints the mode.
    Show,
    /// Gives every key an account. Accounts that exist are not affected by the mode.
    Open,
    /// Gives keys with an invite code an account.
    Invite,
    /// Gives keys on the list of allowed keys an account.
    Allowlist,
    /// Adds a key to the list of allowed keys.
    Allow {
        /// The person: 64 hex digits or npub.
        key: String,
    },
    /// Removes a key from the list. An account that exists is not affected.
    Disallow {
        /// The person: 64 hex digits or npub.
        key: String,
    },
    /// Prints the list of allowed keys.
    List(Lines),
}

pub(crate) async fn run(settings: &Settings, command: AdmissionCommand) -> anyhow::Result<()> {
    let open = || wiring::control::for_command(settings);
    match command {
        AdmissionCommand::Show => {
            let mode = open().await?.people().admission();
            output::print(&format!("{}: {}\n", mode.name(), described(mode)))
        }
        AdmissionCommand::Open => set_mode(settings, AdmissionMode::Open).await,
        AdmissionCommand::Invite => set_mode(settings, AdmissionMode::Invite).await,
        AdmissionCommand::Allowlist => set_mode(settings, AdmissionMode::Allowlist).await,
        AdmissionCommand::Allow { key } => set_allowed(settings, &key, true).await,
        AdmissionCommand::Disallow { key } => set_allowed(settings, &key, false).await,
        AdmissionCommand::List(lines) => list(&*open().await?, &lines).await,
    }
}

fn described(mode: AdmissionMode) -> &'static str {
    match mode {
        AdmissionMode::Open => "every key gets an account",
        AdmissionMode::Invite => "a key with an invite code gets an account",
        AdmissionMode::Allowlist => "a key on the list of allowed keys gets an account",
    }
}

async fn set_mode(settings: &Settings, mode: AdmissionMode) -> anyhow::Result<()> {
    let control = wiring::control::for_command(settings).await?;
    let before = perform(&control, SetAdmission { mode }).await?;
    output::print(&format!("admission is {}, was {}: {}\n", mode.name(), before.name(), described(mode)))
}

async fn set_allowed(settings: &Settings, key: &str, is_allowed: bool) -> anyhow::Result<()> {
    let pubkey = public_key(key)?;
    let control = wiring::control::for_command(settings).await?;
    let was_allowed = perform(&control, SetAllowed { pubkey, is_allowed }).await?;
    let says = match (was_allowed, is_allowed) {
        (false, true) => "is on the list of allowed keys",
        (true, true) => "was on the list of allowed keys already",
        (true, false) => "is no longer on the list of allowed keys",
        (false, false) => "was not on the list of allowed keys",
    };
    output::print(&format!("{} {says}\n", npub(&pubkey)))
}

async fn list(control: &Control, lines: &Lines) -> anyhow::Result<()> {
    let allowed = admission::allowed(control.database()).await?;
    if lines.json {
        let objects = allowed.iter().map(|key| json!({ "pubkey": key, "npub": npub(key) }));
        return output::print(&as_lines(objects));
    }
    output::print(&allowed.iter().map(|key| format!("{key}\n")).collect::<String>())
}
