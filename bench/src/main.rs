//! Measures a kukuri node. `cargo xtask bench store`, `relay` and `search` are the way to run it.
//!
//! # Layout
//!
//! - [`corpus`]: made-up events, the same for the same seed.
//! - [`store`]: loading and asking a store, at growing sizes.
//! - [`relay`]: the real binary, over loopback.
//! - [`search`]: an index by itself, and how soon a node finds what it has accepted.
//! - [`yardstick`]: what this machine can do at best, measured in the same run.
//! - [`timing`]: how long things took.

mod corpus;
mod relay;
mod search;
mod store;
mod timing;
mod yardstick;

use clap::Parser;

/// Measures a kukuri node. Figures of one run belong together; machines differ, ratios less so.
#[derive(Parser)]
enum Bench {
    /// Loads a store with growing numbers of events and measures ingest, queries and size.
    Store(store::Options),
    /// One of several processes that write to a database.
    #[command(hide = true)]
    StoreWriter(store::writers::Options),
    /// Starts the node and measures ingest, requests, live delivery and idle connections as clients meet them.
    Relay(relay::Options),
    /// Fills indexes with growing numbers of posts and asks them; publishes to a node and looks for what it accepts.
    Search(search::Options),
}

fn main() -> anyhow::Result<()> {
    let bench = Bench::parse();
    let mut runtime = match bench {
        Bench::Relay(_) => tokio::runtime::Builder::new_current_thread(),
        // As in a node: on all cores.
        Bench::Store(_) | Bench::StoreWriter(_) | Bench::Search(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().build()?;
    match bench {
        Bench::Store(options) => runtime.block_on(store::run(options)),
        Bench::StoreWriter(options) => runtime.block_on(store::writers::run(options)),
        Bench::Relay(options) => runtime.block_on(relay::run(options)),
        Bench::Search(options) => runtime.block_on(search::run(options)),
    }
}

#[allow(clippy::print_stdout, reason = "a benchmark's figures go to its standard output")]
fn say(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}
