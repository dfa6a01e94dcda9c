//! A relay made of nostr-relay-builder and nostr-lmdb: `relay-builder port directory`.

use std::{env, future};

use anyhow::Context;
use nostr_lmdb::NostrLMDB;
use nostr_relay_builder::{LocalRelay, RelayBuilder, builder::RateLimit};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let port = arguments.next().context("a port")?.parse()?;
    let directory = arguments.next().context("a directory")?;
    // Connections are not limited by default. What one may have open and ask for is as in our node.
    let builder = RelayBuilder::default()
        .port(port)
        .database(NostrLMDB::open(directory)?)
        .rate_limit(RateLimit { max_reqs: 64, notes_per_minute: u32::MAX })
        .max_filter_limit(500);
    let relay = LocalRelay::new(builder);
    relay.run().await?;
    future::pending().await
}
