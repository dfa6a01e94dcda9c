//! Measurements of a store on a server alone: its limits, the sessions it needs, several writers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use kukuri_store::port::*;
use kukuri_store_postgres::{PostgresOptions, PostgresStore};
use sqlx::{Connection, PgConnection, Row as _};

use super::{figures::Subject, writers::Race};
use crate::{
    parts::Bench,
    relay::process::{cpu_of_tree, parent_of},
    report::Place,
    timing::{Timings, millis},
};

const ASKERS: [usize; 5] = [1, 2, 4, 8, 16];
const SESSIONS: [u32; 5] = [1, 2, 4, 8, 16];
const WRITERS: u64 = 4;

/// CPU time and log of a server and this process, since the start or in a time.
pub(crate) struct Load {
    batches: usize,
    wall: Duration,
    server_cpu: Duration,
    /// While it waited for the store.
    client_cpu: Duration,
    log_bytes: f64,
}

impl Load {
    /// So far. The server's processor time is known only if it runs here.
    pub(super) async fn of(url: Option<&str>) -> anyhow::Result<Option<Self>> {
        let Some(url) = url else { return Ok(None) };
        let mut session = PgConnection::connect(url).await?;
        let row = sqlx::query("SELECT pg_backend_pid() AS pid, (pg_current_wal_insert_lsn() - '0/0')::float8 AS log")
            .fetch_one(&mut session)
            .await?;
        let backend: i32 = row.try_get("pid")?;
        let load = Self {
            batches: 0,
            wall: Duration::ZERO,
            // Its backends are children of one process.
            server_cpu: parent_of(backend as u32).map_or(Duration::ZERO, cpu_of_tree),
            client_cpu: Duration::ZERO,
            log_bytes: row.try_get("log")?,
        };
        session.close().await?;
        Ok(Some(load))
    }

    pub(super) fn since(&self, before: &Self, batches: &Timings, client_cpu: Duration) -> Self {
        Self {
            batches: batches.len(),
            wall: batches.total(),
            server_cpu: self.server_cpu.saturating_sub(before.server_cpu),
            client_cpu,
            log_bytes: self.log_bytes - before.log_bytes,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = self.batches.max(1) as f64;
        let each = |time: Duration| millis(time) / batches;
        write!(
            out,
            "a batch takes {:.0} ms: processor time {:.0} ms of the server, {:.0} ms of this process, the rest is waiting; \
             {:.1} MB of log",
            each(self.wall),
            each(self.server_cpu),
            each(self.client_cpu),
            self.log_bytes / batches / 1e6,
        )
    }
}

pub(super) async fn measure(url: &str, mut subject: Subject, bench: &mut Bench) -> anyhow::Result<()> {
    sessions(url, &mut subject, bench).await?;
    recalls(url, &mut subject, bench).await?;
    writers(url, &subject, bench)
}

/// Concurrent queries, by the number of sessions.
async fn sessions(url: &str, subject: &mut Subject, bench: &mut Bench) -> anyhow::Result<()> {
    let (times, now) = (bench.options.stores.queries, bench.corpus.time(subject.loaded));
    let queries: Arc<[_]> = (0..times).map(|_| subject.newest_50(now)).collect();
    for sessions in SESSIONS {
        let options = PostgresOptions { readers: sessions, ..PostgresOptions::default() };
        let store = Arc::new(PostgresStore::connect(url, options).await?);
        for askers in ASKERS {
            let queries = Arc::clone(&queries);
            let ask = move |store: Arc<PostgresStore>, turn: usize| {
                let queries = Arc::clone(&queries);
                async move { Ok(store.query(&queries[turn % queries.len()]).await.map(drop)?) }
            };
            // Statements are prepared, and sessions there, before it counts.
            together(&store, askers, times / 4, ask.clone()).await?;
            let asked = together(&store, askers, times, ask).await?;
            told(bench, &format!("newest 50 in topic, {sessions} sessions, {askers} ask"), asked);
        }
        close(store).await?;
    }
    Ok(())
}

/// Ids that are looked up one by one, as a relay does for each event that comes in.
async fn recalls(url: &str, subject: &mut Subject, bench: &mut Bench) -> anyhow::Result<()> {
    let times = bench.options.stores.queries;
    let store = Arc::new(PostgresStore::connect(url, PostgresOptions::default()).await?);
    let ids: Arc<[_]> = (0..times).map(|_| subject.known_id()).collect();
    let now = bench.corpus.time(subject.loaded);
    for askers in [1, 8, 64, 512] {
        let ids = Arc::clone(&ids);
        let ask = move |store: Arc<PostgresStore>, turn: usize| {
            let id = ids[turn % ids.len()];
            async move { Ok(store.recall(&[id], now).await.map(drop)?) }
        };
        together(&store, askers, times, ask.clone()).await?;
        let asked = together(&store, askers, 4 * times, ask).await?;
        told(bench, &format!("recall of one id, {askers} ask"), asked);
    }
    close(store).await
}

fn told(bench: &mut Bench, row: &str, (per_second, mut timings): (f64, Timings)) {
    let place = Place { part: "store", of: "postgres", row };
    bench.report.figure(place, "answers", "/s", per_second);
    bench.report.figure(place, "p50", "ms", millis(timings.percentile(50)));
}

/// Several tasks ask in turn until all is asked. Returns answers per second, and the time of each.
async fn together<A, F>(
    store: &Arc<PostgresStore>,
    askers: usize,
    times: usize,
    ask: A,
) -> anyhow::Result<(f64, Timings)>
where
    A: Fn(Arc<PostgresStore>, usize) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let turns = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let tasks = (0..askers).map(|_| {
        let (store, turns, ask) = (Arc::clone(store), Arc::clone(&turns), ask.clone());
        tokio::spawn(async move {
            let mut timings = Timings::default();
            loop {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                if turn >= times {
                    return anyhow::Ok(timings);
                }
                let start = Instant::now();
                ask(Arc::clone(&store), turn).await?;
                timings.add(start);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut all = Timings::default();
    for task in tasks {
        all.merge(task.await??);
    }
    Ok((times as f64 / start.elapsed().as_secs_f64(), all))
}

async fn close(store: Arc<PostgresStore>) -> anyhow::Result<()> {
    Ok(Arc::into_inner(store).context("a query still runs")?.close().await?)
}

fn writers(url: &str, subject: &Subject, bench: &mut Bench) -> anyhow::Result<()> {
    let stores = &bench.options.stores;
    let (shared, start) = (stores.shared, bench.corpus.start());
    let race = Race { url, events: shared, batch: stores.batch, start };
    let mut after = subject.loaded;
    let mut race = |processes| {
        let per_second = race.run(processes, 1_000 + after, after);
        after += shared;
        per_second
    };
    // Tables grow meanwhile: before and after is fair.
    let (before, together, alone) = (race(1)?, race(WRITERS)?, race(1)?);
    let alone = (before + alone) / 2.0;
    let row = format!("{WRITERS} processes that write");
    let place = Place { part: "store", of: "postgres", row: &row };
    bench.report.figure(place, "events", "/s", together);
    bench.report.figure(place, "one alone, events", "/s", alone);
    bench.report.figure(place, "together / alone", "", together / alone);
    Ok(())
}
