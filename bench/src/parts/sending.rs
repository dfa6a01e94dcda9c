//! Publishing: many connections with many events in flight each, or fewer.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use kukuri_testing::Connection;

use super::Begun;
use crate::{
    corpus::{Corpus, Fact, Made},
    relay::{message::Message, process::Running},
    report::Operation,
    timing::Timings,
};

/// Events that are made and sent at a time, so that a large corpus need not be in memory.
const CHUNK: u64 = 10_000;

/// How many connections, and how many events in flight on each.
#[derive(Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
}

impl Flow {
    pub(crate) const USUAL: Self = Self { connections: 8, in_flight: 64 };
    pub(crate) const ALONE: Self = Self { connections: 1, in_flight: 1 };
}

/// The events that a relay was filled with.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) facts: Vec<Fact>,
    pub(crate) json_bytes: u64,
}

/// Fills a relay. Returns how the last of it fared.
pub(crate) async fn load(
    running: &Running,
    corpus: &Corpus,
    range: Range<u64>,
    loaded: &mut Loaded,
) -> anyhow::Result<Option<Operation>> {
    let mut last = None;
    for first in range.clone().step_by(CHUNK as usize) {
        let events = Arc::new(corpus.made(first..range.end.min(first + CHUNK))?);
        let begun = Begun::now(running)?;
        let latency = send(running.address, &events, Flow::USUAL).await?;
        last = Some(begun.done(running, events.len(), latency)?);
        loaded.facts.extend(events.iter().map(|made| made.fact.clone()));
        loaded.json_bytes += events.iter().map(|made| made.json as u64).sum::<u64>();
    }
    Ok(last)
}

/// Publishes all events, each connection its share, and returns how long each answer took.
pub(crate) async fn send(address: SocketAddr, events: &Arc<Vec<Made>>, flow: Flow) -> anyhow::Result<Timings> {
    let mut clients = Vec::new();
    for first in 0..flow.connections {
        clients.push((first, Connection::open(address).await?));
    }
    let mut working = Vec::new();
    for (first, client) in clients {
        let events = Arc::clone(events);
        working.push(tokio::spawn(async move {
            let mine = events.iter().skip(first).step_by(flow.connections);
            publish(client, mine, flow.in_flight).await
        }));
    }
    let mut all = Timings::default();
    for work in working {
        all.merge(work.await??);
    }
    Ok(all)
}

async fn publish<'a>(
    mut client: Connection,
    mut events: impl Iterator<Item = &'a Made>,
    in_flight: usize,
) -> anyhow::Result<Timings> {
    let mut latency = Timings::default();
    let mut waiting: VecDeque<(&Made, Instant)> = VecDeque::new();
    let mut frames = Vec::new();
    loop {
        // All that may be in flight is sent at once, as a client with a backlog does.
        frames.clear();
        let now = Instant::now();
        while waiting.len() < in_flight {
            let Some(event) = events.next() else { break };
            frames.extend_from_slice(&event.frame);
            waiting.push_back((event, now));
        }
        if waiting.is_empty() {
            return Ok(latency);
        }
        client.send(&frames).await?;
        client.receiver.fill().await?;
        let now = Instant::now();
        while let Some(place) = client.receiver.next_buffered()? {
            if let Some(took) = answered(client.receiver.text(&place), &mut waiting, now)? {
                latency.push(took);
            }
        }
    }
}

/// How long the event waited that this message answers, if it does. It must be taken in, unless a newer version may be known.
fn answered(text: &[u8], waiting: &mut VecDeque<(&Made, Instant)>, now: Instant) -> anyhow::Result<Option<Duration>> {
    let Message::Ok { id, is_accepted } = Message::read(text) else { return Ok(None) };
    // Answers usually come in order, but need not.
    let index = waiting.iter().position(|(made, _)| made.hex.as_bytes() == id);
    let (made, sent) = index.and_then(|index| waiting.remove(index)).context("an answer to nothing")?;
    if !is_accepted && !made.fact.has_versions() {
        bail!("an event is refused: {}", String::from_utf8_lossy(text));
    }
    Ok(Some(now - sent))
}
