//! Everything a developer or CI runs: `cargo xtask test | bench | attack | peer | counts | deny | fuzz | fixture`.
//!
//! Each command fetches or starts whatever it needs by itself.

mod attack;
mod command;
mod counts;
mod deny;
mod fuzz;
mod javascript;
mod peers;
mod postgres;
mod python;
mod test;
mod tools;

use clap::Parser;

use command::{cargo, cargo_command, run};

/// Everything a developer or CI runs.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Runs the tests of some crates, or of all.
    Test(test::Options),
    /// Measures this relay, and others beside it, and writes target/bench/report.md: see `cargo xtask bench --help`.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Attacks this node as strangers may, and shows how a well-behaved client is served: see `cargo xtask attack --help`.
    #[command(disable_help_flag = true)]
    Attack {
        /// Passed on to the attackers.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Installs a relay that `bench` measures beside ours, and prints it as `bench --relay` takes it.
    Peer {
        /// bench/peers/README.md describes them.
        #[arg(value_parser = peers::PEERS)]
        name: String,
    },
    /// Counts the instructions of the hot path, and fails if there are more than 5 % more than before.
    Counts,
    /// Compares the dependencies with deny.toml: licences, sources, banned crates.
    Deny,
    /// Feeds the parsers with made-up input.
    Fuzz(fuzz::Options),
    /// Writes a store of the current format, to be kept and opened by tests ever after. For a release that changes it.
    Fixture,
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Test(options) => test::run(&options),
        Task::Bench { rest } => bench(&rest),
        Task::Attack { rest } => attack::run(&rest),
        Task::Peer { name } => peers::install(&name),
        Task::Counts => counts::run(),
        Task::Deny => deny::run(),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Fixture => cargo(["run", "--quiet", "--package", "kukuri-store-lmdb", "--example", "fixture"]),
    }
}

fn bench(rest: &[String]) -> anyhow::Result<()> {
    let has = |flag: &str| rest.iter().any(|word| word == flag || word.starts_with(&format!("{flag}=")));
    let mut bench = cargo_command();
    bench
        .args(["run", "--profile", "dist", "--quiet", "--package", "kukuri-bench", "--bin", "kukuri-bench", "--"])
        .args(rest);
    if has("--help") || has("-h") {
        return run(&mut bench);
    }
    if !has("--node") {
        // It is measured as it is shipped, from where it lies beside the benchmark.
        cargo(["build", "--profile", "dist", "--quiet", "--package", "kukuri-node"])?;
    }
    // Shows whether acknowledged events are on the disk.
    tools::ensure("strace", "strace")?;
    if !rest.iter().any(|word| word == "postgres" || word == "--store=postgres") || has("--url") {
        return run(&mut bench);
    }
    let server = postgres::Server::start_empty()?;
    run(bench.env(postgres::URL, &server.url))
}
