//! `cargo xtask deny`: compares the dependencies with deny.toml: licences, sources, banned crates.

use std::process::Command;

use crate::command::{cargo_command, run as run_to_end, target_dir};

/// Its results are the same for everybody.
const VERSION: &str = "0.20.2";

pub(crate) fn run() -> anyhow::Result<()> {
    let root = target_dir()?.join("tools");
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        // Not optimised: it is built more often than it runs.
        let mut install = cargo_command();
        install.args(["install", "--quiet", "--locked", "--debug", "--version", VERSION, "cargo-deny", "--root"]);
        run_to_end(install.arg(&root))?;
    }
    run_to_end(Command::new(program).args(["check", "bans", "licenses", "sources"]))
}
