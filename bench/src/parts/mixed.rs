//! All at once: publishers and readers at steady rates, and live subscribers; then the same beside a client that asks for
//! much and reads nothing (W-5).

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use kukuri_testing::{Connection, frames::text_frame};
use serde_json::json;

use super::{Begun, Bench, gave_up, live, live::Sent, place, requests, requests::Exam};
use crate::{
    corpus::{TOPICS, topic_id},
    relay::{Relay, process::Running},
    report::Operation,
    timing::{Timings, micros},
};

const READERS: usize = 8;
const SUBSCRIBERS: usize = 50;
/// Large answers that the slow reader asks for and does not read.
const UNREAD: usize = 400;
/// Every answer has come this long after the last was asked for, or never comes.
const LONG_PAST: Duration = Duration::from_secs(60);
const DRAINED_FOR: Duration = Duration::from_secs(3);

pub(super) async fn measure(bench: &mut Bench, relay: &Relay, running: &Running, exam: &Exam) -> anyhow::Result<()> {
    let before = one(bench, relay, running, exam, "").await?;
    let slow = SlowReader::begin(running.address).await?;
    // A relay that waits for the slow reader may never serve the others.
    let timeout = Duration::from_secs(3 * bench.options.load.mixed_seconds) + LONG_PAST;
    let beside = tokio::time::timeout(timeout, one(bench, relay, running, exam, ", slow reader")).await;
    let beside = beside.unwrap_or_else(|_| Err(gave_up(timeout))).context("beside a slow reader")?;
    let fate = slow.end().await;
    let place = place("mixed", relay, "slow reader");
    for (name, before, beside) in [
        ("OK p99, times", before[0], beside[0]),
        ("REQ p99, times", before[1], beside[1]),
        ("delivery p99, times", before[2], beside[2]),
    ] {
        bench.report.figure(place, name, "", beside.as_secs_f64() / before.as_secs_f64().max(f64::MIN_POSITIVE));
    }
    bench.report.words(place, "what became of it", fate);
    Ok(())
}

/// Returns p99 of OK, REQ and delivery.
async fn one(
    bench: &mut Bench,
    relay: &Relay,
    running: &Running,
    exam: &Exam,
    what: &str,
) -> anyhow::Result<[Duration; 3]> {
    let load = &bench.options.load;
    let (events, requests, seconds) = (load.mixed_events, load.mixed_requests, load.mixed_seconds);
    let count = events as usize * seconds as usize;
    let part = if what.is_empty() { 3 } else { 4 };
    let sent = Sent::new(&bench.corpus, bench.options.corpus_part(part), count)?;
    let mut collecting = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let client = live::subscribe(running.address).await?;
        collecting.push(tokio::spawn(live::collect(client.receiver, Arc::clone(&sent))));
    }
    let begun = Begun::now(running)?;
    let mut reading = Vec::new();
    for reader in 0..READERS {
        let questions = Arc::clone(&exam.questions);
        let mut client = Connection::open(running.address).await?;
        let pause = Duration::from_secs(1) * READERS as u32 / requests.max(1);
        reading.push(tokio::spawn(async move {
            let (mut latency, began) = (Timings::default(), Instant::now());
            let mut tick = tokio::time::interval(pause);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut turn = 0;
            while began.elapsed() < Duration::from_secs(seconds) {
                tick.tick().await;
                let start = Instant::now();
                let question = &questions[(reader + turn * READERS) % questions.len()];
                requests::answer(&mut client, question, turn, |_| {}).await?;
                latency.add(start);
                turn += 1;
            }
            anyhow::Ok(latency)
        }));
    }
    let mut answers = live::publish(running.address, &sent, events).await?;
    let (mut read, mut delivered, mut missed) = (Timings::default(), Timings::default(), 0);
    for one in reading {
        read.merge(one.await??);
    }
    for one in collecting {
        let (latency, _) = one.await??;
        missed += count - latency.len();
        delivered.merge(latency);
    }
    let p99 = [answers.percentile(99), read.percentile(99), delivered.percentile(99)];
    let all = begun.done(running, count, answers)?;
    let busy = micros(all.cpu) / micros(all.took) * 100.0;
    let (took, memory) = (all.took, all.memory);
    let part = |count, latency| Operation { count, took, cpu: Duration::ZERO, latency, memory };
    bench.report.latency(place("mixed", relay, &format!("OK{what}")), "done", &mut part(count, all.latency));
    bench.report.latency(place("mixed", relay, &format!("REQ{what}")), "done", &mut part(read.len(), read));
    bench.report.latency(
        place("mixed", relay, &format!("delivery{what}")),
        "done",
        &mut part(delivered.len(), delivered),
    );
    let name = format!("server{what}");
    let place = place("mixed", relay, &name);
    bench.report.figure(place, "CPU, of one core", "%", busy);
    bench.report.figure(place, "missed deliveries", "", missed as f64);
    bench.report.memory(place, memory);
    if relay.is_ours && missed > 0 {
        bench.report.fault(format!("{missed} live events were not delivered under mixed load{what}"));
    }
    Ok(p99)
}

/// A client that asks and does not read.
struct SlowReader(Connection);

impl SlowReader {
    async fn begin(address: SocketAddr) -> anyhow::Result<Self> {
        let mut client = Connection::open_narrow(address).await?;
        let topics: Vec<String> = (0..TOPICS).map(topic_id).collect();
        let live = json!(["REQ", "live", { "#t": topics, "limit": 0 }]);
        let mut frames = text_frame(live.to_string().as_bytes());
        for n in 0..UNREAD {
            // Each takes the place of the one before, as a client does that is told of more and more.
            let request = json!(["REQ", format!("much-{}", n % 4), { "#t": [topic_id(n as u64 % 8)], "limit": 500 }]);
            frames.extend(text_frame(request.to_string().as_bytes()));
        }
        // A relay that waits for it to read may not take all of this.
        let _ = tokio::time::timeout(DRAINED_FOR, client.send(&frames)).await;
        Ok(Self(client))
    }

    /// Reads at last, and says how far that goes.
    async fn end(mut self) -> String {
        let mut bytes = 0;
        let drained = tokio::time::timeout(DRAINED_FOR, async {
            loop {
                if let Err(error) = self.0.receiver.fill().await {
                    return error;
                }
                loop {
                    match self.0.receiver.next_buffered() {
                        Ok(Some(place)) => bytes += place.len(),
                        Ok(None) => break,
                        Err(error) => return error,
                    }
                }
            }
        })
        .await;
        let read = bytes as f64 / 1e6;
        match drained {
            Ok(error) => format!("{}; {read:.1} MB were on the way", format!("{error:#}").trim()),
            Err(_) => format!("still served: {read:.1} MB in the first {} s it read", DRAINED_FOR.as_secs()),
        }
    }
}
