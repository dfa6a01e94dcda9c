//! Loading and asking a store, at growing sizes: does the cost of a query stay the same?

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use kukuri_domain::{EventId, Filter, Kind, Letter, Timestamp, Viewer};
use kukuri_store::{Query, Seq, Store, report};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{
    corpus::Corpus,
    say,
    timing::{Timings, millis},
    yardstick,
};

/// What `cargo xtask bench store` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Which store.
    #[arg(long, value_enum, default_value_t = Kept::Lmdb)]
    store: Kept,
    /// The empty database that a store on Postgres is made in. `cargo xtask bench` brings one.
    #[arg(long, env = "KUKURI_TEST_POSTGRES", hide_env_values = true)]
    url: Option<String>,
    /// Numbers of events to measure at, ascending.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    sizes: Vec<usize>,
    /// The most events in one transaction.
    #[arg(long, default_value_t = 4_096)]
    batch: usize,
    /// How often each query is run.
    #[arg(long, default_value_t = 2_000)]
    queries: usize,
    /// Where the store is made; a temporary directory under target/ by default.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The seed of the corpus.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where events are kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// In files of the node's own.
    Lmdb,
    /// On a server.
    Postgres,
}

/// The figures at one size.
struct Figures {
    events: usize,
    ingest_per_second: f64,
    commit_p50: Duration,
    commit_p99: Duration,
    bytes_per_event: f64,
    json_per_event: f64,
    queries: Vec<Answered>,
}

/// How one kind of query was answered.
struct Answered {
    name: &'static str,
    per_second: f64,
    p50: Duration,
    p99: Duration,
    /// The mean number of rows in an answer: a larger answer costs more.
    rows: f64,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let parent = options.dir.clone().unwrap_or_else(|| PathBuf::from("target/bench"));
    std::fs::create_dir_all(&parent)?;
    let dir = tempfile::tempdir_in(&parent).with_context(|| format!("{}", parent.display()))?;

    let verifications = yardstick::verifications_per_second()?;
    let sync = yardstick::sync_time(dir.path())?;
    say(format_args!(
        "yardsticks: {verifications:.0} verifications/s on one core, fdatasync p50 {:.2} ms",
        millis(sync)
    ));
    say(format_args!("durable ingest in batches of up to {}, one thread, corpus seed {}", options.batch, options.seed));

    let store: Box<dyn Store> = match options.store {
        Kept::Lmdb => Box::new(LmdbStore::open(dir.path().join("store"), LmdbOptions::default())?),
        Kept::Postgres => {
            let url = options.url.as_deref().context("--url names the database")?;
            Box::new(PostgresStore::connect(url, PostgresOptions::default()).await?)
        }
    };
    ensure!(store.stats().await?.ids == 0, "there are events in this store already");
    let mut corpus = Corpus::new(options.seed)?;
    let mut asking = Asking { random: crate::corpus::Random::new(99), ids: Vec::new() };
    let mut all = Vec::new();
    let mut loaded = 0;
    for &size in &options.sizes {
        let figures = measure(&*store, &mut corpus, &mut asking, &options, loaded, size).await?;
        print(&figures, verifications);
        all.push(figures);
        loaded = size;
    }
    compare(&all);
    Ok(())
}

async fn measure(
    store: &dyn Store,
    corpus: &mut Corpus,
    asking: &mut Asking,
    options: &Options,
    loaded: usize,
    size: usize,
) -> anyhow::Result<Figures> {
    let mut commits = Timings::default();
    let mut busy = Duration::ZERO;
    let mut left = size - loaded;
    while left > 0 {
        let batch = corpus.take(left.min(options.batch))?;
        left -= batch.len();
        asking.note(&batch);
        let now = corpus.now();
        let start = Instant::now();
        store.ingest(batch, now).await?;
        busy += start.elapsed();
        commits.add(start);
    }
    let stats = store.stats().await?;
    let stored = report::total(&stats.by_class);
    Ok(Figures {
        events: size,
        ingest_per_second: (size - loaded) as f64 / busy.as_secs_f64(),
        commit_p50: commits.percentile(50),
        commit_p99: commits.percentile(99),
        bytes_per_event: stats.disk_bytes.unwrap_or_default() as f64 / stored.events as f64,
        json_per_event: stored.bytes as f64 / stored.events as f64,
        queries: asking.all(store, corpus, options.queries).await?,
    })
}

/// The questions that are asked of a store.
struct Asking {
    random: crate::corpus::Random,
    /// Some of the ids that were loaded.
    ids: Vec<EventId>,
}

