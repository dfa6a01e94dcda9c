//! Programs the tests need, from the system's packages.

use std::process::Command;

use anyhow::{Context, bail};

use crate::command::{exists, run};

/// Installs a package if its program is missing.
pub(crate) fn ensure(program: &str, package: &str) -> anyhow::Result<()> {
    if exists(program) {
        return Ok(());
    }
    if !exists("apt-get") {
        bail!("the tests need {program}; please install it");
    }
    run(Command::new("apt-get").args(["update", "-q"]))?;
    run(Command::new("apt-get").args(["install", "-qy", "--no-install-recommends", package]))
        .with_context(|| format!("the tests need {program}; please install the package {package}"))
}
