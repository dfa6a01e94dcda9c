//! Whether cost grows with the store: the last events before each size, and the mix of requests at it.

use std::sync::Arc;

use super::{Bench, gave_up, place, remove, requests, requests::Exam, sending};
use crate::{
    oracle::Oracle,
    questions::questions,
    relay::{Relay, process::Running},
    report::number,
};

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let most = if relay.is_ours { u64::MAX } else { bench.options.peer_size };
    let sizes: Vec<u64> = bench.options.sizes.iter().copied().filter(|size| *size <= most).collect();
    let running = bench.fresh(relay, "growth").await?;
    let mut loaded = sending::Loaded::default();
    let timeout = bench.timeout();
    let mut done = Vec::new();
    for size in sizes {
        let step = tokio::time::timeout(timeout, step(bench, relay, &running, &mut loaded, size)).await;
        match step.unwrap_or_else(|_| Err(gave_up(timeout))) {
            Ok(()) => done.push(size),
            Err(error) => {
                bench.failed(
                    crate::options::Part::Growth,
                    relay,
                    &error.context(format!("at {} events", number(size as f64))),
                );
                break;
            }
        }
    }
    if let [first, .., last] = done[..] {
        for (title, name) in [("query CPU", "CPU per REQ"), ("ingest CPU", "CPU per event")] {
            let at = |size: u64| {
                let row = row(size, name);
                bench.report.value(place("growth", relay, &row), name)
            };
            if let Some((first, last)) = at(first).zip(at(last)) {
                bench.report.figure(place("growth", relay, "in all"), title, "times", last / first);
            }
        }
    }
    remove(running);
    Ok(())
}

/// The name of a row begins with the size.
fn row(size: u64, name: &str) -> String {
    let what = if name == "CPU per REQ" { "requests" } else { "ingest" };
    format!("{} events, {what}", number(size as f64))
}

async fn step(
    bench: &mut Bench,
    relay: &Relay,
    running: &Running,
    loaded: &mut sending::Loaded,
    size: u64,
) -> anyhow::Result<()> {
    let from = loaded.facts.len() as u64;
    if let Some(last) = sending::load(running, &bench.corpus, from..size, loaded).await? {
        let row = row(size, "CPU per event");
        bench.report.operation(place("growth", relay, &row), "event", last);
    }
    running.rest().await?;
    let oracle = Oracle::new(&loaded.facts);
    let exam = Exam { questions: Arc::new(questions(&bench.corpus, &oracle, size)), oracle };
    let row = row(size, "CPU per REQ");
    let answers = format!("{} events, answers", number(size as f64));
    requests::check(bench, relay, place("growth", relay, &answers), running, &exam).await?;
    requests::mix(bench, place("growth", relay, &row), running, &exam).await
}
