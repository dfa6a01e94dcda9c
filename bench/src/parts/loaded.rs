//! Measurements of a filled relay: requests, disk, restart, mixed load. In this order: the last one adds events.

use std::{collections::HashSet, sync::Arc, time::Instant};

use kukuri_domain::EventId;
use kukuri_testing::Connection;

use super::{Bench, gave_up, mixed, place, remove, requests, requests::Exam, sending};
use crate::{
    options::Part,
    oracle::Oracle,
    questions::{by_ids, questions},
    relay::{Relay, process::Running},
    timing::millis,
};

/// The parts measured here.
pub(super) const PARTS: [Part; 4] = [Part::Req, Part::Disk, Part::Restart, Part::Mixed];
/// Ids that are asked for at once.
const AT_ONCE: usize = 50;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let timeout = bench.timeout();
    let mut running = bench.fresh(relay, "loaded").await?;
    let mut loaded = sending::Loaded::default();
    let events = bench.options.events;
    let loading = sending::load(&running, &bench.corpus, 0..events, &mut loaded);
    tokio::time::timeout(timeout, loading).await.unwrap_or_else(|_| Err(gave_up(timeout)))?;
    running.rest().await?;
    let oracle = Oracle::new(&loaded.facts);
    let exam = Exam { questions: Arc::new(questions(&bench.corpus, &oracle, events)), oracle };

    let parts: Vec<Part> = PARTS.into_iter().filter(|part| bench.options.has(*part)).collect();
    for (place, part) in parts.iter().copied().enumerate() {
        let measured = match part {
            Part::Req => tokio::time::timeout(timeout, requests::measure(bench, relay, &running, &exam)).await,
            Part::Disk => Ok(disk(bench, relay, &running, loaded.json_bytes)),
            Part::Restart => tokio::time::timeout(timeout, restart(bench, relay, &mut running, &exam)).await,
            _ => tokio::time::timeout(timeout, mixed::measure(bench, relay, &running, &exam)).await,
        };
        if let Err(error) = measured.unwrap_or_else(|_| Err(gave_up(timeout))) {
            bench.failed(part, relay, &error);
        }
        if running.has_ended() {
            match relay.start(&running.dir.clone(), timeout).await {
                Ok(again) => running = again,
                Err(error) => {
                    parts[place + 1..].iter().for_each(|part| bench.failed(*part, relay, &error));
                    break;
                }
            }
        }
    }
    remove(running);
    Ok(())
}

fn disk(bench: &mut Bench, relay: &Relay, running: &Running, json_bytes: u64) -> anyhow::Result<()> {
    let (bytes, events) = (running.disk_bytes()? as f64, bench.options.events as f64);
    let place = place("disk", relay, "after the load");
    bench.report.figure(place, "in all", "MB", bytes / 1e6);
    bench.report.figure(place, "per event", "bytes", bytes / events);
    bench.report.figure(place, "JSON of an event", "bytes", json_bytes as f64 / events);
    bench.report.figure(place, "disk / JSON", "", bytes / json_bytes as f64);
    Ok(())
}

async fn restart(bench: &mut Bench, relay: &Relay, running: &mut Running, exam: &Exam) -> anyhow::Result<()> {
    running.kill();
    let dir = running.dir.clone();
    let start = Instant::now();
    *running = relay.start(&dir, bench.timeout()).await?;
    let up = start.elapsed();
    if let Some(question) = exam.questions.first() {
        requests::first_answer(running.address, question).await?;
    }
    let answered = start.elapsed();
    let lost = lost(running, &exam.oracle).await?;
    let row = place("restart", relay, "kill -9");
    bench.report.figure(row, "connects", "ms", millis(up));
    bench.report.figure(row, "first answer", "ms", millis(answered));
    bench.report.figure(row, "lost", "", lost as f64);
    bench.report.memory(row, running.memory()?);
    if relay.is_ours && lost > 0 {
        bench.report.fault(format!("{lost} acknowledged events are lost after kill -9"));
    }
    requests::check(bench, relay, place("restart", relay, "answers"), running, exam).await
}

/// How many events are not there any more, of all that should be.
async fn lost(running: &Running, oracle: &Oracle) -> anyhow::Result<usize> {
    let mut client = Connection::open(running.address).await?;
    let (mut turn, mut found) = (0, HashSet::new());
    for topic in oracle.topics() {
        let ids: Vec<EventId> = oracle.topic(topic).iter().map(|fact| fact.id).collect();
        for some in ids.chunks(AT_ONCE) {
            let hear = |id: &[u8]| found.extend(EventId::from_hex(id));
            requests::answer(&mut client, &by_ids(topic, some), turn, hear).await?;
            turn += 1;
        }
    }
    Ok(oracle.len().saturating_sub(found.len()))
}
