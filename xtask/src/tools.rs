//! Programs that tests and measurements need, from the system's packages.

use std::process::Command;

use anyhow::{Context, bail};

use crate::command::{exists, run};

/// Installs a package if its program is missing.
pub(crate) fn ensure(program: &str, package: &str) -> anyhow::Result<()> {
    if exists(program) {
        return Ok(());
    }
    install(package).with_context(|| format!("{program} is needed"))
}

/// Installs a package.
pub(crate) fn install(package: &str) -> anyhow::Result<()> {
    if !exists("apt-get") {
        bail!("please install {package}");
    }
    run(Command::new("apt-get").args(["update", "-q"]))?;
    run(Command::new("apt-get").args(["install", "-qy", "--no-install-recommends", package]))
        .with_context(|| format!("please install the package {package}"))
}
