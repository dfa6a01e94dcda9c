//! Measures a kukuri node, and other relays beside it. `cargo xtask bench` is the way to run it.
//!
//! # Layout
//!
//! - [`options`]: the command line.
//! - [`corpus`]: made-up events, the same for the same seed. [`oracle`]: the right answers.
//!   [`questions`]: the requests.
//! - [`relay`]: a relay as a process, and its clients. [`parts`]: the measurements.
//! - [`store`] and [`search`]: stores and indexes without a relay.
//! - [`report`]: the figures, as a page and as JSON.
//! - [`yardstick`]: the best that this machine does, measured in the same run. [`timing`]: percentiles.

mod corpus;
mod options;
mod oracle;
mod parts;
mod questions;
mod relay;
mod report;
mod search;
mod store;
mod timing;
mod yardstick;

use std::{
    ffi::OsString,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use clap::Parser;
use tokio::runtime::Builder;

use corpus::Corpus;
use options::{Hidden, Options, Part};
use parts::Bench;
use relay::Relay;
use report::{CorpusAbout, Report, Yardsticks, machine::Machine};
use timing::millis;

/// Runs the benchmark with these arguments, the first of which is the program's name. Fails if our own relay answered wrongly.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let options = match Options::try_parse_from(&arguments) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    // As in a node: on all cores.
    let everywhere = || Builder::new_multi_thread().enable_all().build();
    if let Some(Hidden::StoreWriter(options)) = options.hidden {
        return everywhere()?.block_on(store::writers::run(options));
    }
    let relays = relays(&options)?;
    std::fs::create_dir_all(&options.dir)?;
    let dir = tempfile::tempdir_in(&options.dir).with_context(|| options.dir.display().to_string())?;
    let out = options.out.clone();
    let mut bench = prepare(options, dir.path().canonicalize()?, &arguments)?;
    // Clients have one core at most.
    let clients = Builder::new_current_thread().enable_all().build()?;
    if PARTS_OF_RELAYS.iter().any(|part| bench.options.has(*part)) {
        bench.report.relays = relays.iter().map(|relay| (relay.name.clone(), String::new())).collect();
        let rounds = if bench.options.compares_builds() { bench.options.rounds } else { 1 };
        for round in 0..rounds {
            for relay in &relays {
                clients.block_on(parts::measure(&mut bench, relay));
                if rounds > 1 {
                    say(format_args!("round {} of {rounds}: {} is done\n", round + 1, relay.name));
                }
                // The report is complete so far even if the next relay takes the machine down.
                bench.report.write(&out)?;
            }
        }
    }
    for part in [Part::Store, Part::Search] {
        if bench.options.has(part) {
            let measured = match part {
                Part::Store => everywhere()?.block_on(store::measure(&mut bench)),
                _ => everywhere()?.block_on(search::measure(&mut bench)),
            };
            if let Err(error) = measured {
                bench.report.failure(part.name(), "embedded", &error);
                bench.report.fault(format!("{}: {error:#}", part.name()));
            }
        }
    }
    bench.report.write(&out)?;
    say(format_args!("\n{}", out.join("report.md").display()));
    match bench.report.faults() {
        [] => Ok(()),
        faults => bail!("our own relay did wrong:\n{}", faults.join("\n")),
    }
}

const PARTS_OF_RELAYS: [Part; 8] =
    [Part::Ingest, Part::Req, Part::Disk, Part::Restart, Part::Mixed, Part::Live, Part::Idle, Part::Growth];

/// Ours first, then the others.
fn relays(options: &Options) -> anyhow::Result<Vec<Relay>> {
    let is_wanted =
        |relay: &&Relay| options.only.is_empty() || options.only.iter().any(|name| relay.name.starts_with(name));
    let mut relays = Relay::ours(options)?;
    if !options.compares_builds() {
        relays.extend(options.relays.iter().filter(is_wanted).cloned());
    }
    for (place, relay) in relays.iter().enumerate() {
        anyhow::ensure!(
            relays[..place].iter().all(|other| other.name != relay.name),
            "two relays are called {}",
            relay.name
        );
    }
    Ok(relays)
}

/// Measures the yardsticks and makes ready.
fn prepare(options: Options, dir: std::path::PathBuf, arguments: &[OsString]) -> anyhow::Result<Bench> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let yardsticks =
        Yardsticks { verifications: yardstick::verifications_per_second()?, sync: yardstick::sync_time(&dir)? };
    say(format_args!(
        "yardsticks: one core verifies {:.0} events/s ({:.0} µs each), fdatasync p50 {:.2} ms",
        yardsticks.verifications,
        1e6 / yardsticks.verifications,
        millis(yardsticks.sync)
    ));
    let count = options.most_events();
    let corpus = Corpus::ending(options.seed, count, now)?;
    let about = CorpusAbout { seed: options.seed, count, fingerprint: corpus.fingerprint(count)? };
    say(format_args!("corpus: seed {}, {count} events, fingerprint {}\n", about.seed, about.fingerprint));
    let told = arguments.iter().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    let command = std::iter::once("cargo xtask bench".to_owned()).chain(told).collect::<Vec<_>>().join(" ");
    let report = Report::new(Machine::this(now), yardsticks, about, command);
    Ok(Bench { options, corpus, dir, report })
}

/// An argument as a shell needs it.
fn quoted(argument: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:".contains(letter);
    if argument.chars().all(is_plain) { argument.to_owned() } else { format!("'{}'", argument.replace('\'', r"'\''")) }
}

#[allow(clippy::print_stdout, reason = "a benchmark's figures go to its standard output")]
fn say(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}
