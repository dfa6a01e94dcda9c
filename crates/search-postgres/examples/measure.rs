//! Measures an index on an empty database: `cargo run --release -p kukuri-search-postgres --example measure -- URL [POSTS]`.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a program for developers")]

use std::time::{Duration, Instant};

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_search::{Change, Document, Search, SearchIndex, SearchQuery, Text};
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use kukuri_store::Seq;

const NOW: Timestamp = Timestamp(1_700_000_000);
const BATCH: u64 = 1_000;
const QUERIES: u64 = 500;

/// Numbers that look random and are the same every time.
fn mixed(seed: u64) -> u64 {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A word: few are common and most are rare. Every other one is Japanese.
fn word(seed: u64) -> String {
    let share = (mixed(seed) % 1_000_000) as f64 / 1_000_000.0;
    let rank = (20_000.0_f64.powf(share)) as u64;
    let letter = |from: u32, count: u64, number: u64| char::from_u32(from + (number % count) as u32).unwrap_or('x');
    if rank.is_multiple_of(2) {
        (0..2 + rank % 3).map(|at| letter(0x4e00, 2_000, mixed(rank * 7 + at) % 2_000)).collect()
    } else {
        (0..3 + rank % 6).map(|at| letter('a' as u32, 26, mixed(rank * 11 + at))).collect()
    }
}

fn post(number: u64) -> Document {
    let mut id = [0; 32];
    for (at, bytes) in id.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&mixed(number * 4 + at as u64).to_be_bytes());
    }
    let words: Vec<String> = (0..8 + number % 12).map(|at| word(number * 64 + at)).collect();
    Document {
        id: EventId::from_bytes(id),
        author: PublicKey::from_bytes([(number % 200) as u8; 32]),
        kind: Kind(1),
        created_at: Timestamp(NOW.0 - mixed(number) % (90 * 86_400)),
        topics: vec![topic(number % 10)],
        text: Text { title: String::new(), body: words.join(" ") },
    }
}

fn topic(number: u64) -> TopicId {
    TopicId::trusted(&format!("kukuri:{}", format!("{number:02x}").repeat(32)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("a URL");
    let posts: u64 = arguments.next().map_or(100_000, |count| count.parse().expect("a number"));
    let index = PostgresIndex::connect(&url, PostgresIndexOptions::default()).await.expect("an index");

    let began = Instant::now();
    for first in (0..posts).step_by(BATCH as usize) {
        let changes = (first..posts.min(first + BATCH)).map(|number| Change::Put(Box::new(post(number)))).collect();
        index.apply(changes, Seq(first + BATCH)).await.expect("changes");
    }
    let took = began.elapsed();
    let bytes = index.stats().await.expect("figures").bytes;
    println!("{posts} posts, {:.0} a second, {} bytes each", posts as f64 / took.as_secs_f64(), bytes / posts);

    for (what, words, in_topic) in
        [("one word", 1, false), ("one word in a topic", 1, true), ("two words", 2, false), ("two in a topic", 2, true)]
    {
        let (mut times, mut hits) = (Vec::new(), 0);
        for number in 0..QUERIES {
            // Words that stand together somewhere.
            let text = post(mixed(number) % posts).text.body;
            let text: Vec<&str> = text.split(' ').take(words).collect();
            let topics = in_topic.then(|| vec![topic(mixed(number) % posts % 10)]);
            let query = SearchQuery::parse(&text.join(" ")).expect("a question");
            let search = Search { topics, ..Search::new(query, NOW, 20) };
            let asked = Instant::now();
            hits += index.search(&search).await.expect("hits").len();
            times.push(asked.elapsed());
        }
        times.sort_unstable();
        let at = |share: f64| millis(times[(share * (times.len() - 1) as f64) as usize]);
        let mean = hits as f64 / QUERIES as f64;
        println!("{what}: p50 {} ms, p99 {} ms, {mean:.1} hits on average", at(0.5), at(0.99));
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1_000.0)
}
