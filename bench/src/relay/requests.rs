//! Stored events out: the newest fifty, asked for in several ways.

use std::{
    cmp::Reverse,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use super::{
    Bench, Node,
    client::{Client, frame},
    events::{self, Made},
    ingest,
    table::Figures,
};
use crate::timing::Timings;

const CONNECTIONS: usize = 8;
const LIMIT: usize = 50;
/// For an answer of fifty events.
const TARGET: f64 = 200.0;
/// Different questions of one shape.
const QUESTIONS: usize = 256;

/// A question, ready to be sent, and the right answer.
struct Question {
    frame: Vec<u8>,
    expected: Vec<String>,
}

/// A way to ask: a filter for the nth question, and which events it is for.
type Shape = fn(&[Made], usize) -> anyhow::Result<(Value, Matches)>;
type Matches = Box<dyn Fn(&Made) -> bool>;

const SHAPES: [(&str, Shape); 6] = [
    ("topic", |_, n| {
        let topic = n % events::TOPICS;
        Ok((json!({}), Box::new(move |event| event.topic == topic)))
    }),
    ("topic + kind", |_, n| {
        let (topic, kind) = (n % events::TOPICS, [1, 1111, 9][n / 8 % 3]);
        Ok((json!({ "kinds": [kind] }), Box::new(move |event| event.topic == topic && event.kind == kind)))
    }),
    ("topic + author", |_, n| {
        let (topic, author) = (n % events::TOPICS, n / 8 % events::AUTHORS);
        let filter = json!({ "authors": [events::author(author)?] });
        Ok((filter, Box::new(move |event| event.topic == topic && event.author == author)))
    }),
    ("topic + 50 ids", |all, n| {
        let topic = n % events::TOPICS;
        let known = all.iter().filter(|event| event.topic == topic).map(|event| event.id.clone());
        let ids: Vec<_> = known.skip(n).step_by(7).take(LIMIT).collect();
        let filter = json!({ "ids": ids });
        Ok((filter, Box::new(move |event| ids.contains(&event.id))))
    }),
    ("topic + e tag", |_, n| {
        let (topic, thread) = (n % events::TOPICS, n / 8 % events::THREADS);
        let filter = json!({ "#e": [events::thread(thread)] });
        Ok((filter, Box::new(move |event| event.topic == topic && event.thread == thread)))
    }),
    ("topic, since and until", |all, n| {
        let topic = n % events::TOPICS;
        let middle = all[all.len() * (n + 1) / (QUESTIONS + 1)].created_at;
        let (since, until) = (middle.saturating_sub(1_000), middle);
        let matches = move |event: &Made| event.topic == topic && (since..=until).contains(&event.created_at);
        Ok((json!({ "since": since, "until": until }), Box::new(matches)))
    }),
];

fn questions(all: &[Made], shape: Shape) -> anyhow::Result<Vec<Question>> {
    let mut questions = Vec::with_capacity(QUESTIONS);
    for n in 0..QUESTIONS {
        let (mut filter, matches) = shape(all, n)?;
        filter["#t"] = json!([events::topic(n % events::TOPICS)]);
        filter["limit"] = json!(LIMIT);
        let mut found: Vec<_> = all.iter().filter(|event| matches(event)).collect();
        found.sort_by_key(|event| (Reverse(event.created_at), event.id.clone()));
        found.truncate(LIMIT);
        let expected = found.into_iter().map(|event| event.id.clone()).collect();
        questions.push(Question { frame: frame(json!(["REQ", "q", filter]).to_string().as_bytes()), expected });
    }
    Ok(questions)
}

pub(crate) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let node = bench.node("req")?;
    let events = Arc::new(events::make("stored", bench.options.events, events::TOPICS)?);
    ingest::send(node.address, Arc::clone(&events), 8, 64).await?;

    let requests = bench.options.requests;
    let mut total = Total::default();
    for (name, shape) in SHAPES {
        let questions = Arc::new(questions(&events, shape)?);
        // Once each, every id compared; this also warms up.
        check(&node, &questions).await?;
        let (cpu, start) = (node.cpu()?, Instant::now());
        let latency = ask(&node, &questions, requests).await?;
        let (took, server) = (start.elapsed(), node.cpu()? - cpu);
        let sent: usize = (0..requests).map(|n| questions[n % QUESTIONS].expected.len()).sum();
        total.add(requests, sent, took, server, &latency);
        let rows = sent as f64 / requests.max(1) as f64;
        let name = format!("{name} ({rows:.0} events)");
        let target = Some(TARGET);
        bench.table.add(Figures {
            part: "req",
            name: &name,
            unit: "REQ",
            operations: requests,
            took,
            server,
            latency,
            target,
        });
    }
    let each = total.server.as_secs_f64() * 1e6 / total.events.max(1) as f64;
    bench.table.add(Figures {
        part: "req",
        name: "all shapes",
        unit: "REQ",
        operations: total.requests,
        took: total.took,
        server: total.server,
        latency: total.latency,
        target: Some(TARGET),
    });
    bench.table.figure("req", "all shapes: server CPU per event sent", each, "µs", None);
    ingest::memory(bench, &node, "req")
}

