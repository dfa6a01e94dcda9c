//! Live events out: many subscribers of one topic, each of which must receive every event once.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use kukuri_testing::{Connection, connection::Receiver, frames::text_frame};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{
    Begun, Bench, place, remove,
    sending::{self, Flow},
};
use crate::{
    corpus::{Corpus, Made, topic_id},
    relay::{Relay, message::Message},
    report::Operation,
    timing::{Timings, micros, millis},
};

/// The topic that is followed.
pub(super) const TOPIC: u64 = 0;
/// A subscriber that hears nothing for so long after the last event has missed some.
const QUIET: Duration = Duration::from_secs(10);

/// The events of one run and when each was sent.
pub(super) struct Sent {
    pub(super) events: Vec<Made>,
    by_id: HashMap<Vec<u8>, usize>,
    start: Instant,
    at: Vec<AtomicU64>,
}

impl Sent {
    /// Events of the topic, from the nth of the corpus on.
    pub(super) fn new(corpus: &Corpus, from: u64, count: usize) -> anyhow::Result<Arc<Self>> {
        let events = corpus.regular_in(TOPIC, from, count)?;
        let by_id = events.iter().enumerate().map(|(n, made)| (made.hex.clone().into_bytes(), n)).collect();
        let at = (0..count).map(|_| AtomicU64::new(0)).collect();
        Ok(Arc::new(Self { events, by_id, start: Instant::now(), at }))
    }

    fn elapsed(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// How long ago an event was sent, if it is one of these and was.
    fn since(&self, id: &[u8], now: u64) -> Option<(usize, Duration)> {
        let n = *self.by_id.get(id)?;
        let at = self.at[n].load(Ordering::Relaxed);
        (at > 0).then(|| (n, Duration::from_nanos(now.saturating_sub(at))))
    }
}

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let (count, rate) = (bench.options.load.live_events, bench.options.load.rate);
    let subscribers = bench.options.load.subscribers;
    let running = bench.fresh(relay, "live").await?;
    let first = Arc::new(bench.corpus.regular_in(TOPIC, 0, 64)?);
    sending::send(running.address, &first, Flow::ALONE).await?;

    let unheard = Sent::new(&bench.corpus, bench.options.corpus_part(1), count)?;
    let begun = Begun::now(&running)?;
    let answers = publish(running.address, &unheard, rate).await?;
    let mut alone = begun.done(&running, count, answers)?;

    let heard = Sent::new(&bench.corpus, bench.options.corpus_part(2), count)?;
    let mut collecting = Vec::new();
    for _ in 0..subscribers {
        let client = subscribe(running.address).await?;
        collecting.push(tokio::spawn(collect(client.receiver, Arc::clone(&heard))));
    }
    let begun = Begun::now(&running)?;
    let publishing = publish(running.address, &heard, rate).await?;
    let mut all = Timings::default();
    let (mut missed, mut repeated) = (0, 0);
    for one in collecting {
        let (latency, repeats) = one.await??;
        missed += count - latency.len();
        repeated += repeats;
        all.merge(latency);
    }
    let done = begun.done(&running, count, publishing)?;

    let (without, with) = (place("live", relay, "nobody listens"), place("live", relay, "fan-out"));
    bench.report.figure(without, "OK p50", "ms", millis(alone.latency.percentile(50)));
    bench.report.figure(without, "CPU per event", "µs", micros(alone.cpu) / count.max(1) as f64);
    let deliveries = all.len();
    let cpu = done.cpu.saturating_sub(alone.cpu);
    bench.report.operation(with, "delivery", Operation { count: deliveries, latency: all, cpu, ..done });
    bench.report.figure(with, "subscribers", "", subscribers as f64);
    bench.report.figure(with, "sent", "/s", f64::from(rate));
    bench.report.figure(with, "missed", "", missed as f64);
    bench.report.figure(with, "twice", "", repeated as f64);
    if relay.is_ours && missed + repeated > 0 {
        bench.report.fault(format!("{missed} live events were not delivered, {repeated} came twice"));
    }
    remove(running);
    Ok(())
}

/// A client that has subscribed to the topic's live events.
pub(super) async fn subscribe(address: SocketAddr) -> anyhow::Result<Connection> {
    let mut client = Connection::open(address).await?;
    let request = json!(["REQ", "live", { "#t": [topic_id(TOPIC)], "limit": 0 }]);
    client.send(&text_frame(request.to_string().as_bytes())).await?;
    loop {
        let place = client.receiver.receive().await?;
        match Message::read(client.receiver.text(&place)) {
            Message::Eose => return Ok(client),
            Message::Closed { .. } => bail!("refused: {}", client.receiver.excerpt(&place)),
            Message::Event { .. } | Message::Ok { .. } | Message::Other => {}
        }
    }
}

/// Publishes at a steady rate. Returns how long the answers took.
pub(super) async fn publish(address: SocketAddr, sent: &Arc<Sent>, rate: u32) -> anyhow::Result<Timings> {
    let Connection { mut sender, receiver } = Connection::open(address).await?;
    let answers = answers(receiver, Arc::clone(sent));
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    for (event, at) in sent.events.iter().zip(&sent.at) {
        tick.tick().await;
        at.store(sent.elapsed().max(1), Ordering::Relaxed);
        sender.send(&event.frame).await?;
    }
    answers.await?
}

fn answers(mut receiver: Receiver, sent: Arc<Sent>) -> JoinHandle<anyhow::Result<Timings>> {
    tokio::spawn(async move {
        let mut latency = Timings::default();
        while latency.len() < sent.events.len() {
            let place = receiver.receive().await?;
            let Message::Ok { id, is_accepted } = Message::read(receiver.text(&place)) else { continue };
            if !is_accepted {
                bail!("an event is refused: {}", receiver.excerpt(&place));
            }
            let (_, took) = sent
                .since(id, sent.elapsed())
                .with_context(|| format!("an answer to nothing: {}", receiver.excerpt(&place)))?;
            latency.push(took);
        }
        Ok(latency)
    })
}

/// Hears every event, and how long each took from its publisher; stops when it has all, or when nothing comes any more.
/// Returns also how many came again.
pub(super) async fn collect(mut receiver: Receiver, sent: Arc<Sent>) -> anyhow::Result<(Timings, usize)> {
    let mut latency = Timings::default();
    let (mut seen, mut repeated) = (vec![false; sent.events.len()], 0);
    while latency.len() < seen.len() {
        // Before the first event it may take a while.
        let timeout = if latency.len() == 0 { QUIET * 6 } else { QUIET };
        match tokio::time::timeout(timeout, receiver.fill()).await {
            Ok(filled) => filled.with_context(|| format!("after {} of {} events", latency.len(), seen.len()))?,
            Err(_) => break,
        }
        let now = sent.elapsed();
        while let Some(place) = receiver.next_buffered()? {
            let Message::Event { id } = Message::read(receiver.text(&place)) else { continue };
            let heard = sent.since(id, now);
            let (n, took) =
                heard.with_context(|| format!("an event that nobody sent: {}", receiver.excerpt(&place)))?;
            if std::mem::replace(&mut seen[n], true) {
                repeated += 1;
            } else {
                latency.push(took);
            }
        }
    }
    Ok((latency, repeated))
}
