//! The relay as clients meet it: the real binary in a process of its own, over loopback.
//!
//! What a server costs is its own CPU time per operation. Throughput and latency are measured too, but they depend on
//! what the clients leave of the machine, so the clients do as little as they can: messages are made beforehand and
//! what comes back is looked at, not parsed.
//!
//! # Layout
//!
//! - [`node`]: the process that is measured. [`client`]: a WebSocket client of little cost. [`events`]: signed events.
//! - [`ingest`], [`requests`], [`live`], [`idle`]: one measurement each. [`table`]: what they found.

pub(crate) mod client;
pub(crate) mod events;
mod idle;
mod ingest;
mod live;
pub(crate) mod node;
mod requests;
mod table;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::{say, timing::millis, yardstick};
use node::{Binary, Node};
use table::Table;

/// A measurement that takes longer than this will not end.
const PATIENCE: Duration = Duration::from_secs(300);

/// What `cargo xtask bench relay` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [Part::Ingest, Part::Req, Part::Live, Part::Idle])]
    part: Vec<Part>,
    /// Events that are sent to measure ingest, and that stand in the store to be asked for.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
    /// Requests of each shape.
    #[arg(long, default_value_t = 2_000)]
    requests: usize,
    /// Live subscribers.
    #[arg(long, default_value_t = 200)]
    subscribers: usize,
    /// Events they are sent.
    #[arg(long, default_value_t = 2_000)]
    live_events: usize,
    /// How many of those per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Idle connections.
    #[arg(long, default_value_t = 5_000)]
    connections: usize,
    /// The binary; the one beside this program by default.
    #[arg(long)]
    node: Option<PathBuf>,
    /// Where stores are made; a temporary directory under target/ by default.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Events in: many in flight, and one at a time.
    Ingest,
    /// Stored events out.
    Req,
    /// Live events out.
    Live,
    /// What a connection costs that says nothing.
    Idle,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ingest => "ingest",
            Self::Req => "req",
            Self::Live => "live",
            Self::Idle => "idle",
        })
    }
}

/// What every measurement needs.
struct Bench {
    options: Options,
    binary: Binary,
    /// Where nodes keep their data.
    dir: PathBuf,
    sync: Duration,
    table: Table,
}

impl Bench {
    /// A node with nothing in it.
    fn node(&self, name: &str) -> anyhow::Result<Node> {
        self.binary.start(&self.dir.join(name))
    }
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let parent = options.dir.clone().unwrap_or_else(|| PathBuf::from("target/bench"));
    std::fs::create_dir_all(&parent)?;
    let dir = tempfile::tempdir_in(&parent).with_context(|| format!("{}", parent.display()))?;
    let binary = Binary::find(options.node.clone())?;

    let verifications = yardstick::verifications_per_second()?;
    let sync = yardstick::sync_time(dir.path())?;
    let table = Table::new(verifications, sync);
    say(format_args!(
        "yardsticks: one core verifies {verifications:.0} events/s ({:.0} µs each), fdatasync p50 {:.2} ms",
        1e6 / verifications,
        millis(sync)
    ));
    say(format_args!("server CPU is the user and system time of the node's process; clients share the machine\n"));

    table.header();
    let mut bench = Bench { options, binary, dir: dir.path().to_owned(), sync, table };
    for part in bench.options.part.clone() {
        let measured = match part {
            Part::Ingest => tokio::time::timeout(PATIENCE, ingest::measure(&mut bench)).await,
            Part::Req => tokio::time::timeout(PATIENCE, requests::measure(&mut bench)).await,
            Part::Live => tokio::time::timeout(PATIENCE, live::measure(&mut bench)).await,
            Part::Idle => tokio::time::timeout(PATIENCE, idle::measure(&mut bench)).await,
        };
        measured.with_context(|| format!("{part} did not end in {PATIENCE:?}"))?.with_context(|| format!("{part}"))?;
    }
    let file = PathBuf::from("target/bench/relay.json");
    bench.table.write(&file).with_context(|| format!("{}", file.display()))?;
    say(format_args!("\nalso in {}", file.display()));
    Ok(())
}
