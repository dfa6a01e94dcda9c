//! Events in: many connections with many events in flight each, and one connection with one at a time. Whether an OK means
//! that the event is on the disk is observed in a trace of system calls.

use anyhow::{Context, ensure};

use super::{Bench, Stopwatch, within};
use crate::{
    client::{Pace, publish_all},
    relay::Relay,
    trace,
};

/// Connections, and events in flight on each.
const FLOWS: [(usize, usize); 3] = [(8, 64), (8, 512), (1, 1)];
/// Events that are sent one at a time: each waits for the disk.
const MAX_ALONE: u64 = 1_000;
/// The first events open their topics, which may cost a commit each: all topics are in them.
const WARM_UP: u64 = 100;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let limit = bench.timeout();
    if let Err(error) = within(limit, durability(bench, relay)).await {
        bench.report.failure("durability", &format!("{error:#}"));
    }
    for (connections, in_flight) in FLOWS {
        within(limit, flow(bench, relay, connections, in_flight)).await?;
    }
    Ok(())
}

async fn flow(bench: &mut Bench, relay: &Relay, connections: usize, in_flight: usize) -> anyhow::Result<()> {
    let process = bench.start(relay).await?;
    publish_all(process.address, &bench.corpus.signed(0..WARM_UP), 1, Pace::InFlight(1)).await?;
    let is_alone = connections * in_flight == 1;
    let count = if is_alone { bench.options.events.min(MAX_ALONE) } else { bench.options.events };
    let events = bench.corpus.signed(WARM_UP..WARM_UP + count);

    let watch = Stopwatch::start(&process)?;
    let timings = publish_all(process.address, &events, connections, Pace::InFlight(in_flight)).await?;
    let mut measured = watch.stop(timings)?;
    let (throughput, p50) = (measured.throughput(), measured.timings.percentile(50));
    let row = &format!("{connections} x {in_flight} in flight");
    bench.report.measurement(row, measured);
    process.wait_until_idle().await?;
    let with_background = watch.cpu()?.as_secs_f64() * 1e6 / count.max(1) as f64;
    bench.report.number(row, "CPU each with all that follows", "µs", with_background);
    let yardsticks = bench.report.yardsticks;
    bench.report.number(row, "p50 / fdatasync", "", p50 / yardsticks.fdatasync_p50_ms);
    if !is_alone {
        bench.report.number(row, "/ one core verifies", "", throughput / yardsticks.verifications_per_second);
    }
    Ok(())
}

async fn durability(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let log = bench.dir.join("trace");
    let process = bench.start(&relay.traced(&log)).await.context("under strace")?;
    publish_all(process.address, &bench.corpus.signed(0..2 * WARM_UP), 1, Pace::InFlight(1)).await?;
    drop(process);
    let seen = trace::judge(&String::from_utf8_lossy(&std::fs::read(&log)?));
    ensure!(seen.acknowledged > 0, "the trace shows no event and no OK");
    let acknowledged = seen.acknowledged as f64;
    bench.report.number("durability", "synced before OK", "%", seen.synced as f64 / acknowledged * 100.0);
    bench.report.number("durability", "syncs per event", "", seen.syncs as f64 / acknowledged);
    Ok(())
}
