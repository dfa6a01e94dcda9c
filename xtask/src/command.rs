//! Running other programs.

use std::{env, io, path::PathBuf, process::Command};

use anyhow::{Context, bail};

/// Runs cargo in this workspace.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> anyhow::Result<()> {
    run(cargo_command().args(arguments))
}

/// Cargo, as if it was started by hand: variables of the cargo that started this program would rebuild some crates.
pub(crate) fn cargo_command() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let is_ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_ours) {
            cargo.env_remove(name);
        }
    }
    cargo
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

/// Cargo's target directory.
pub(crate) fn target_dir() -> io::Result<PathBuf> {
    Ok(env::current_dir()?.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())))
}
