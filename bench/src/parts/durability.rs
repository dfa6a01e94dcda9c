//! Whether an OK means that the event is on the disk: observed, one event in flight.

use std::sync::Arc;

use anyhow::{Context, ensure};

use super::{
    Bench, place, remove,
    sending::{self, Flow},
};
use crate::relay::{Relay, trace};

/// Enough to tell, and not too many for a relay that is traced. All topics are open after as many again.
const EVENTS: u64 = 100;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let dir = bench.place(relay, "durability");
    let log = dir.with_extension("trace");
    let timeout = bench.timeout();
    let running = relay.start_after(&trace::tracer(&log), &dir, timeout).await.context("under strace")?;
    let events = Arc::new(bench.corpus.made(0..2 * EVENTS)?);
    sending::send(running.address, &events, Flow::ALONE).await?;
    remove(running);
    let text = std::fs::read(&log)?;
    let seen = trace::judge(&String::from_utf8_lossy(&text));
    std::fs::remove_file(&log)?;
    ensure!(seen.acknowledged > 0, "the trace shows no event and no OK");
    let share = seen.synced as f64 / seen.acknowledged as f64 * 100.0;
    let words = match (seen.synced, share) {
        (0, _) => "0 % (OK is not durable)".to_owned(),
        (_, share) => format!("{share:.0} %"),
    };
    let place = place("ingest", relay, "durability");
    bench.report.words(place, "synced before OK", words);
    bench.report.figure(place, "syncs per event", "", seen.syncs as f64 / seen.acknowledged as f64);
    bench.report.figure(place, "events traced", "", seen.acknowledged as f64);
    Ok(())
}
