//! Events in: many connections with many events in flight each, and one connection with one at a time.

use std::sync::Arc;

use super::{
    Begun, Bench, durability, gave_up, place, remove,
    sending::{self, Flow},
};
use crate::{
    relay::Relay,
    timing::{micros, millis},
    yardstick,
};

const FLOWS: [Flow; 3] = [Flow::USUAL, Flow { connections: 8, in_flight: 512 }, Flow::ALONE];
/// Each of these waits for the disk alone.
const ALONE: u64 = 1_000;
/// The first events open their topics, which may cost a commit each: all topics are in them.
const FIRST: u64 = 100;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let observed = bench.patiently(durability::measure, relay).await;
    if let Err(error) = observed {
        bench.report.words(
            place("ingest", relay, "durability"),
            "synced before OK",
            format!("not observed: {error:#}"),
        );
    }
    for flow in FLOWS {
        let patience = bench.patience();
        tokio::time::timeout(patience, one(bench, relay, flow)).await.unwrap_or_else(|_| Err(gave_up(patience)))?;
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
    // As near to it in time as can be: the disk may have other guests.
    let before = if is_alone { Some(yardstick::sync_time(&bench.dir)?) } else { None };
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
    match before {
        Some(before) => {
            let sync = (before + yardstick::sync_time(&bench.dir)?) / 2;
            bench.report.figure(place, "fdatasync p50", "ms", millis(sync));
            bench.report.figure(place, "p50 / fdatasync", "", millis(p50) / millis(sync));
        }
        None => {
            let ratio = per_second / bench.report.yardsticks.verifications;
            bench.report.figure(place, "/ one core verifies", "", ratio);
        }
    }
    remove(running);
    Ok(())
}
