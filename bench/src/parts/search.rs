//! Search: how soon a node finds a post that it has accepted; and an index by itself: how fast it is filled, how large it
//! becomes, and whether a query costs more when there is more.

use std::{process, time::Instant};

use anyhow::{bail, ensure};
use futures_util::future::{Either, select};
use kukuri_domain::{EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_search::{Document, DocumentChange, Search, SearchIndex, SearchQuery, Text};
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use kukuri_search_tantivy::TantivyIndex;
use kukuri_store::Seq;
use kukuri_testing::{Connection, TOPIC, as_json, connection::excerpt, frames::text_frame, note};
use serde_json::json;

use super::Bench;
use crate::{
    client::{Message, Pace, publish_all, request},
    corpus::mixed,
    relay::{Relay, RelayProcess, cpu_of_tree},
    report::number,
    timings::Timings,
};

/// Events that a node receives while posts are looked for.
const EVENTS_PER_SECOND: u32 = 1_000;
const BATCH: u64 = 1_000;
const QUERIES: u64 = 1_000;
const HITS: usize = 20;

/// The time of the searches. Posts are made in the three months before.
const NOW: Timestamp = Timestamp(1_700_000_000);
const DAY: u64 = 86_400;
/// Different words there are.
const WORDS: f64 = 20_000.0;
const TOPICS: u64 = 10;
const AUTHORS: u64 = 200;

/// Name, words, whether in a topic, whether of the last week.
const SHAPES: [(&str, usize, bool, bool); 5] = [
    ("one word", 1, false, false),
    ("one word in a topic", 1, true, false),
    ("two words", 2, false, false),
    ("two words in a topic", 2, true, false),
    ("one word in a topic, this week", 1, true, true),
];

pub(super) async fn measure(bench: &mut Bench, ours: &Relay) -> anyhow::Result<()> {
    let process = bench.start(ours).await?;
    let mut found = fresh(bench, &process).await?;
    let row = "from OK until a search finds it";
    bench.report.subject.of = "embedded".to_owned();
    bench.report.latency(row, &mut found);
    bench.report.number(row, "posts", "", found.len() as f64);
    drop(process);
    fill_and_ask(bench, &TantivyIndex::open(bench.dir.join("index"))?).await?;
    if let Some(url) = bench.options.database()? {
        let index = PostgresIndex::connect(url, PostgresIndexOptions::default()).await?;
        bench.report.subject.of = "postgres".to_owned();
        fill_and_ask(bench, &index).await?;
    }
    Ok(())
}

/// Publishes one post after the other, and searches for each as soon as it is accepted, while other events come in. Returns
/// how long it took to find each.
async fn fresh(bench: &Bench, process: &RelayProcess) -> anyhow::Result<Timings> {
    let events = bench.corpus.signed(0..bench.options.events);
    let mut client = Connection::open(process.address).await?;
    let mut timings = Timings::default();
    let searching = async {
        for n in 0.. {
            let content = format!("fresh {n}");
            let post = note(1, &content).sign();
            client.send_text(&json!(["EVENT", as_json(&post)]).to_string()).await?;
            loop {
                let text = client.receive().await?;
                match Message::read(text) {
                    Message::Ok { is_accepted: true, .. } => break,
                    Message::Ok { .. } => bail!("a post is refused: {}", excerpt(text)),
                    _ => {}
                }
            }
            let accepted = Instant::now();
            let search = json!(["REQ", "s", { "#t": [TOPIC], "search": content, "limit": 2 }]).to_string();
            let (search, id, mut is_found) = (text_frame(search.as_bytes()), post.id.to_string(), false);
            while !is_found {
                request(&mut client, ("s", &search), |found| is_found |= found == id.as_bytes()).await?;
            }
            timings.push(accepted.elapsed());
        }
        Ok(())
    };
    let publishing = publish_all(process.address, &events, 1, Pace::PerSecond(EVENTS_PER_SECOND));
    match select(Box::pin(publishing), Box::pin(searching)).await {
        Either::Left((published, _)) => published.map(drop)?,
        Either::Right((searched, _)) => searched?,
    }
    Ok(timings)
}

async fn fill_and_ask(bench: &mut Bench, index: &dyn SearchIndex) -> anyhow::Result<()> {
    ensure!(index.stats().await?.documents == 0, "there are posts in this index already");
    let mut filled = 0;
    for size in bench.options.sizes.clone() {
        let row = |what: &str| format!("{} posts, {what}", number(size as f64));
        let (begun, cpu) = (Instant::now(), cpu_of_tree(process::id()));
        for first in (filled..size).step_by(BATCH as usize) {
            let last = size.min(first + BATCH);
            let changes = (first..last).map(|n| DocumentChange::Put(Box::new(post(n)))).collect();
            index.apply(changes, Seq(last).into()).await?;
        }
        let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_of_tree(process::id()).saturating_sub(cpu));
        let (added, bytes) = (size.saturating_sub(filled).max(1) as f64, index.stats().await?.bytes as f64);
        bench.report.number(&row("filling"), "throughput", "/s", added / took);
        bench.report.number(&row("filling"), "CPU here each", "µs", cpu.as_secs_f64() * 1e6 / added);
        bench.report.number(&row("filling"), "disk of each", "bytes", bytes / size as f64);
        filled = size;

        // The shapes take turns, so that none finds caches as another left them.
        let mut timings: [Timings; SHAPES.len()] = Default::default();
        for n in 0..QUERIES {
            for (shape, timings) in SHAPES.iter().zip(&mut timings) {
                let search = search(shape, mixed(n ^ size) % size)?;
                timings.time(index.search(&search)).await?;
            }
        }
        for (shape, timings) in SHAPES.iter().zip(&mut timings) {
            bench.report.latency(&row(shape.0), timings);
        }
        bench.report.latency(&row("all"), &mut Timings(timings.into_iter().flat_map(|timings| timings.0).collect()));
    }
    Ok(())
}

