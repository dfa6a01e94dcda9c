//! `cargo xtask counts`: instructions of the hot path, counted by callgrind. bench/counts has the operations and
//! their limits.

use std::{fs, path::PathBuf};

use anyhow::{Context, ensure};

use crate::{
    command::{cargo_command, run as run_to_end, target_dir},
    tools,
};

/// Compiler settings for the counted crates.
const PROFILE: &str = "bench/counts/profile.toml";

pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "the limits are for x86-64; other processors have other instructions");
    tools::ensure("valgrind", "valgrind")?;
    let runner = install_runner()?;
    let mut counts = cargo_command();
    // The features and the profile of the tests, so that their dependencies serve here too.
    counts.args(["bench", "--quiet", "--profile", "dev", "--config", PROFILE, "--workspace", "--all-features"]);
    run_to_end(counts.args(["--bench", "counts"]).env("GUNGRAUN_RUNNER", runner))
}

/// The program that runs benchmarks under valgrind: its version must be the library's.
fn install_runner() -> anyhow::Result<PathBuf> {
    let lock = fs::read_to_string("Cargo.lock")?;
    let version = lock.split_once("name = \"gungraun\"\nversion = \"").and_then(|(_, rest)| rest.split('"').next());
    let version = version.context("gungraun in Cargo.lock")?;
    let root = target_dir()?.join(format!("gungraun-{version}"));
    let runner = root.join("bin/gungraun-runner");
    if !runner.exists() {
        let mut install = cargo_command();
        // Unoptimised: it is built sooner, and valgrind takes the time.
        install.args(["install", "--quiet", "--locked", "--debug", "gungraun-runner", "--version", version, "--root"]);
        run_to_end(install.arg(&root))?;
    }
    Ok(runner)
}
