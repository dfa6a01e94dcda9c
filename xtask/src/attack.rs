//! `cargo xtask attack`: attacks on a node, and how a well-behaved client is served meanwhile.

use std::process::Command;

use crate::{
    command::{cargo_command, run as run_to_end, target_dir},
    postgres,
};

/// Builds the node and the attackers, starts a Postgres if the node is to use one, and attacks.
pub(crate) fn run(rest: &[String]) -> anyhow::Result<()> {
    let has = |flag: &str| rest.iter().any(|word| word == flag || word.starts_with(&format!("{flag}=")));
    // The short form is for CI: it uses what the tests were built with, features included.
    let (profile, directory) = if has("--short") { ("dev", "debug") } else { ("release", "release") };
    let workspace = ["--workspace", "--all-features", "--bin", "kukuri-attack", "--bin", "kukuri-node"];
    run_to_end(cargo_command().args(["build", "--quiet", "--profile", profile]).args(workspace))?;
    let mut attack = Command::new(target_dir()?.join(directory).join("kukuri-attack"));
    attack.args(rest);
    if !rest.iter().any(|word| word == "postgres" || word == "--store=postgres") || has("--url") {
        return run_to_end(&mut attack);
    }
    let server = postgres::Server::start_empty()?;
    run_to_end(attack.env(postgres::URL, &server.url))
}
