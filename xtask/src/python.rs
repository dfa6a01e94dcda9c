//! schemathesis, which tries the HTTP API from its own description: in a virtual environment under target/.

use std::{fs, process::Command};

use crate::{
    command::{exists, run, target_dir},
    tools,
};

/// The tests are written for this version.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Installs it if it is missing, or another version is there.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let place = target_dir()?.join("schemathesis");
    // Written when all went well.
    let installed = place.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|version| version == SCHEMATHESIS) {
        return Ok(());
    }
    tools::ensure("python3", "python3")?;
    // Debian's Python can make no virtual environment by itself.
    let has_pip = |program: &str| Command::new(program).args(["-c", "import ensurepip"]).status();
    if exists("apt-get") && !has_pip("python3")?.success() {
        tools::install("python3-venv")?;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    let install = ["install", "--quiet", "--disable-pip-version-check", SCHEMATHESIS];
    run(Command::new(place.join("bin/pip")).args(install))?;
    fs::write(installed, SCHEMATHESIS)?;
    Ok(())
}
