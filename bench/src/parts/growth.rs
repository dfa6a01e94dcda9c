//! Whether cost grows with the store: the last events before each size, and the mix of requests at it.

use anyhow::Context;

use super::{
    Bench,
    req::{Exam, Loaded},
    within,
};
use crate::{
    relay::{Relay, RelayProcess},
    report::number,
};

/// The most events that other relays are grown to.
const MAX_PEER_SIZE: u64 = 100_000;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let max = if relay.is_ours { u64::MAX } else { MAX_PEER_SIZE };
    let process = bench.start(relay).await?;
    let (mut loaded, mut costs) = (Loaded::default(), Vec::new());
    for size in bench.options.sizes.clone().into_iter().filter(|size| *size <= max) {
        let step = within(bench.timeout(), step(bench, &process, &mut loaded, size)).await;
        costs.push(step.with_context(|| format!("at {} events", number(size as f64)))?);
    }
    if let [first, .., last] = costs[..] {
        bench.report.number("in all", "ingest CPU", "times", last.0 / first.0);
        bench.report.number("in all", "query CPU", "times", last.1 / first.1);
    }
    Ok(())
}

/// Returns the CPU time of an event and of a request.
async fn step(bench: &mut Bench, process: &RelayProcess, loaded: &mut Loaded, size: u64) -> anyhow::Result<(f64, f64)> {
    let row = |what: &str| format!("{} events, {what}", number(size as f64));
    let last = loaded.load(process, &bench.corpus, loaded.facts.len() as u64..size).await?;
    let last = last.context("sizes must ascend")?;
    let event_cpu = last.cpu_each();
    bench.report.measurement(&row("ingest"), last);
    process.wait_until_idle().await?;
    let exam = Exam::new(&bench.corpus, &loaded.facts);
    exam.check(bench, &row("answers"), process).await?;
    let mix = exam.measure(bench, process, |_| true).await?;
    let request_cpu = mix.cpu_each();
    bench.report.measurement(&row("requests"), mix);
    Ok((event_cpu, request_cpu))
}
