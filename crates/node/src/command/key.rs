//! `key`: the node's own key, and its secrets.

use clap::Subcommand;
use kukuri_control::actions::ReplaceTokenSecret;

use super::people::perform;
use crate::{config::Settings, key, output, wiring};

#[derive(Subcommand)]
pub(crate) enum Key {
    /// Prints the public key.
    Show,
    /// Exchanges the secret of access tokens: everybody signs in again. For when it may have become known.
    ReplaceTokenSecret,
}

pub(crate) async fn run(settings: &Settings, command: Key) -> anyhow::Result<()> {
    match command {
        Key::Show => show(settings),
        Key::ReplaceTokenSecret => {
            let control = wiring::control::for_command(settings).await?;
            let version = perform(&control, ReplaceTokenSecret).await?;
            output::print(&format!("access tokens have a new secret, version {version}: everybody signs in again\n"))
        }
    }
}

fn show(settings: &Settings) -> anyhow::Result<()> {
    let file = key::nostr_file(&settings.data);
    if !file.exists() {
        anyhow::bail!("{}: there is no key yet; the node creates it at its first start", file.display());
    }
    let key = key::nostr_public_key(&settings.data)?;
    output::print(&format!("public key  {key}\nkept in     {}\n", file.display()))
}
