//! Measures a kukuri node, and other relays beside it. `cargo xtask bench` is the way to run it.
//!
//! # Layout
//!
//! - [`options`]: the command line.
//! - [`corpus`]: generated events, the same for the same seed. [`requests`]: what is asked for. [`oracle`]: the right answers.
//! - [`relay`]: a relay as a process. [`client`]: publishing and asking. [`trace`]: whether an OK means durable.
//! - [`parts`]: the measurements, one file per part of the report.
//! - [`attack`]: what clients and peers can do to a node, and to each other.
//! - [`timings`]: percentiles, and the yardsticks of this machine. [`report`]: the figures, as a page and as JSON.

pub mod attack;
mod client;
mod corpus;
mod options;
mod oracle;
mod parts;
mod relay;
mod report;
mod requests;
mod timings;
mod trace;

use std::{
    ffi::OsString,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use tokio::runtime::Builder;

use corpus::Corpus;
use options::{Options, Part};
use parts::Bench;
use relay::Relay;
use report::Report;
use timings::Yardsticks;

/// Runs the benchmark with these arguments, the first of which is the program's name. Fails if our own relay answered wrongly.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let options = Options::try_parse_from(&arguments).unwrap_or_else(|error| error.exit());
    let relays = relays(&options)?;
    std::fs::create_dir_all(&options.dir).with_context(|| options.dir.display().to_string())?;
    let dir = tempfile::tempdir_in(&options.dir)?;

    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let corpus = Corpus::ending(options.seed, options.corpus_size(), now)?;
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy()).collect::<Vec<_>>();
    let command = format!("cargo xtask bench {}", shlex::try_join(words.iter().map(AsRef::as_ref))?);
    let yardsticks = Yardsticks::measure(dir.path())?;
    let report = Report::new(yardsticks, corpus.summary(options.corpus_size()), command);
    let mut bench = Bench { corpus, dir: dir.path().canonicalize()?, report, options };

    // Clients have one core at most. A store runs on all cores, as in a node.
    let clients = Builder::new_current_thread().enable_all().build()?;
    let stores = Builder::new_multi_thread().enable_all().build()?;
    let (of_relays, of_stores): (Vec<Part>, Vec<Part>) =
        bench.options.parts().into_iter().partition(|part| part.is_of_relays());
    for _ in 0..bench.options.rounds() {
        for relay in &relays {
            for part in &of_relays {
                clients.block_on(parts::measure(&mut bench, *part, relay));
            }
            // The report is complete so far even if the next relay takes the machine down.
            bench.report.write(&bench.options.dir)?;
        }
    }
    for part in of_stores {
        stores.block_on(parts::measure(&mut bench, part, &relays[0]));
    }
    bench.report.write(&bench.options.dir)?;
    say(format_args!("\n{}", bench.options.dir.join("report.md").display()));
    match bench.report.faults.as_slice() {
        [] => Ok(()),
        faults => bail!("our own relay did wrong:\n{}", faults.join("\n")),
    }
}

/// Ours first, then the others. A peer that can't be installed is left out.
fn relays(options: &Options) -> anyhow::Result<Vec<Relay>> {
    let mut relays = options.nodes.clone();
    if relays.is_empty() {
        let beside = std::env::current_exe()?.with_file_name("kukuri-node");
        relays.push(Relay::of_build(beside.to_str().context("the path of this program is not UTF-8")?)?);
    }
    relays.extend(options.relays.iter().cloned());
    for name in options.peers() {
        match peer(name) {
            Ok(relay) => relays.push(relay),
            Err(error) => say(format_args!("{name} is left out: {error:#}")),
        }
    }
    for (index, relay) in relays.iter().enumerate() {
        let is_taken = relays[..index].iter().any(|other| other.name == relay.name);
        ensure!(!is_taken, "two relays are called {}", relay.name);
    }
    Ok(relays)
}

/// Installs a peer. The last line that `cargo xtask peer` prints is the relay as `--relay` takes it.
fn peer(name: &str) -> anyhow::Result<Relay> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let installed = Command::new(cargo).args(["xtask", "peer", name]).stderr(Stdio::inherit()).output()?;
    ensure!(installed.status.success(), "its installation ended with {}", installed.status);
    String::from_utf8(installed.stdout)?.lines().last().unwrap_or_default().parse()
}

#[allow(clippy::print_stdout, reason = "a benchmark's figures go to its standard output")]
fn say(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}
