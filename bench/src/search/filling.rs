//! An index by itself: how fast it is filled, how large it becomes, and whether a question costs more when there is more.

use std::time::Instant;

use anyhow::ensure;
use kukuri_domain::Timestamp;
use kukuri_search::{Change, Search, SearchIndex, SearchQuery};
use kukuri_store::Seq;

use super::{
    Options,
    posts::{NOW, post, topic},
};
use crate::{
    corpus::mixed,
    say,
    timing::{Timings, cpu_time, millis},
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

pub(super) async fn measure(name: &str, index: &dyn SearchIndex, options: &Options) -> anyhow::Result<()> {
    ensure!(index.stats().await?.documents == 0, "there are posts in this index already");
    let mut filled = 0;
    for &size in &options.sizes {
        let (began, cpu) = (Instant::now(), cpu_time());
        for first in (filled..size).step_by(options.batch.max(1) as usize) {
            let last = size.min(first + options.batch.max(1));
            let changes = (first..last).map(|n| Change::Put(Box::new(post(n)))).collect();
            index.apply(changes, Seq(last).into()).await?;
        }
        let (took, cpu) = (began.elapsed(), cpu_time() - cpu);
        let added = (size - filled).max(1) as f64;
        let stats = index.stats().await?;
        say(format_args!(
            "\n{name}, {size} posts: {:.0} a second in commits of {} ({:.0} µs CPU here each), {} bytes each",
            added / took.as_secs_f64(),
            options.batch,
            cpu.as_secs_f64() * 1e6 / added,
            stats.bytes / size.max(1),
        ));
        filled = size;
        // Everything at once, so that no shape finds caches as another left them.
        let mut timings: [Timings; SHAPES.len()] = Default::default();
        let (mut hits, mut all) = ([0; SHAPES.len()], Timings::default());
        for n in 0..options.queries {
            for (place, shape) in SHAPES.iter().enumerate() {
                let search = shape.search(mixed(n ^ size) % size);
                let asked = Instant::now();
                hits[place] += index.search(&search).await?.len();
                let took = asked.elapsed();
                timings[place].push(took);
                all.push(took);
            }
        }
        for ((shape, times), hits) in SHAPES.iter().zip(&mut timings).zip(hits) {
            tell(shape.name, times, hits as f64 / options.queries.max(1) as f64);
        }
        tell(
            "all",
            &mut all,
            hits.iter().sum::<usize>() as f64 / (options.queries.max(1) as f64 * SHAPES.len() as f64),
        );
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

fn tell(name: &str, times: &mut Timings, hits: f64) {
    let at = |times: &mut Timings, percent| millis(times.percentile(percent));
    let (p50, p99) = (at(times, 50), at(times, 99));
    say(format_args!("  {name:<32} p50 {p50:>8.2} ms   p99 {p99:>8.2} ms   {hits:.1} hits"));
}
