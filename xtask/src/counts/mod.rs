//! `cargo xtask counts`: what the hot path costs, as instructions. They are the same on a busy machine, so that a change
//! that makes something dearer is seen at once; how long things take is `cargo xtask bench`'s business.
//!
//! `bench/counts` has the operations, [`callgrind`] counts them, [`kept`] compares with what they cost before.

mod callgrind;
mod kept;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};

use crate::{
    command::{cargo_command, run as run_to_end},
    tools,
};
use callgrind::Callgrind;
use kept::{Compared, Counts};

/// Both are in the repository, seen from its root.
const FILE: &str = "bench/counts/kept.txt";
const PROFILE: &str = "bench/counts/profile.toml";

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Keeps what is counted now, as what the next runs are compared with.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "what is kept was counted on x86-64, and other machines count otherwise");
    tools::ensure("valgrind", "valgrind")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the repository")?;
    let file = root.join(FILE);
    let counts = count_all(root)?;
    if options.keep {
        fs::write(&file, counts.write())?;
        say(&counts.write());
        return Ok(());
    }
    let kept = Counts::read(&fs::read_to_string(&file).with_context(|| format!("{FILE} can't be read"))?)?;
    let compared = Compared::new(&counts, &kept);
    say(&compared.table());
    let remarks = compared.remarks();
    remarks.iter().for_each(|remark| say(remark));
    if !remarks.is_empty() {
        say(&format!("If that is meant: cargo xtask counts --keep, and commit {FILE}."));
    }
    if compared.fails() {
        bail!("the hot path does not cost what {FILE} says");
    }
    Ok(())
}

fn count_all(root: &Path) -> anyhow::Result<Counts> {
    let program = build(root)?;
    let directory = env::temp_dir().join(format!("kukuri-counts-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let counts = count_with(&program, &directory);
    fs::remove_dir_all(&directory)?;
    counts
}

/// With the features that tests are built with, so that their dependencies serve here too.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let mut build = cargo_command();
    build.args(["build", "--quiet", "--workspace", "--all-features", "--example", "counts", "--config"]);
    run_to_end(build.arg(root.join(PROFILE)))?;
    // It lies where this program does.
    let directory = env::current_exe()?.parent().context("a program is in a directory")?.to_owned();
    Ok(directory.join("examples/counts"))
}

fn count_with(program: &Path, directory: &Path) -> anyhow::Result<Counts> {
    let store = directory.join("store");
    output(Command::new(program).arg("fill").arg(&store))?;
    let callgrind = Callgrind::new(program, directory);
    let mut counts = Counts::default();
    for name in output(Command::new(program).arg("list"))?.lines() {
        let instructions = callgrind.count(["run".as_ref(), name.as_ref(), store.as_os_str()]);
        counts.add(name, instructions.with_context(|| format!("{name} can't be counted"))?);
    }
    Ok(counts)
}

/// What a program says. Its errors are shown as they come.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("{program} could not be started"))?;
    ensure!(output.status.success(), "{program} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[allow(clippy::print_stdout, reason = "figures are read on the terminal")]
fn say(text: &str) {
    println!("{text}");
}
