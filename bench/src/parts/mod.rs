//! The measurements of a relay: one file per part of the report.
//!
//! The cost of an operation is the CPU time of the server's processes. Throughput and latency are measured too, but they
//! depend on the share of the machine that the clients leave, so the clients do little: messages are made beforehand, and
//! answers are scanned, not parsed. Background work of a relay is waited for before the next measurement, and reported
//! beside the cost of the answers.
//!
//! - [`ingest`], [`durability`], [`live`], [`idle`], [`growth`]: each on a relay with nothing in it.
//! - [`loaded`]: on a filled relay: [`requests`], disk, restart, [`mixed`].
//! - [`sending`]: publishing and loading, which all of them need.

mod durability;
mod growth;
mod idle;
mod ingest;
mod live;
mod loaded;
mod mixed;
mod requests;
pub(crate) mod sending;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;

use crate::{
    corpus::Corpus,
    options::{Options, Part},
    relay::{Relay, process::Running},
    report::{Operation, Place, Report},
    timing::Timings,
};

/// The state of a run.
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) corpus: Corpus,
    /// Where relays keep their data.
    pub(crate) dir: PathBuf,
    pub(crate) report: Report,
}

/// Measures everything that was asked for of a relay. One that fails in a part may do well in the next.
pub(crate) async fn measure(bench: &mut Bench, relay: &Relay) {
    for part in [Part::Ingest, Part::Req, Part::Live, Part::Idle, Part::Growth] {
        let is_wanted =
            bench.options.has(part) || (part == Part::Req && loaded::PARTS.iter().any(|part| bench.options.has(*part)));
        if !is_wanted {
            continue;
        }
        let measured = match part {
            Part::Ingest => ingest::measure(bench, relay).await,
            Part::Live => bench.within_timeout(live::measure, relay).await,
            Part::Idle => bench.within_timeout(idle::measure, relay).await,
            Part::Growth => growth::measure(bench, relay).await,
            _ => loaded::measure(bench, relay).await,
        };
        let Err(error) = measured else { continue };
        let those = if part == Part::Req { &loaded::PARTS[..] } else { &[part] };
        for part in those.iter().copied().filter(|part| bench.options.has(*part)).collect::<Vec<_>>() {
            bench.failed(part, relay, &error);
        }
    }
}

impl Bench {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.options.timeout)
    }

    /// A place for a relay's data that was not used before.
    fn place(&self, relay: &Relay, name: &str) -> PathBuf {
        let safe = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        self.dir.join(relay.name.chars().map(safe).collect::<String>()).join(name)
    }

    /// A relay with nothing in it.
    async fn fresh(&mut self, relay: &Relay, name: &str) -> anyhow::Result<Running> {
        let dir = self.place(relay, name);
        // A measurement that failed may have left its data here.
        clear(&dir);
        let running = relay.start(&dir, self.timeout()).await?;
        if let Some((_, about)) = self.report.relays.iter_mut().find(|(name, _)| *name == relay.name)
            && about.is_empty()
        {
            *about = running.about().unwrap_or_else(|| "unknown software".to_owned());
        }
        Ok(running)
    }

    /// Runs a measurement, but not for ever.
    async fn within_timeout(
        &mut self,
        measure: impl AsyncFnOnce(&mut Self, &Relay) -> anyhow::Result<()>,
        relay: &Relay,
    ) -> anyhow::Result<()> {
        let timeout = self.timeout();
        tokio::time::timeout(timeout, measure(self, relay)).await.unwrap_or_else(|_| Err(gave_up(timeout)))
    }

    fn failed(&mut self, part: Part, relay: &Relay, error: &anyhow::Error) {
        self.report.failure(part.name(), &relay.name, error);
        if relay.is_ours {
            self.report.fault(format!("{}: {error:#}", part.name()));
        }
    }
}

fn gave_up(timeout: Duration) -> anyhow::Error {
    anyhow::anyhow!("gave up after {} s", timeout.as_secs())
}

/// Ends a relay and removes its data.
fn remove(running: Running) {
    let dir: PathBuf = running.dir.clone();
    drop(running);
    clear(&dir);
}

fn clear(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}

fn place<'p>(part: &'static str, relay: &'p Relay, row: &'p str) -> Place<'p> {
    Place { part, of: &relay.name, row }
}

/// CPU time of a server and the time, when a measurement began.
struct Begun {
    cpu: Duration,
    at: Instant,
}

impl Begun {
    fn now(running: &Running) -> anyhow::Result<Self> {
        Ok(Self { cpu: running.cpu()?, at: Instant::now() })
    }

    fn cpu_since(&self, running: &Running) -> anyhow::Result<Duration> {
        Ok(running.cpu().context("its CPU time")?.saturating_sub(self.cpu))
    }

    /// The whole of it.
    fn done(&self, running: &Running, count: usize, latency: Timings) -> anyhow::Result<Operation> {
        let (took, cpu) = (self.at.elapsed(), self.cpu_since(running)?);
        Ok(Operation { count, took, cpu, latency, memory: running.memory()? })
    }
}
