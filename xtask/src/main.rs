//! Everything a developer or CI runs: `cargo xtask test | bench | counts | fuzz | fixture`.
//!
//! Each command fetches or starts whatever it needs by itself.

mod command;
mod counts;
mod fuzz;
mod javascript;
mod peers;
mod postgres;
mod tools;

use clap::Parser;

use command::{cargo, cargo_command, run};

/// Everything a developer or CI runs.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Runs every test there is.
    Test {
        /// Passed on to `cargo test`: a part of a test's name, or flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Measures this relay, and others beside it, and writes target/bench/report.md: `cargo xtask bench --help` says what.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Counts what the hot path costs, and fails if that is more than it was.
    Counts(counts::Options),
    /// Feeds the parsers with made-up input.
    Fuzz(fuzz::Options),
    /// Writes a store of the current format, to be kept and opened by tests ever after. For a release that changes it.
    Fixture,
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Test { rest } => test(&rest),
        Task::Bench { rest } => bench(&rest),
        Task::Counts(options) => counts::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Fixture => cargo(["run", "--quiet", "--package", "kukuri-store-lmdb", "--example", "fixture"]),
    }
}

fn bench(rest: &[String]) -> anyhow::Result<()> {
    let rest = &peers::beside(rest)?;
    let has = |flag: &str| rest.iter().any(|word| word == flag || word.starts_with(&format!("{flag}=")));
    let mut bench = cargo_command();
    bench.args(["run", "--release", "--quiet", "--package", "kukuri-bench", "--"]).args(rest);
    if has("--help") || has("-h") {
        return run(&mut bench);
    }
    if !has("--node") {
        // It is measured as it is shipped, from where it lies beside the benchmark.
        cargo(["build", "--release", "--quiet", "--package", "kukuri-node"])?;
    }
    // Shows whether what a relay acknowledged is on the disk.
    tools::ensure("strace", "strace")?;
    if !rest.iter().any(|word| word == "postgres" || word == "--store=postgres") || has("--url") {
        return run(&mut bench);
    }
    let server = postgres::Server::start_anew()?;
    run(bench.env(postgres::URL, server.url()))
}

fn test(rest: &[String]) -> anyhow::Result<()> {
    // Shows that a commit waits for the disk.
    tools::ensure("strace", "strace")?;
    // Cut networks in two.
    tools::ensure("unshare", "util-linux")?;
    tools::ensure("ip", "iproute2")?;
    javascript::prepare()?;
    let server = postgres::Server::start()?;
    let mut tests = cargo_command();
    tests.args(["test", "--workspace", "--all-features"]).args(rest);
    run(tests.env(postgres::URL, server.url()))
}
