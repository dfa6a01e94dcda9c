//! Memory and CPU time of connections that have subscribed and send nothing.

use std::time::Duration;

use futures_util::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Bench, live::subscribe, within};
use crate::relay::Relay;

/// Connections that are made at the same time.
const AT_ONCE: usize = 50;
const OBSERVED: Duration = Duration::from_secs(5);

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let process = bench.start(relay).await?;
    // This process may open as many files as the system allows. Relays have a limit of their own.
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?;
    let subscribe = |count| try_join_all((0..count).map(|_| subscribe(process.address)));
    // The first connections make the relay allocate for itself: they are not counted.
    let _warm_up = subscribe(AT_ONCE).await?;
    let before = process.memory();
    let mut clients = Vec::new();
    while clients.len() < bench.options.connections {
        match within(OBSERVED, subscribe(AT_ONCE.min(bench.options.connections - clients.len()))).await {
            Ok(more) => clients.extend(more),
            Err(error) => {
                bench.report.failure("connections", &format!("after {}: {error:#}", clients.len()));
                break;
            }
        }
    }
    let cpu = process.cpu()?;
    tokio::time::sleep(OBSERVED).await;
    let cpu = process.cpu()?.saturating_sub(cpu).as_secs_f64() / OBSERVED.as_secs_f64() * 1e3;
    let each = process.memory().saturating_sub(before) as f64 / clients.len().max(1) as f64;
    bench.report.number("connections", "connections", "", clients.len() as f64);
    bench.report.number("connections", "memory of each", "kB", each / 1e3);
    bench.report.number("connections", "CPU per second of all", "ms", cpu);
    Ok(())
}
