//! Memory and CPU time of connections that have subscribed and send nothing.

use std::time::Duration;

use futures_util::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Bench, live::subscribe, place, remove};
use crate::{relay::Relay, say};

/// Connections that are made at the same time.
const AT_ONCE: usize = 50;
/// Files this process has open besides.
const OTHER_FILES: u64 = 100;
const REST: Duration = Duration::from_secs(5);

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let running = bench.fresh(relay, "idle").await?;
    let wanted = bench.options.load.connections;
    raise_limit(wanted as u64 + OTHER_FILES)?;
    // The first connections make the relay allocate for itself: they are not counted.
    let mut clients = try_join_all((0..AT_ONCE).map(|_| subscribe(running.address))).await?;
    let before = running.memory()?;
    let warm = clients.len();
    let mut stopped = String::new();
    while clients.len() < warm + wanted {
        let next = AT_ONCE.min(warm + wanted - clients.len());
        let more = tokio::time::timeout(REST, try_join_all((0..next).map(|_| subscribe(running.address)))).await;
        match more.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer"))) {
            Ok(more) => clients.extend(more),
            Err(error) => {
                stopped = format!("no more than these: {error:#}; it may open {} files", running.most_files());
                break;
            }
        }
    }
    let count = clients.len() - warm;
    let cpu = running.cpu()?;
    tokio::time::sleep(REST).await;
    let busy = (running.cpu()?.saturating_sub(cpu)).as_secs_f64() / REST.as_secs_f64() * 1e3;
    let after = running.memory()?;
    let each = after.resident.saturating_sub(before.resident) as f64 / count.max(1) as f64;
    let place = place("idle", relay, "connections");
    bench.report.figure(place, "connections", "", count as f64);
    bench.report.figure(place, "memory of each", "kB", each / 1e3);
    bench.report.figure(place, "CPU per second of all", "ms", busy);
    bench.report.memory(place, after);
    bench.report.words(place, "remarks", stopped);
    drop(clients);
    remove(running);
    Ok(())
}

/// Lets this process open as many files as it may, and says so if that is too few. Relays have a limit of their own.
fn raise_limit(wanted: u64) -> anyhow::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < wanted) {
        say(format_args!("idle: this system lets a process open {} files only", maximum.unwrap_or_default()));
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(())
}
