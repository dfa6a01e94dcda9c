//! Events in: many connections with many events in flight each, and one connection with one at a time.

use std::sync::Arc;

use super::{
    Begun, Bench, durability, gave_up, place, remove,
    sending::{self, Flow},
};
use crate::{
    relay::Relay,
    report::Yardsticks,
    timing::{micros, millis},
};

const FLOWS: [Flow; 3] = [Flow::USUAL, Flow { connections: 8, in_flight: 512 }, Flow::ALONE];
/// Each of these waits for the disk alone.
const ALONE: u64 = 1_000;
/// The first events open their topics, which may cost a commit each: all topics are in them.
const FIRST: u64 = 100;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let observed = bench.within_timeout(durability::measure, relay).await;
    if let Err(error) = observed {
        bench.report.words(
            place("ingest", relay, "durability"),
            "synced before OK",
            format!("not observed: {error:#}"),
        );
    }
    for flow in FLOWS {
        let timeout = bench.timeout();
        tokio::time::timeout(timeout, one(bench, relay, flow)).await.unwrap_or_else(|_| Err(gave_up(timeout)))?;
    }
    Ok(())
}

async fn one(bench: &mut Bench, relay: &Relay, flow: Flow) -> anyhow::Result<()> {
    let row = format!("{} x {} in flight", flow.connections, flow.in_flight);
    let running = bench.fresh(relay, &format!("ingest-{}", flow.in_flight)).await?;
    let first = Arc::new(bench.corpus.made(0..FIRST)?);
    sending::send(running.address, &first, Flow::ALONE).await?;

    let is_alone = flow.in_flight == 1;
    let count = if is_alone { bench.options.events.min(ALONE) } else { bench.options.events };
    let events = Arc::new(bench.corpus.made(FIRST..FIRST + count)?);
    let begun = Begun::now(&running)?;
    let mut latency = sending::send(running.address, &events, flow).await?;
    let p50 = latency.percentile(50);
    let operation = begun.done(&running, events.len(), latency)?;
    let per_second = operation.count as f64 / operation.took.as_secs_f64();
    let place = place("ingest", relay, &row);
    bench.report.operation(place, "event", operation);
    running.rest().await?;
    let whole = begun.cpu_since(&running)? / events.len().max(1) as u32;
    bench.report.figure(place, "CPU per event with all that follows", "µs", micros(whole));
    let Yardsticks { verifications, sync } = bench.report.yardsticks;
    if is_alone {
        bench.report.figure(place, "p50 / fdatasync", "", millis(p50) / millis(sync));
    } else {
        bench.report.figure(place, "/ one core verifies", "", per_second / verifications);
    }
    remove(running);
    Ok(())
}
