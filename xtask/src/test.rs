//! `cargo xtask test`: the tests of some crates, or of all, with the programs and the Postgres that they need.

use clap::Args;

use crate::{
    command::{cargo_command, run as run_to_end},
    javascript, postgres, python, tools,
};

/// Set to 1: tests run ten times as many random cases and rounds (`kukuri_testing::long`).
const LONG: &str = "KUKURI_TEST_LONG";

/// Crates whose tests trace system calls.
const TRACED: [&str; 3] = ["node", "store-lmdb", "store-postgres"];
/// Crates whose tests need a Postgres.
const ON_POSTGRES: [&str; 4] = ["control", "node", "search-postgres", "store-postgres"];

/// The command line of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these crates: relay, store-lmdb, …
    #[arg(value_name = "CRATE")]
    crates: Vec<String>,
    /// Ten times as many random cases and rounds.
    #[arg(long)]
    long: bool,
    /// Passed on to `cargo test`: a part of a test's name, or flags.
    #[arg(last = true)]
    rest: Vec<String>,
}

impl Options {
    /// Whether the tests of any of these crates run.
    fn has(&self, crates: &[&str]) -> bool {
        self.crates.is_empty() || self.crates.iter().any(|name| crates.contains(&short(name)))
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("kukuri-").unwrap_or(name)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.has(&TRACED) {
        tools::ensure("strace", "strace")?;
    }
    if options.has(&["node"]) {
        // They cut networks in two.
        tools::ensure("unshare", "util-linux")?;
        tools::ensure("ip", "iproute2")?;
        // And set clocks, by its library.
        tools::ensure("faketime", "faketime")?;
        javascript::prepare()?;
        python::prepare()?;
    }
    let mut tests = cargo_command();
    tests.args(["test", "--all-features"]);
    if options.crates.is_empty() {
        tests.arg("--workspace");
    }
    for name in options.crates.iter().map(|name| short(name)) {
        let package = if name == "xtask" { name.to_owned() } else { format!("kukuri-{name}") };
        tests.args(["--package", &package]);
    }
    tests.args(&options.rest);
    if options.long {
        tests.env(LONG, "1");
    }
    let server = if options.has(&ON_POSTGRES) { Some(postgres::Server::start()?) } else { None };
    if let Some(server) = &server {
        tests.env(postgres::URL, &server.url);
    }
    run_to_end(&mut tests)
}
