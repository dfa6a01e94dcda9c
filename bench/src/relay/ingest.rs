//! Events in: many connections with many events in flight each, and one connection with one at a time.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::io::AsyncWriteExt;

use super::{
    Bench,
    client::{Client, accepted},
    events::{self, Made},
    table::Figures,
};
use crate::timing::{Timings, millis};

const CONNECTIONS: usize = 8;
const IN_FLIGHT: usize = 64;
/// Each of these waits for the disk alone.
const ALONE: usize = 1_000;
/// Verification included, which is about a third of it.
const TARGET: f64 = 130.0;

pub(crate) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let node = bench.node("ingest")?;
    // The first events open their topics, which costs a commit each.
    let first = Arc::new(events::make("first", 64, events::TOPICS)?);
    send(node.address, first, 1, 1).await?;

    let events = Arc::new(events::make("many", bench.options.events, events::TOPICS)?);
    let (cpu, start) = (node.cpu()?, Instant::now());
    let latency = send(node.address, Arc::clone(&events), CONNECTIONS, IN_FLIGHT).await?;
    let (took, server) = (start.elapsed(), node.cpu()? - cpu);
    bench.table.add(Figures {
        part: "ingest",
        name: &format!("{CONNECTIONS} x {IN_FLIGHT} in flight"),
        unit: "event",
        operations: events.len(),
        took,
        server,
        latency,
        target: Some(TARGET),
    });

    let events = Arc::new(events::make("alone", ALONE.min(bench.options.events), events::TOPICS)?);
    let (cpu, start) = (node.cpu()?, Instant::now());
    let mut latency = send(node.address, Arc::clone(&events), 1, 1).await?;
    let (took, server) = (start.elapsed(), node.cpu()? - cpu);
    let p50 = millis(latency.percentile(50));
    bench.table.add(Figures {
        part: "ingest",
        name: "1 at a time",
        unit: "event",
        operations: events.len(),
        took,
        server,
        latency,
        target: None,
    });
    bench.table.figure("ingest", "1 at a time: p50 against fdatasync", p50 / millis(bench.sync), "x", None);
    memory(bench, &node, "ingest")
}

/// What the node holds after all of it.
pub(crate) fn memory(bench: &mut Bench, node: &super::Node, part: &str) -> anyhow::Result<()> {
    let memory = node.memory()?;
    bench.table.figure(part, "resident memory", memory.resident as f64 / 1e6, "MB", None);
    bench.table.figure(part, "resident memory without the store's file", memory.own as f64 / 1e6, "MB", None);
    Ok(())
}

/// Publishes all events, each connection its share, and returns how long each answer took.
pub(crate) async fn send(
    address: SocketAddr,
    events: Arc<Vec<Made>>,
    connections: usize,
    in_flight: usize,
) -> anyhow::Result<Timings> {
    let mut clients = Vec::new();
    for first in 0..connections {
        clients.push((first, Client::connect(address).await?));
    }
    let mut working = Vec::new();
    for (first, client) in clients {
        let events = Arc::clone(&events);
        working.push(tokio::spawn(async move {
            let mine = events.iter().skip(first).step_by(connections);
            publish(client, mine, in_flight).await
        }));
    }
    let mut all = Timings::default();
    for work in working {
        all.merge(work.await??);
    }
    Ok(all)
}

async fn publish<'a>(
    mut client: Client,
    mut events: impl Iterator<Item = &'a Made>,
    in_flight: usize,
) -> anyhow::Result<Timings> {
    let mut latency = Timings::default();
    let mut waiting: VecDeque<(&str, Instant)> = VecDeque::new();
    let mut frames = Vec::new();
    loop {
        // What may be sent is sent at once, as a client does that has a backlog.
        frames.clear();
        let now = Instant::now();
        while waiting.len() < in_flight {
            let Some(event) = events.next() else { break };
            frames.extend_from_slice(&event.frame);
            waiting.push_back((&event.id, now));
        }
        if waiting.is_empty() {
            return Ok(latency);
        }
        client.saying.write_all(&frames).await?;
        client.hearing.fill().await?;
        let now = Instant::now();
        while let Some(place) = client.hearing.next_heard()? {
            latency.push(answered(client.hearing.text(&place), &mut waiting, now)?);
        }
    }
}

/// How long the event waited that this message accepts. Anything else it may say is an error.
fn answered(text: &[u8], waiting: &mut VecDeque<(&str, Instant)>, now: Instant) -> anyhow::Result<Duration> {
    let id = accepted(text)?;
    // Answers usually come in order, but need not.
    let index = waiting.iter().position(|(waiting, _)| waiting.as_bytes() == id);
    let (_, sent) = index.and_then(|index| waiting.remove(index)).context("an answer to nothing")?;
    Ok(now - sent)
}
