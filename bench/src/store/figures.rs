//! What is measured of a store at one size.

use std::time::{Duration, Instant};

use kukuri_domain::{Admitted, EventId, Filter, Kind, Letter, Timestamp, Viewer};
use kukuri_store::{Query, Seq, Store, report};

use super::{Options, server::Load};
use crate::{
    corpus::{Corpus, Random},
    timing::{Timings, cpu_time},
};

/// A store that is measured, and what it is fed with.
pub(crate) struct Subject {
    pub(super) name: &'static str,
    pub(super) store: Box<dyn Store>,
    pub(super) corpus: Corpus,
    pub(super) figures: Vec<Figures>,
    random: Random,
    /// Some of the ids that were loaded.
    ids: Vec<EventId>,
    loaded: usize,
}

/// The figures at one size.
pub(crate) struct Figures {
    pub(super) events: usize,
    pub(super) ingest_per_second: f64,
    pub(super) commit_p50: Duration,
    pub(super) commit_p99: Duration,
    /// What the server and this process did meanwhile.
    pub(super) load: Option<Load>,
    pub(super) singles_per_second: f64,
    pub(super) bytes_per_event: f64,
    pub(super) json_per_event: f64,
    pub(super) queries: Vec<Answered>,
}

/// How one kind of query was answered.
pub(crate) struct Answered {
    pub(super) name: &'static str,
    pub(super) per_second: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// The mean number of rows in an answer: a larger answer costs more.
    pub(super) rows: f64,
}

impl Subject {
    pub(super) fn new(name: &'static str, store: Box<dyn Store>, options: &Options) -> anyhow::Result<Self> {
        let corpus = Corpus::new(options.seed)?;
        Ok(Self { name, store, corpus, figures: Vec::new(), random: Random::new(99), ids: Vec::new(), loaded: 0 })
    }

    /// Loads it up to this size and asks it. The server at `url`, if there is one, is watched while it is loaded.
    pub(super) async fn measure(
        &mut self,
        options: &Options,
        size: usize,
        url: Option<&str>,
    ) -> anyhow::Result<Figures> {
        let before = Load::of(url).await?;
        let wanted = size.saturating_sub(self.loaded);
        let (mut commits, cpu) = self.load(wanted, options.batch).await?;
        let after = Load::of(url).await?;
        let (singles, _) = self.load(options.singles, 1).await?;
        self.loaded = size + options.singles;
        let stats = self.store.stats().await?;
        let stored = report::total(&stats.by_class);
        Ok(Figures {
            events: size,
            ingest_per_second: commits.per_second() * wanted as f64 / commits.len().max(1) as f64,
            commit_p50: commits.percentile(50),
            commit_p99: commits.percentile(99),
            load: after.zip(before).map(|(after, before)| after.since(&before, &commits, cpu)),
            singles_per_second: singles.per_second(),
            bytes_per_event: stats.disk_bytes.unwrap_or_default() as f64 / stored.events as f64,
            json_per_event: stored.bytes as f64 / stored.events as f64,
            queries: self.ask(options.queries).await?,
        })
    }

    /// Takes events in. Returns how long each batch took, and the processor time that this process spent on all.
    async fn load(&mut self, events: usize, batch: usize) -> anyhow::Result<(Timings, Duration)> {
        let (mut left, mut commits, mut cpu) = (events, Timings::default(), Duration::ZERO);
        while left > 0 {
            let events = self.corpus.take(left.min(batch))?;
            left -= events.len();
            self.note(&events);
            let now = self.corpus.now();
            let (start, used) = (Instant::now(), cpu_time());
            self.store.ingest(events, now).await?;
            commits.add(start);
            cpu += cpu_time().saturating_sub(used);
        }
        Ok((commits, cpu))
    }

    fn note(&mut self, batch: &[Admitted]) {
        self.ids.extend(batch.iter().step_by(8).map(|admitted| admitted.event().id));
    }

    async fn ask(&mut self, times: usize) -> anyhow::Result<Vec<Answered>> {
        let now = self.corpus.now();
        let mut figures = Vec::new();
        for (name, filter) in SHAPES {
            let mut timings = Timings::default();
            let mut rows = 0;
            // The first tenth warms up.
            for round in 0..times + times / 10 {
                let query = Query::of(filter(self), Viewer::stranger(), now);
                let start = Instant::now();
                let answer = self.store.query(&query).await?;
                if round >= times / 10 {
                    timings.add(start);
                    rows += answer.events.len();
                }
            }
            figures.push(answered(name, timings, rows));
        }
        let head = self.store.stats().await?.head.0;
        let mut timings = Timings::default();
        let mut rows = 0;
        for _ in 0..times / 4 {
            let after = Seq(self.random.below(head.saturating_sub(1_000).max(1)));
            let start = Instant::now();
            rows += self.store.outbox(after, 1_000).await?.len();
            timings.add(start);
        }
        figures.push(answered("outbox, 1,000 rows", timings, rows));
        Ok(figures)
    }

    /// One of the ids that were loaded.
    pub(super) fn known_id(&mut self) -> EventId {
        self.ids[self.random.below(self.ids.len() as u64) as usize]
    }

    pub(super) fn newest_50(&mut self) -> Query {
        Query::of(in_topic(&mut self.corpus).with_limit(50), Viewer::stranger(), self.corpus.now())
    }
}

fn answered(name: &'static str, mut timings: Timings, rows: usize) -> Answered {
    let rows = rows as f64 / timings.len().max(1) as f64;
    Answered { name, per_second: timings.per_second(), p50: timings.percentile(50), p99: timings.percentile(99), rows }
}

type Shape = fn(&mut Subject) -> Filter;

const SHAPES: [(&str, Shape); 5] = [
    ("newest 50 in topic", |subject| in_topic(&mut subject.corpus).with_limit(50)),
    ("topic + kinds, 50", |subject| in_topic(&mut subject.corpus).with_kinds([Kind(1), Kind(1111)]).with_limit(50)),
    ("topic + 20 authors, 50", |subject| {
        let authors: Vec<_> = (0..20).map(|_| subject.corpus.author()).collect();
        in_topic(&mut subject.corpus).with_authors(authors).with_limit(50)
    }),
    ("100 ids", |subject| {
        let ids: Vec<_> = (0..100).map(|_| subject.known_id()).collect();
        Filter::new().with_ids(ids)
    }),
    ("5 minutes of a topic, 500", |subject| {
        let end = subject.corpus.now().seconds().0 - subject.random.below(60);
        in_topic(&mut subject.corpus).with_since(Timestamp(end - 300)).with_until(Timestamp(end)).with_limit(500)
    }),
];

fn in_topic(corpus: &mut Corpus) -> Filter {
    let topic = corpus.topic();
    Filter::new().with_tag(Letter::T, [topic.as_str()])
}
