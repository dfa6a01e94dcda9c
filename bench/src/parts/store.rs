//! Loading and asking a store, at growing sizes: does the cost of a query stay the same? Answers are compared with those of
//! the oracle.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use kukuri_domain::{EventId, Filter, Viewer};
use kukuri_postgres::{Session, query};
use kukuri_store::{Query, Seq, Store, port::*, report::total};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use super::{Bench, req::Exam};
use crate::{
    corpus::{Corpus, Facts, mixed},
    relay::cpu_of_tree,
    report::number,
    requests::SHAPES,
    timings::Timings,
};

/// The most events in one transaction.
const BATCH: u64 = 4_096;
/// Events of each size that are taken in one by one, at most; at least nine times as many are in batches.
const MAX_SINGLES: u64 = 1_000;
/// How often requests of each shape are run.
const QUERIES: usize = 2_000;
const OUTBOX_READS: u64 = 500;
const OUTBOX_ROWS: usize = 1_000;

/// A store that is measured, and what it was filled with.
struct MeasuredStore {
    name: &'static str,
    store: Box<dyn Store>,
    /// Of the server, if it is on one.
    url: Option<String>,
    facts: Vec<Facts>,
}

pub(super) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let embedded = LmdbStore::open(bench.dir.join("store"), LmdbOptions::default())?;
    let mut stores = vec![MeasuredStore { name: "embedded", store: Box::new(embedded), url: None, facts: Vec::new() }];
    if let Some(url) = bench.options.database()? {
        let store = Box::new(PostgresStore::connect(url, PostgresOptions::default()).await?);
        ensure!(store.stats().await?.ids == 0, "there are events in this database already");
        stores.push(MeasuredStore { name: "postgres", store, url: Some(url.to_owned()), facts: Vec::new() });
    }
    for size in bench.options.sizes.clone() {
        for store in &mut stores {
            bench.report.subject.of = store.name.to_owned();
            store.fill(bench, size).await?;
            store.ask(bench, size).await?;
        }
    }
    Ok(())
}

fn row(size: u64, what: &str) -> String {
    format!("{} events, {what}", number(size as f64))
}

impl MeasuredStore {
    async fn fill(&mut self, bench: &mut Bench, size: u64) -> anyhow::Result<()> {
        let (singles, row) = (MAX_SINGLES.min(size / 10), &row(size, "ingest"));
        let count = size.saturating_sub(self.facts.len() as u64 + singles);
        let server_cpu = self.server_cpu().await?;
        let mut batches = self.load(&bench.corpus, count, BATCH).await?;
        let server_cpu = self.server_cpu().await?.saturating_sub(server_cpu);
        let single = self.load(&bench.corpus, singles, 1).await?;
        let stats = self.store.stats().await?;
        let stored = total(&stats.by_class);

        let per_second = batches.per_second() * count as f64 / batches.len().max(1) as f64;
        let disk = stats.disk_bytes.unwrap_or_default() as f64;
        let verifications = bench.report.yardsticks.verifications_per_second;
        let report = &mut bench.report;
        report.number(row, "throughput", "/s", per_second);
        report.number(row, "/ one core verifies", "", per_second / verifications);
        report.number(row, "throughput, one a batch", "/s", single.per_second());
        report.latency(row, &mut batches);
        report.number(row, "disk per event", "bytes", disk / stored.events as f64);
        report.number(row, "disk / JSON", "", disk / stored.bytes as f64);
        if self.url.is_some() {
            report.number(row, "server CPU each", "µs", server_cpu.as_secs_f64() * 1e6 / count.max(1) as f64);
        }
        Ok(())
    }

    /// Takes events in. Returns how long each batch took.
    async fn load(&mut self, corpus: &Corpus, count: u64, batch: u64) -> anyhow::Result<Timings> {
        let (first, mut timings) = (self.facts.len() as u64, Timings::default());
        for start in (first..first + count).step_by(batch as usize) {
            let end = (start + batch).min(first + count);
            let (facts, events): (Vec<_>, Vec<_>) = corpus.admitted(start..end)?.into_iter().unzip();
            self.facts.extend(facts);
            timings.time(self.store.ingest(events, corpus.time(end))).await?;
        }
        Ok(timings)
    }

    async fn ask(&self, bench: &mut Bench, size: u64) -> anyhow::Result<()> {
        let (exam, now) = (Exam::new(&bench.corpus, &self.facts), bench.corpus.time(size));
        let mut queries = Vec::new();
        for request in &exam.requests {
            let filter = Filter::from_json(request.filter.to_string())?;
            queries.push((request.shape, Query::of(filter, Viewer::unauthenticated(), now)));
        }
        let mut answers = Vec::new();
        for (_, query) in &queries {
            answers.push(self.store.query(query).await?.events.iter().map(|event| event.id).collect::<Vec<EventId>>());
        }
        exam.judge(&mut bench.report, &row(size, "answers"), &answers);

        for (shape, name) in SHAPES.iter().enumerate() {
            let mut timings = Timings::default();
            for (_, query) in queries.iter().filter(|(of, _)| *of == shape).cycle().take(QUERIES) {
                timings.time(self.store.query(query)).await?;
            }
            bench.report.latency(&row(size, name), &mut timings);
        }
        let (head, mut timings) = (self.store.stats().await?.head.0, Timings::default());
        for n in 0..OUTBOX_READS {
            let after = Seq(mixed(n) % head.saturating_sub(OUTBOX_ROWS as u64).max(1));
            timings.time(self.store.outbox(after, OUTBOX_ROWS)).await?;
        }
        bench.report.latency(&row(size, "outbox, 1,000 rows"), &mut timings);
        Ok(())
    }

    /// CPU time of the database server, if it runs on this machine.
    async fn server_cpu(&self) -> anyhow::Result<Duration> {
        let Some(url) = &self.url else { return Ok(Duration::ZERO) };
        let session = Session::connect(url).await?;
        let backend: i32 = query("SELECT pg_backend_pid()").fetch_value(&session).await?;
        // Every backend is a child of one process.
        let Ok(status) = fs::read_to_string(format!("/proc/{backend}/status")) else { return Ok(Duration::ZERO) };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("a parent process")?;
        let cpu = cpu_of_tree(parent.trim().parse()?);
        session.close().await;
        Ok(cpu)
    }
}
