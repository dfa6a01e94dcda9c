//! Measurements of a store at one size.

use std::time::{Duration, Instant};

use kukuri_domain::{EventId, Filter, Kind, Letter, Millis, Timestamp, Viewer};
use kukuri_store::{Query, Seq, Store, report};

use super::server::Load;
use crate::{
    corpus::{Corpus, Random, TOPICS, mixed, regular, topic_id},
    parts::Bench,
    report::{Place, number},
    timing::{Timings, cpu_time, millis},
};

/// A store that is measured, and how far it is filled.
pub(crate) struct Subject {
    pub(super) name: &'static str,
    pub(super) store: Box<dyn Store>,
    random: Random,
    /// Some of the ids that were loaded.
    ids: Vec<EventId>,
    pub(super) loaded: u64,
}

/// The ingredients of a query.
struct Asking<'a> {
    corpus: &'a Corpus,
    subject: &'a mut Subject,
    now: Millis,
}

impl Subject {
    pub(super) fn new(name: &'static str, store: Box<dyn Store>) -> Self {
        Self { name, store, random: Random::new(99), ids: Vec::new(), loaded: 0 }
    }

    /// Loads it up to this size and asks it. The server at `url`, if there is one, is watched while it is loaded.
    pub(super) async fn measure(&mut self, bench: &mut Bench, size: u64, url: Option<&str>) -> anyhow::Result<()> {
        let (name, stores) = (self.name, &bench.options.stores);
        let singles = stores.singles.min(size / 10);
        let before = Load::of(url).await?;
        let wanted = size.saturating_sub(self.loaded + singles);
        let (mut commits, cpu) = self.load(&bench.corpus, wanted, stores.batch).await?;
        let after = Load::of(url).await?;
        let (single, _) = self.load(&bench.corpus, singles, 1).await?;
        let stats = self.store.stats().await?;
        let stored = report::total(&stats.by_class);

        let row = format!("{} events, ingest", number(size as f64));
        let place = Place { part: "store", of: name, row: &row };
        let per_second = commits.per_second() * wanted as f64 / commits.len().max(1) as f64;
        let disk = stats.disk_bytes.unwrap_or_default() as f64 / stored.events as f64;
        let verifications = bench.report.yardsticks.verifications;
        let report = &mut bench.report;
        report.figure(place, "events", "/s", per_second);
        report.figure(place, "/ one core verifies", "", per_second / verifications);
        report.figure(place, "one a batch, events", "/s", single.per_second());
        report.figure(place, "commit p50", "ms", millis(commits.percentile(50)));
        report.figure(place, "commit p99", "ms", millis(commits.percentile(99)));
        report.figure(place, "disk per event", "bytes", disk);
        report.figure(place, "disk / JSON", "", disk / (stored.bytes as f64 / stored.events as f64));
        if let Some((after, before)) = after.zip(before) {
            report.words(place, "load", after.since(&before, &commits, cpu).to_string());
        }
        self.ask(bench, size).await
    }

    /// Takes events in. Returns how long each batch took, and the processor time that this process spent on all.
    async fn load(&mut self, corpus: &Corpus, events: u64, batch: u64) -> anyhow::Result<(Timings, Duration)> {
        let (mut left, mut commits, mut cpu) = (events, Timings::default(), Duration::ZERO);
        while left > 0 {
            let count = left.min(batch.max(1));
            let events = corpus.admitted(self.loaded..self.loaded + count)?;
            left -= count;
            self.loaded += count;
            self.ids.extend(events.iter().step_by(8).map(|admitted| admitted.event().id));
            let now = corpus.time(self.loaded);
            let (start, used) = (Instant::now(), cpu_time());
            self.store.ingest(events, now).await?;
            commits.add(start);
            cpu += cpu_time().saturating_sub(used);
        }
        Ok((commits, cpu))
    }

    async fn ask(&mut self, bench: &mut Bench, size: u64) -> anyhow::Result<()> {
        let times = bench.options.stores.queries;
        let (name, now) = (self.name, bench.corpus.time(self.loaded));
        for (shape, filter) in SHAPES {
            let mut timings = Timings::default();
            let mut rows = 0;
            // The first tenth warms up.
            for round in 0..times + times / 10 {
                let mut asking = Asking { corpus: &bench.corpus, subject: self, now };
                let query = Query::of(filter(&mut asking), Viewer::stranger(), now);
                let start = Instant::now();
                let answer = self.store.query(&query).await?;
                if round >= times / 10 {
                    timings.add(start);
                    rows += answer.events.len();
                }
            }
            answered(bench, name, size, shape, timings, rows);
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
        answered(bench, name, size, "outbox, 1,000 rows", timings, rows);
        Ok(())
    }

    /// One of the ids that were loaded.
    pub(super) fn known_id(&mut self) -> EventId {
        self.ids[self.random.below(self.ids.len() as u64) as usize]
    }

    pub(super) fn newest_50(&mut self, now: Millis) -> Query {
        Query::of(self.in_topic().with_limit(50), Viewer::stranger(), now)
    }

    fn in_topic(&mut self) -> Filter {
        let topic = topic_id(self.random.skewed(TOPICS));
        Filter::new().with_tag(Letter::T, [topic.as_str()])
    }
}

fn answered(bench: &mut Bench, store: &str, size: u64, shape: &str, mut timings: Timings, rows: usize) {
    // A larger answer costs more.
    let rows = rows as f64 / timings.len().max(1) as f64;
    let row = format!("{} events, {shape}", number(size as f64));
    let place = Place { part: "store", of: store, row: &row };
    bench.report.figure(place, "queries", "/s", timings.per_second());
    bench.report.figure(place, "p50", "ms", millis(timings.percentile(50)));
    bench.report.figure(place, "p99", "ms", millis(timings.percentile(99)));
    bench.report.figure(place, "rows", "", rows);
}

type Shape = fn(&mut Asking<'_>) -> Filter;

const SHAPES: [(&str, Shape); 5] = [
    ("newest 50 in topic", |asking| asking.subject.in_topic().with_limit(50)),
    ("topic + kinds, 50", |asking| asking.subject.in_topic().with_kinds([Kind(1), Kind(1111)]).with_limit(50)),
    ("topic + 20 authors, 50", |asking| {
        let topic = asking.subject.random.skewed(TOPICS);
        // Its regular authors, and others.
        let others = (0..17).map(|_| mixed(asking.subject.random.next()) % 5_000);
        let authors: Vec<u64> = (0..3).map(|which| regular(topic, which)).chain(others).collect();
        let filter = Filter::new().with_tag(Letter::T, [topic_id(topic).as_str()]);
        filter.with_authors(authors.into_iter().map(|author| asking.corpus.pubkey(author))).with_limit(50)
    }),
    ("100 ids", |asking| {
        let ids: Vec<_> = (0..100).map(|_| asking.subject.known_id()).collect();
        Filter::new().with_ids(ids)
    }),
    ("an hour of a topic, 500", |asking| {
        let end = asking.now.seconds().0 - asking.subject.random.below(600);
        asking.subject.in_topic().with_since(Timestamp(end - 3_600)).with_until(Timestamp(end)).with_limit(500)
    }),
];
