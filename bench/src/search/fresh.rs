//! How soon a post is found: published at a steady rate to a real node, and looked for as soon as it is accepted.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use tokio::{io::AsyncWriteExt, sync::mpsc};

use super::Options;
use crate::{
    relay::{
        client::{Client, accepted, frame},
        events,
        node::{Binary, Node},
    },
    say,
    timing::{Timings, micros, millis},
};

/// Of so many posts one is looked for.
const LOOKED_FOR: usize = 25;
/// The index follows in batches; this is long after the last.
const REST: Duration = Duration::from_secs(2);

pub(super) async fn measure(options: &Options, dir: &Path) -> anyhow::Result<()> {
    let count = options.rate as usize * options.seconds as usize;
    let made = Arc::new(events::make("fresh", count, 1)?);
    let node = Binary::find(options.node.clone())?.start(&dir.join("node"))?;
    let Client { mut saying, mut hearing } = Client::connect(node.address).await?;
    let (accept, accepting) = mpsc::unbounded_channel();
    let answers = tokio::spawn({
        let made = Arc::clone(&made);
        async move {
            for n in 0..made.len() {
                let place = hearing.hear().await?;
                accepted(hearing.text(&place))?;
                // Answers to one connection come in the order of its events. Kind 9 is not indexed.
                if n % LOOKED_FOR == 0 && made[n].kind != 9 {
                    accept.send((n, Instant::now()))?;
                }
            }
            anyhow::Ok(())
        }
    });
    let looking = tokio::spawn(look_for(Client::connect(node.address).await?, accepting, Arc::clone(&made)));
    let (cpu, began) = (node.cpu()?, Instant::now());
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let mut sent = 0;
    while sent < made.len() {
        tick.tick().await;
        let due = (began.elapsed().as_secs_f64() * f64::from(options.rate)) as usize;
        for event in &made[sent..due.clamp(sent, made.len())] {
            saying.write_all(&event.frame).await?;
        }
        sent = due.clamp(sent, made.len());
    }
    answers.await??;
    let took = began.elapsed();
    let mut found = looking.await??;
    tokio::time::sleep(REST).await;
    let each = micros(node.cpu()? - cpu) / made.len().max(1) as f64;
    say(format_args!(
        "\nembedded node, {:.0} posts/s for {} s: {each:.0} µs server CPU each, with everything that follows",
        made.len() as f64 / took.as_secs_f64(),
        options.seconds
    ));
    say(format_args!(
        "  from OK until a search of a client finds it: p50 {:.1} ms, p99 {:.1} ms ({} posts looked for)",
        millis(found.percentile(50)),
        millis(found.percentile(99)),
        found.len()
    ));
    let lag = lag(&node)?;
    ensure!(lag.total as usize >= made.len(), "{} of {} posts are in the index", lag.total, made.len());
    say(format_args!(
        "  from commit until it is in the index itself: p50 within {} s, p99 within {} s",
        lag.within(0.5),
        lag.within(0.99)
    ));
    Ok(())
}

/// Looks for each post that was accepted, until it is found. Returns how long that took.
async fn look_for(
    mut client: Client,
    mut accepting: mpsc::UnboundedReceiver<(usize, Instant)>,
    made: Arc<Vec<events::Made>>,
) -> anyhow::Result<Timings> {
    let mut timings = Timings::default();
    while let Some((n, accepted)) = accepting.recv().await {
        let topic = events::topic(made[n].topic);
        let ask = format!(r##"["REQ","s",{{"#t":["{topic}"],"search":"fresh {n}","limit":2}}]"##);
        let ask = frame(ask.as_bytes());
        loop {
            client.say(&ask).await?;
            let mut is_found = false;
            loop {
                let place = client.hearing.hear().await?;
                let text = client.hearing.text(&place);
                if text.starts_with(br#"["EOSE""#) {
                    break;
                }
                ensure!(text.starts_with(br#"["EVENT""#), "{}", String::from_utf8_lossy(text));
                is_found |= text.windows(64).any(|part| part == made[n].id.as_bytes());
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

fn lag(node: &Node) -> anyhow::Result<Lag> {
    let mut stream = TcpStream::connect(node.address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
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
