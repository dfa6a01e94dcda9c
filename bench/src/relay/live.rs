//! Live events out: many subscribers of one topic, each of which must receive every event once.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tokio::{io::AsyncWriteExt, task::JoinHandle};

use super::{
    Bench, Node,
    client::{Client, Hearing, accepted, frame},
    events::{self, Made},
    ingest,
    table::Figures,
};
use crate::timing::{Timings, micros, millis};

/// Server CPU per delivery, in microseconds.
const TARGET: f64 = 6.0;

/// The events of one run and when each was sent.
struct Sent {
    events: Vec<Made>,
    by_id: HashMap<Vec<u8>, usize>,
    start: Instant,
    at: Vec<AtomicU64>,
}

impl Sent {
    fn new(series: &str, count: usize) -> anyhow::Result<Arc<Self>> {
        let events = events::make(series, count, 1)?;
        let by_id = events.iter().enumerate().map(|(n, event)| (event.id.clone().into_bytes(), n)).collect();
        let at = (0..count).map(|_| AtomicU64::new(0)).collect();
        Ok(Arc::new(Self { events, by_id, start: Instant::now(), at }))
    }

    fn elapsed(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

pub(crate) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let (count, rate, subscribers) = (bench.options.live_events, bench.options.rate, bench.options.subscribers);
    let node = bench.node("live")?;
    ingest::send(node.address, Arc::new(events::make("first", 64, 1)?), 1, 1).await?;

    let unheard = Sent::new("unheard", count)?;
    let cpu = node.cpu()?;
    let mut answers = publish(&node, &unheard, rate).await?;
    let alone = node.cpu()? - cpu;

    let mut hearing = Vec::new();
    let heard = Sent::new("heard", count)?;
    for _ in 0..subscribers {
        let client = subscribe(&node).await?;
        hearing.push(tokio::spawn(collect(client, Arc::clone(&heard))));
    }
    let (cpu, start) = (node.cpu()?, Instant::now());
    publish(&node, &heard, rate).await?;
    let mut latency = Timings::default();
    for one in hearing {
        latency.merge(one.await??);
    }
    let (took, with_subscribers) = (start.elapsed(), node.cpu()? - cpu);

    let events = count.max(1) as f64;
    let p50 = millis(answers.percentile(50));
    bench.table.figure("live", "nobody listens: OK p50", p50, "ms", None);
    bench.table.figure("live", "nobody listens: server CPU per event", micros(alone) / events, "µs", None);
    let each = micros(with_subscribers) / events;
    bench.table.figure("live", &format!("{subscribers} listen: server CPU per event"), each, "µs", None);
    bench.table.add(Figures {
        part: "live",
        name: &format!("{subscribers} x {rate} events/s"),
        unit: "delivery",
        operations: count * subscribers,
        took,
        server: with_subscribers.saturating_sub(alone),
        latency,
        target: Some(TARGET),
    });
    ingest::memory(bench, &node, "live")
}

/// A client that will hear what comes from now on.
pub(crate) async fn subscribe(node: &Node) -> anyhow::Result<Client> {
    let mut client = Client::connect(node.address).await?;
    let request = format!(r##"["REQ","live",{{"#t":["{}"],"limit":0}}]"##, events::topic(0));
    client.say(&frame(request.as_bytes())).await?;
    let place = client.hearing.hear().await?;
    let text = client.hearing.text(&place);
    ensure!(text.starts_with(br#"["EOSE""#), "{}", String::from_utf8_lossy(text));
    Ok(client)
}

/// Publishes at a steady rate. Returns how long the answers took.
async fn publish(node: &Node, sent: &Arc<Sent>, rate: u32) -> anyhow::Result<Timings> {
    let client = Client::connect(node.address).await?;
    let (mut saying, hearing) = (client.saying, client.hearing);
    let answers = answers(hearing, Arc::clone(sent));
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    for (event, at) in sent.events.iter().zip(&sent.at) {
        tick.tick().await;
        at.store(sent.elapsed(), Ordering::Relaxed);
        saying.write_all(&event.frame).await?;
    }
    answers.await?
}

fn answers(mut hearing: Hearing, sent: Arc<Sent>) -> JoinHandle<anyhow::Result<Timings>> {
    tokio::spawn(async move {
        let mut latency = Timings::default();
        for _ in &sent.events {
            let place = hearing.hear().await?;
            let id = accepted(hearing.text(&place))?;
            let n = *sent.by_id.get(id).context("an answer to nothing")?;
            latency.push(Duration::from_nanos(sent.elapsed() - sent.at[n].load(Ordering::Relaxed)));
        }
        Ok(latency)
    })
}

/// Hears every event once and nothing else. Returns how long each took from its publisher.
async fn collect(mut client: Client, sent: Arc<Sent>) -> anyhow::Result<Timings> {
    let mut latency = Timings::default();
    let mut seen = vec![false; sent.events.len()];
    while latency.len() < seen.len() {
        client.hearing.fill().await.with_context(|| format!("after {} of {} events", latency.len(), seen.len()))?;
        let now = sent.elapsed();
        while let Some(place) = client.hearing.next_heard()? {
            let text = client.hearing.text(&place);
            let n = *sent.by_id.get(id_of(text)).with_context(|| String::from_utf8_lossy(text).into_owned())?;
            if std::mem::replace(&mut seen[n], true) {
                bail!("an event came twice");
            }
            latency.push(Duration::from_nanos(now.saturating_sub(sent.at[n].load(Ordering::Relaxed))));
        }
    }
    Ok(latency)
}

/// The id of the event in a message.
fn id_of(text: &[u8]) -> &[u8] {
    let key = br#""id":""#;
    let start = text.windows(key.len()).position(|part| part == key).map_or(0, |start| start + key.len());
    text.get(start..start + 64).unwrap_or_default()
}
