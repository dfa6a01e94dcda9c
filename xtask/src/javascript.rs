//! The modules that the tests with a JavaScript client need, installed under target/.

use std::{fs, path::Path, process::Command};

use anyhow::Context;

use crate::{
    command::{run, target_dir},
    tools,
};

/// Installs them if they are missing, or other ones are wanted.
pub(crate) fn prepare() -> anyhow::Result<()> {
    tools::ensure("node", "nodejs")?;
    tools::ensure("npm", "npm")?;
    let wanted = Path::new("crates/node/tests/nostr-tools/package.json");
    let package = fs::read(wanted).with_context(|| wanted.display().to_string())?;
    let place = target_dir()?.join("nostr-tools");
    // Written when all went well, and read by the tests.
    let installed = place.join("installed.json");
    if fs::read(&installed).is_ok_and(|installed| installed == package) {
        return Ok(());
    }
    fs::create_dir_all(&place)?;
    fs::write(place.join("package.json"), &package)?;
    // Versions are exact in package.json; a lock file would only add where they were fetched from.
    let install = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"];
    run(Command::new("npm").args(install).current_dir(&place))?;
    fs::write(installed, package)?;
    Ok(())
}
