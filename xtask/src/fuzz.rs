//! Fuzzing everything that comes from outside: no input may make a part of the node panic or disagree with itself.

use std::{fs, path::Path};

use anyhow::bail;
use clap::Args;

use crate::command::{cargo, cargo_command, exists, run as run_to_end};

/// Seconds that each target runs, and with `--long`.
const SECONDS: u32 = 600;
const LONG_SECONDS: u32 = 3_600;
/// Bounds of one input: a target that takes longer or more has found something.
const MAX_SECONDS_PER_INPUT: u32 = 20;
const MAX_MEGABYTES: u32 = 2_048;

/// The command line of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these targets; fuzz/README.md lists them.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// How long each target runs; ten minutes unless told otherwise.
    #[arg(long)]
    seconds: Option<u32>,
    /// An hour for each target.
    #[arg(long, conflicts_with = "seconds")]
    long: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let all = targets(Path::new("fuzz"))?;
    if let Some(unknown) = options.targets.iter().find(|name| !all.contains(name)) {
        bail!("there is no target {unknown}; there are {}", all.join(", "));
    }
    if !exists("cargo-fuzz") {
        cargo(["install", "--locked", "cargo-fuzz"])?;
    }
    let seconds = options.seconds.unwrap_or(if options.long { LONG_SECONDS } else { SECONDS });
    for target in all.iter().filter(|name| options.targets.is_empty() || options.targets.contains(name)) {
        fuzz(target, seconds)?;
    }
    Ok(())
}

fn fuzz(target: &str, seconds: u32) -> anyhow::Result<()> {
    // New inputs are kept aside: the committed corpus is small, and each of its files has a meaning.
    let found = Path::new("target/fuzz-corpus").join(target);
    fs::create_dir_all(&found)?;
    let mut fuzz = cargo_command();
    fuzz.args(["fuzz", "run", target]).arg(&found).arg(Path::new("fuzz/corpus").join(target)).arg("--");
    for (flag, value) in [
        ("max_total_time", seconds),
        ("timeout", MAX_SECONDS_PER_INPUT),
        ("rss_limit_mb", MAX_MEGABYTES),
        // Parts of a node live as long as the program.
        ("detect_leaks", 0),
        ("print_final_stats", 1),
    ] {
        fuzz.arg(format!("-{flag}={value}"));
    }
    // libFuzzer's instrumentation is unstable. The pinned compiler has it, and no other compiler is needed.
    run_to_end(fuzz.env("RUSTC_BOOTSTRAP", "1"))
}

/// The names of all targets.
fn targets(fuzz: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(fuzz.join("targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The texts of all properties, which replay the corpus.
    fn properties(folder: &Path) -> String {
        let mut texts = String::new();
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                texts += &properties(&path);
            } else if path.to_str().is_some_and(|path| path.contains("fuzzing") && path.ends_with(".rs")) {
                texts += &fs::read_to_string(path).unwrap();
            }
        }
        texts
    }

    #[test]
    fn every_target_is_built_described_and_replayed() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let fuzz = root.join("fuzz");
        let read = |name: &str| fs::read_to_string(fuzz.join(name)).unwrap();
        let (table, described, replayed) = (read("Cargo.toml"), read("README.md"), properties(&root.join("crates")));
        let targets = targets(&fuzz).unwrap();
        for target in &targets {
            let line = format!(r#"{{ name = "{target}", path = "targets/{target}.rs" }}"#);
            assert!(table.contains(&line), "fuzz/Cargo.toml: {line}");
            assert!(described.contains(&format!("| `{target}` |")), "fuzz/README.md: {target}");
            assert!(replayed.contains(&format!(r#"replay("{target}","#)), "no test replays {target}");
        }
        let corpus = fs::read_dir(fuzz.join("corpus")).unwrap();
        let mut folders: Vec<_> = corpus.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        folders.sort();
        assert_eq!(folders, targets, "each target has a corpus");
    }
}