impl Asking {
    fn note(&mut self, batch: &[kukuri_domain::Admitted]) {
        self.ids.extend(batch.iter().step_by(8).map(|admitted| admitted.event().id));
    }

    async fn all(&mut self, store: &dyn Store, corpus: &mut Corpus, times: usize) -> anyhow::Result<Vec<Answered>> {
        let now = corpus.now();
        let mut figures = Vec::new();
        for (name, filter) in SHAPES {
            let mut timings = Timings::default();
            let mut rows = 0;
            // The first tenth warms up.
            for round in 0..times + times / 10 {
                let query = Query::of(filter(self, corpus), Viewer::stranger(), now);
                let start = Instant::now();
                let answer = store.query(&query).await?;
                if round >= times / 10 {
                    timings.add(start);
                    rows += answer.events.len();
                }
            }
            figures.push(answered(name, timings, rows));
        }
        let head = store.stats().await?.head.0;
        let mut timings = Timings::default();
        let mut rows = 0;
        for _ in 0..times / 4 {
            let after = Seq(self.random.below(head.saturating_sub(1_000).max(1)));
            let start = Instant::now();
            rows += store.outbox(after, 1_000).await?.len();
            timings.add(start);
        }
        figures.push(answered("outbox, 1,000 rows", timings, rows));
        Ok(figures)
    }
}

fn answered(name: &'static str, mut timings: Timings, rows: usize) -> Answered {
    let rows = rows as f64 / timings.len().max(1) as f64;
    Answered { name, per_second: timings.per_second(), p50: timings.percentile(50), p99: timings.percentile(99), rows }
}

type Shape = fn(&mut Asking, &mut Corpus) -> Filter;

const SHAPES: [(&str, Shape); 5] = [
    ("newest 50 in topic", |_, corpus| in_topic(corpus).with_limit(50)),
    ("topic + kinds, 50", |_, corpus| in_topic(corpus).with_kinds([Kind(1), Kind(1111)]).with_limit(50)),
    ("topic + 20 authors, 50", |_, corpus| {
        let authors: Vec<_> = (0..20).map(|_| corpus.author()).collect();
        in_topic(corpus).with_authors(authors).with_limit(50)
    }),
    ("100 ids", |asking, _| {
        let count = asking.ids.len() as u64;
        let ids: Vec<_> = (0..100).map(|_| asking.ids[asking.random.below(count) as usize]).collect();
        Filter::new().with_ids(ids)
    }),
    ("5 minutes of a topic, 500", |asking, corpus| {
        let end = corpus.now().seconds().0 - asking.random.below(60);
        in_topic(corpus).with_since(Timestamp(end - 300)).with_until(Timestamp(end)).with_limit(500)
    }),
];

fn in_topic(corpus: &mut Corpus) -> Filter {
    let topic = corpus.topic();
    Filter::new().with_tag(Letter::T, [topic.as_str()])
}

fn print(figures: &Figures, verifications: f64) {
    say(format_args!("\n{} events", figures.events));
    say(format_args!(
        "  ingest {:>9.0} events/s = {:.2}x one core's verification; commit p50 {:.1} ms, p99 {:.1} ms",
        figures.ingest_per_second,
        figures.ingest_per_second / verifications,
        millis(figures.commit_p50),
        millis(figures.commit_p99),
    ));
    say(format_args!(
        "  disk   {:>9.0} bytes/event = {:.2}x its JSON",
        figures.bytes_per_event,
        figures.bytes_per_event / figures.json_per_event
    ));
    for Answered { name, per_second, p50, p99, rows } in &figures.queries {
        let (p50, p99) = (millis(*p50), millis(*p99));
        say(format_args!("  {name:<26} {per_second:>8.0} q/s   p50 {p50:.3} ms   p99 {p99:.3} ms   {rows:>6.1} rows"));
    }
}

/// How the median of each query grew from the smallest size to the largest.
fn compare(all: &[Figures]) {
    let (Some(small), Some(large)) = (all.first(), all.last()) else { return };
    if small.events == large.events {
        return;
    }
    say(format_args!("\np50 at {} events against {}:", large.events, small.events));
    for (before, after) in small.queries.iter().zip(&large.queries) {
        let (time, rows) = (after.p50.as_secs_f64() / before.p50.as_secs_f64(), after.rows / before.rows);
        say(format_args!("  {:<26} {time:.2}x the time, {rows:.2}x the rows", before.name));
    }
}
