//! Running other programs.

use std::{ffi::OsStr, process::Command};

use anyhow::{Context, bail};

/// Runs cargo in this workspace.
pub(crate) fn cargo<I, S>(arguments: I) -> anyhow::Result<()>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    run(Command::new(env!("CARGO")).args(arguments))
}

/// Runs a program to its end and fails if it does.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{program} could not be started"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// Whether a program can be started.
pub(crate) fn exists(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status();
    found.is_ok_and(|status| status.success())
}
