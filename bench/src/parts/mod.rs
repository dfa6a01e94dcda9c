//! The measurements: one file per part of the report.
//!
//! The cost of an operation is the CPU time of the server's processes. Throughput and latency are measured too, but they
//! depend on the share of the machine that the clients leave. Background work of a relay is waited for before the next
//! measurement, and reported beside the cost of the answers.
//!
//! - [`ingest`], [`live`], [`idle`]: each on an empty relay. [`req`], [`growth`]: on a filled one.
//! - [`postgres`]: our relay on Postgres, near and far. [`store`], [`search`]: stores and indexes without a relay.
//! - [`people`]: accounts, and the policies that ask for them.

mod growth;
mod idle;
mod ingest;
mod live;
mod people;
mod postgres;
mod req;
mod search;
mod store;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::anyhow;

use crate::{
    corpus::Corpus,
    options::{Options, Part},
    relay::{Relay, RelayProcess},
    report::{Measurement, Report, Subject},
    timings::Timings,
};

/// The state of a run.
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) corpus: Corpus,
    /// Where relays, stores and indexes keep their data.
    pub(crate) dir: PathBuf,
    pub(crate) report: Report,
}

/// Measures a part of a relay, or of our own libraries. A relay that fails in a part may do well in the next.
pub(crate) async fn measure(bench: &mut Bench, part: Part, relay: &Relay) {
    bench.report.subject = Subject { part, of: relay.name.clone(), is_ours: relay.is_ours };
    let measured = match part {
        Part::Ingest => ingest::measure(bench, relay).await,
        Part::Req => req::measure(bench, relay).await,
        Part::Live => within(bench.timeout(), live::measure(bench, relay)).await,
        Part::Idle => within(bench.timeout(), idle::measure(bench, relay)).await,
        Part::Growth => growth::measure(bench, relay).await,
        Part::Postgres => postgres::measure(bench, relay).await,
        Part::Store => store::measure(bench).await,
        Part::Search => search::measure(bench, relay).await,
        Part::People => people::measure(bench, relay).await,
    };
    if let Err(error) = measured {
        let reason = format!("{error:#}");
        bench.report.failure("in all", &reason);
        bench.report.fault(format!("{part}: {reason}"));
    }
}

impl Bench {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.options.timeout)
    }

    /// Starts a relay with nothing in it.
    async fn start(&self, relay: &Relay) -> anyhow::Result<RelayProcess> {
        relay.start(&self.dir, self.timeout()).await
    }
}

/// Gives a measurement up after a time.
async fn within<T>(limit: Duration, measure: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let measured = tokio::time::timeout(limit, measure).await;
    measured.unwrap_or_else(|_| Err(anyhow!("gave up after {} s", limit.as_secs())))
}

/// Measures time, and the CPU time of a server.
struct Stopwatch<'p> {
    process: &'p RelayProcess,
    cpu: Duration,
    at: Instant,
}

impl<'p> Stopwatch<'p> {
    fn start(process: &'p RelayProcess) -> anyhow::Result<Self> {
        Ok(Self { process, cpu: process.cpu()?, at: Instant::now() })
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(self.process.cpu()?.saturating_sub(self.cpu))
    }

    fn stop(&self, timings: Timings) -> anyhow::Result<Measurement> {
        Ok(Measurement { took: self.at.elapsed(), cpu: self.cpu()?, timings, memory: self.process.memory() })
    }
}
