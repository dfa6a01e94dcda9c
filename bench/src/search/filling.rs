//! An index by itself: how fast it is filled, how large it becomes, and whether a question costs more when there is more.

use std::time::Instant;

use anyhow::ensure;
use kukuri_domain::Timestamp;
use kukuri_search::{DocumentChange, Search, SearchIndex, SearchQuery};
use kukuri_store::Seq;

use super::posts::{NOW, post, topic};
use crate::{
    corpus::mixed,
    parts::Bench,
    report::{Place, number},
    timing::{Timings, cpu_time, micros, millis},
};

const WEEK_AGO: Timestamp = Timestamp(NOW.0 - 7 * 86_400);
/// Hits that a client asks for.
const LIMIT: usize = 20;

/// A shape of question: its words stand together in some post.
struct Shape {
    name: &'static str,
    words: usize,
    in_topic: bool,
    recent: bool,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "one word", words: 1, in_topic: false, recent: false },
    Shape { name: "one word in a topic", words: 1, in_topic: true, recent: false },
    Shape { name: "two words", words: 2, in_topic: false, recent: false },
    Shape { name: "two words in a topic", words: 2, in_topic: true, recent: false },
    Shape { name: "one word in a topic, this week", words: 1, in_topic: true, recent: true },
];

pub(super) async fn measure(bench: &mut Bench, name: &'static str, index: &dyn SearchIndex) -> anyhow::Result<()> {
    let (batch, queries) = (bench.options.stores.index_batch.max(1), bench.options.stores.queries as u64 / 2);
    ensure!(index.stats().await?.documents == 0, "there are posts in this index already");
    let mut filled = 0;
    for size in bench.options.sizes.clone() {
        let (began, cpu) = (Instant::now(), cpu_time());
        for first in (filled..size).step_by(batch as usize) {
            let last = size.min(first + batch);
            let changes = (first..last).map(|n| DocumentChange::Put(Box::new(post(n)))).collect();
            index.apply(changes, Seq(last).into()).await?;
        }
        let (took, cpu) = (began.elapsed(), cpu_time() - cpu);
        let added = (size - filled).max(1) as f64;
        let stats = index.stats().await?;
        let row = format!("{} posts, filling", number(size as f64));
        let place = Place { part: "search", of: name, row: &row };
        bench.report.figure(place, "posts", "/s", added / took.as_secs_f64());
        bench.report.figure(place, "CPU here each", "µs", micros(cpu) / added);
        bench.report.figure(place, "disk of each", "bytes", stats.bytes as f64 / size.max(1) as f64);
        filled = size;
        // Everything at once, so that no shape finds caches as another left them.
        let mut timings: [Timings; SHAPES.len()] = Default::default();
        let (mut hits, mut all) = ([0; SHAPES.len()], Timings::default());
        for n in 0..queries {
            for (place, shape) in SHAPES.iter().enumerate() {
                let search = shape.search(mixed(n ^ size) % size);
                let asked = Instant::now();
                hits[place] += index.search(&search).await?.len();
                let took = asked.elapsed();
                timings[place].push(took);
                all.push(took);
            }
        }
        let asked = queries.max(1) as f64;
        for ((shape, times), hits) in SHAPES.iter().zip(&mut timings).zip(hits) {
            tell(bench, name, &format!("{} posts, {}", number(size as f64), shape.name), times, hits as f64 / asked);
        }
        let hits = hits.iter().sum::<usize>() as f64 / (asked * SHAPES.len() as f64);
        tell(bench, name, &format!("{} posts, all", number(size as f64)), &mut all, hits);
    }
    Ok(())
}

impl Shape {
    /// The question that the nth post answers.
    fn search(&self, n: u64) -> Search {
        let body = post(n).text.body;
        let words: Vec<&str> = body.split(' ').take(self.words).collect();
        // Every made-up word is one.
        let query = SearchQuery::parse(&words.join(" ")).unwrap_or_else(|_| unreachable!("{words:?}"));
        let mut search = Search::new(query, NOW, LIMIT);
        search.topics = self.in_topic.then(|| vec![topic(n)]);
        search.since = self.recent.then_some(WEEK_AGO);
        search
    }
}

fn tell(bench: &mut Bench, of: &str, row: &str, times: &mut Timings, hits: f64) {
    let place = Place { part: "search", of, row };
    bench.report.figure(place, "p50", "ms", millis(times.percentile(50)));
    bench.report.figure(place, "p99", "ms", millis(times.percentile(99)));
    bench.report.figure(place, "hits", "", hits);
}