#[derive(Default)]
struct Total {
    requests: usize,
    events: usize,
    took: Duration,
    server: Duration,
    latency: Timings,
}

impl Total {
    fn add(&mut self, requests: usize, events: usize, took: Duration, server: Duration, latency: &Timings) {
        self.requests += requests;
        self.events += events;
        self.took += took;
        self.server += server;
        self.latency.merge(latency.clone());
    }
}

/// Asks every question once and compares the answer, event by event.
async fn check(node: &Node, questions: &[Question]) -> anyhow::Result<()> {
    let mut client = Client::connect(node.address).await?;
    for question in questions {
        client.say(&question.frame).await?;
        let mut found = Vec::new();
        loop {
            let place = client.hearing.hear().await?;
            let message: Value = serde_json::from_slice(client.hearing.text(&place))?;
            match message[0].as_str() {
                Some("EVENT") => found.push(message[2]["id"].as_str().unwrap_or_default().to_owned()),
                Some("EOSE") => break,
                _ => bail!("{message}"),
            }
        }
        ensure!(found == question.expected, "a wrong answer to {}", String::from_utf8_lossy(&question.frame));
        client.say(&frame(br#"["CLOSE","q"]"#)).await?;
    }
    Ok(())
}

async fn ask(node: &Node, questions: &Arc<Vec<Question>>, requests: usize) -> anyhow::Result<Timings> {
    let mut clients = Vec::new();
    for first in 0..CONNECTIONS {
        clients.push((first, Client::connect(node.address).await?));
    }
    let mut working = Vec::new();
    for (first, client) in clients {
        let questions = Arc::clone(questions);
        working.push(tokio::spawn(async move {
            let mine = (first..requests).step_by(CONNECTIONS).map(|n| &questions[n % QUESTIONS]);
            ask_all(client, mine).await
        }));
    }
    let mut all = Timings::default();
    for work in working {
        all.merge(work.await??);
    }
    Ok(all)
}

async fn ask_all(mut client: Client, questions: impl Iterator<Item = &Question>) -> anyhow::Result<Timings> {
    let close = frame(br#"["CLOSE","q"]"#);
    let mut latency = Timings::default();
    for question in questions {
        let start = Instant::now();
        client.say(&question.frame).await?;
        let mut found = 0;
        loop {
            let place = client.hearing.hear().await?;
            let text = client.hearing.text(&place);
            if text.starts_with(br#"["EVENT""#) {
                found += 1;
            } else if text.starts_with(br#"["EOSE""#) {
                break;
            } else {
                bail!("{}", String::from_utf8_lossy(text));
            }
        }
        latency.push(start.elapsed());
        ensure!(found == question.expected.len(), "{found} events instead of {}", question.expected.len());
        client.say(&close).await?;
    }
    Ok(latency)
}
