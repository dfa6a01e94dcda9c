//! Measures a kukuri node. `cargo xtask bench store` is the way to run it.
//!
//! # Layout
//!
//! - [`corpus`]: made-up events, the same for the same seed.
//! - [`store`]: loading and asking a store, at growing sizes.
//! - [`yardstick`]: what this machine can do at best, measured in the same run.
//! - [`timing`]: how long things took.

mod corpus;
mod store;
mod timing;
mod yardstick;

use clap::Parser;

/// Measures a kukuri node. Figures of one run belong together; machines differ, ratios less so.
#[derive(Parser)]
enum Bench {
    /// Loads a store with growing numbers of events and measures ingest, queries and size.
    Store(store::Options),
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    match Bench::parse() {
        Bench::Store(options) => runtime.block_on(store::run(options)),
    }
}
