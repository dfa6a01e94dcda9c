//! Fuzzing the parsers: no input may make them panic or disagree with themselves.

use std::{fs, path::Path, process::Command};

use clap::Args;

use crate::command::{self, cargo, exists};

const TARGETS: [&str; 2] = ["event", "filter"];

/// The command line of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct Options {
    /// How long each target runs.
    #[arg(long, default_value_t = 600)]
    seconds: u32,
    /// Only this target: event or filter.
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !exists("cargo-fuzz") {
        cargo(["install", "--locked", "cargo-fuzz"])?;
    }
    for target in TARGETS.into_iter().filter(|name| options.target.as_deref().is_none_or(|wanted| wanted == *name)) {
        // New inputs are kept aside: the committed corpus is made by hand.
        let found = Path::new("target/fuzz-corpus").join(target);
        fs::create_dir_all(&found)?;
        let mut fuzz = Command::new("cargo");
        // libFuzzer's instrumentation needs the nightly compiler.
        fuzz.args(["+nightly", "fuzz", "run", target]).arg(&found).arg(Path::new("fuzz/corpus").join(target));
        fuzz.args(["--", &format!("-max_total_time={}", options.seconds), "-print_final_stats=1"]);
        command::run(fuzz.env_remove("RUSTUP_TOOLCHAIN"))?;
    }
    Ok(())
}
