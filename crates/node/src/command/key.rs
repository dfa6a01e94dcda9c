//! `key`: the node's own key.

use clap::Subcommand;

use crate::{config::Settings, key, output};

#[derive(Subcommand)]
pub(crate) enum Key {
    /// Prints the public key.
    Show,
}

pub(crate) fn run(settings: &Settings, command: &Key) -> anyhow::Result<()> {
    let Key::Show = command;
    let file = key::nostr_file(&settings.data);
    if !file.exists() {
        anyhow::bail!("{}: there is no key yet; the node creates it at its first start", file.display());
    }
    let key = key::nostr_public_key(&settings.data)?;
    output::print(&format!("public key  {key}\nkept in     {}\n", file.display()))
}
