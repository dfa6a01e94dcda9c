//! How soon a post is found: published at a steady rate to a real node, and looked for as soon as it is accepted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use kukuri_testing::{Connection, frames::text_frame};
use tokio::sync::mpsc;

use crate::{
    corpus::{Made, topic_id},
    parts::Bench,
    relay::{Relay, message::Message, process::Running},
    report::Place,
    timing::{Timings, micros, millis},
};

/// One in this many posts is looked for.
const LOOKED_FOR: usize = 25;
/// The index follows in batches; this is long after the last.
const REST: Duration = Duration::from_secs(2);

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let (rate, seconds) = (bench.options.stores.search_rate, bench.options.stores.search_seconds);
    let made = Arc::new(bench.corpus.posts(u64::from(rate) * u64::from(seconds), |n| format!("fresh {n}"))?);
    let relay = Relay::ours(&bench.options)?.swap_remove(0);
    let running = relay.start(&bench.dir.join("fresh"), bench.timeout()).await?;
    let Connection { mut sender, mut receiver } = Connection::open(running.address).await?;
    let (accept, accepting) = mpsc::unbounded_channel();
    let answers = tokio::spawn({
        let made = Arc::clone(&made);
        async move {
            let mut n = 0;
            while n < made.len() {
                let place = receiver.receive().await?;
                let Message::Ok { is_accepted, .. } = Message::read(receiver.text(&place)) else { continue };
                ensure!(is_accepted, "{}", receiver.excerpt(&place));
                // Answers to one connection come in the order of its events.
                if n % LOOKED_FOR == 0 {
                    accept.send((n, Instant::now()))?;
                }
                n += 1;
            }
            anyhow::Ok(())
        }
    });
    let looking = tokio::spawn(look_for(Connection::open(running.address).await?, accepting, Arc::clone(&made)));
    let (cpu, began) = (running.cpu()?, Instant::now());
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let mut sent = 0;
    while sent < made.len() {
        tick.tick().await;
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as usize;
        for event in &made[sent..due.clamp(sent, made.len())] {
            sender.send(&event.frame).await?;
        }
        sent = due.clamp(sent, made.len());
    }
    answers.await??;
    let took = began.elapsed();
    let mut found = looking.await??;
    tokio::time::sleep(REST).await;
    let each = micros(running.cpu()? - cpu) / made.len().max(1) as f64;
    let lag = lag(&running)?;
    ensure!(lag.total as usize >= made.len(), "{} of {} posts are in the index", lag.total, made.len());
    let place = Place { part: "search", of: "embedded", row: "from OK until a search finds it" };
    bench.report.figure(place, "posts", "/s", made.len() as f64 / took.as_secs_f64());
    bench.report.figure(place, "CPU of all that follows", "µs", each);
    bench.report.figure(place, "p50", "ms", millis(found.percentile(50)));
    bench.report.figure(place, "p99", "ms", millis(found.percentile(99)));
    bench.report.figure(place, "looked for", "", found.len() as f64);
    bench.report.words(place, "in the index p50", format!("within {} s", lag.within(0.5)));
    bench.report.words(place, "in the index p99", format!("within {} s", lag.within(0.99)));
    Ok(())
}

/// Looks for each post that was accepted, until it is found. Returns how long that took.
async fn look_for(
    mut client: Connection,
    mut accepting: mpsc::UnboundedReceiver<(usize, Instant)>,
    made: Arc<Vec<Made>>,
) -> anyhow::Result<Timings> {
    let mut timings = Timings::default();
    while let Some((n, accepted)) = accepting.recv().await {
        let topic = topic_id(made[n].fact.topic);
        let ask = format!(r##"["REQ","s",{{"#t":["{topic}"],"search":"fresh {n}","limit":2}}]"##);
        let ask = text_frame(ask.as_bytes());
        loop {
            client.send(&ask).await?;
            let mut is_found = false;
            loop {
                let place = client.receiver.receive().await?;
                let text = client.receiver.text(&place);
                match Message::read(text) {
                    Message::Event { id } => is_found |= id == made[n].hex.as_bytes(),
                    Message::Eose => break,
                    Message::Closed { .. } => anyhow::bail!("{}", String::from_utf8_lossy(text)),
                    Message::Ok { .. } | Message::Other => {}
                }
            }
            if is_found {
                timings.push(accepted.elapsed());
                break;
            }
        }
    }
    Ok(timings)
}

/// How old changes were when they were in the index, as the node counts it.
struct Lag {
    /// Bounds in seconds, and how many were within.
    buckets: Vec<(String, f64)>,
    total: f64,
}

impl Lag {
    fn within(&self, share: f64) -> &str {
        let bucket = self.buckets.iter().find(|(_, count)| *count >= self.total * share);
        bucket.map_or("+Inf", |(bound, _)| bound)
    }
}

fn lag(running: &Running) -> anyhow::Result<Lag> {
    let text = running.get("/metrics", "*/*")?;
    let (mut buckets, mut total) = (Vec::new(), 0.0);
    for line in text.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        if name.starts_with("kukuri_consumer_lag_seconds_bucket") {
            let bound = name.split_once("le=\"").and_then(|(_, rest)| rest.split_once('"')).context("a bound")?.0;
            buckets.push((bound.to_owned(), value.parse()?));
        } else if name.starts_with("kukuri_consumer_lag_seconds_count") {
            total = value.parse()?;
        }
    }
    Ok(Lag { buckets, total })
}
