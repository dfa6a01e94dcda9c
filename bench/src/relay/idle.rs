//! What a connection costs that has subscribed and says nothing.

use std::time::Duration;

use futures_util::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Bench, live::subscribe};
use crate::say;

/// Bytes of resident memory per connection.
const TARGET: f64 = 25_000.0;
/// Connections that are made at the same time.
const AT_ONCE: usize = 50;
/// Files this process has open besides.
const OTHER_FILES: u64 = 100;
const REST: Duration = Duration::from_secs(5);

pub(crate) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    // Started before our own limit is raised, so that it has the limit it would have anywhere.
    let node = bench.node("idle")?;
    let wanted = bench.options.connections;
    raise_limit(wanted as u64 + OTHER_FILES)?;
    // What the first ones bring about is not counted.
    let mut clients = try_join_all((0..AT_ONCE).map(|_| subscribe(&node))).await?;
    let before = node.memory()?;
    let warm = clients.len();
    while clients.len() < warm + wanted {
        let next = AT_ONCE.min(warm + wanted - clients.len());
        let more = tokio::time::timeout(REST, try_join_all((0..next).map(|_| subscribe(&node)))).await;
        match more.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer"))) {
            Ok(more) => clients.extend(more),
            Err(error) => {
                say(format_args!(
                    "idle: stopped after {} of {wanted} connections: {error:#}; the node may open {} files",
                    clients.len() - warm,
                    node.most_files()?
                ));
                break;
            }
        }
    }
    let count = clients.len() - warm;
    let cpu = node.cpu()?;
    tokio::time::sleep(REST).await;
    let busy = (node.cpu()? - cpu).as_secs_f64() / REST.as_secs_f64() * 100.0;
    let after = node.memory()?;
    let each = (after.resident - before.resident) as f64 / count.max(1) as f64;
    bench.table.figure("idle", &format!("{count} connections: memory of each"), each / 1e3, "kB", Some(TARGET / 1e3));
    bench.table.figure("idle", "all of them: resident memory", after.resident as f64 / 1e6, "MB", None);
    bench.table.figure("idle", "all of them: server CPU, of one core", busy, "%", None);
    Ok(())
}

/// Lets this process open as many files as it may, and says so if that is too few.
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