/// The search that the nth post answers.
fn search((_, words, in_topic, recent): &(&str, usize, bool, bool), n: u64) -> anyhow::Result<Search> {
    let body = post(n).text.body;
    let query = SearchQuery::parse(&body.split(' ').take(*words).collect::<Vec<_>>().join(" "))?;
    let mut search = Search::new(query, NOW, HITS);
    search.topics = in_topic.then(|| vec![topic(n)]);
    search.since = recent.then_some(Timestamp(NOW.0 - 7 * DAY));
    Ok(search)
}

/// The nth post: 8 to 19 words, half of them Japanese; few words are common and most are rare.
fn post(n: u64) -> Document {
    let mut id = [0; 32];
    for (at, bytes) in id.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&mixed(n * 4 + at as u64).to_be_bytes());
    }
    let words: Vec<String> = (0..8 + n % 12).map(|at| word(n * 64 + at)).collect();
    Document {
        id: EventId::from_bytes(id),
        author: PublicKey::from_bytes([(n % AUTHORS) as u8; 32]),
        kind: Kind(1),
        created_at: Timestamp(NOW.0 - mixed(n) % (90 * DAY)),
        topics: vec![topic(n)],
        text: Text { title: String::new(), body: words.join(" ") },
    }
}

fn topic(n: u64) -> TopicId {
    TopicId::new_unchecked(&format!("kukuri:{:064x}", n % TOPICS))
}

/// A word: by a power law.
fn word(seed: u64) -> String {
    let share = (mixed(seed) % 1_000_000) as f64 / 1_000_000.0;
    let rank = WORDS.powf(share) as u64;
    let letter =
        |from: char, count: u64, number: u64| char::from_u32(from as u32 + (number % count) as u32).unwrap_or(from);
    if rank.is_multiple_of(2) {
        (0..2 + rank % 3).map(|at| letter('一', 2_000, mixed(rank * 7 + at))).collect()
    } else {
        (0..3 + rank % 6).map(|at| letter('a', 26, mixed(rank * 11 + at))).collect()
    }
}
