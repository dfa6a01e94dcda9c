//! What only a store on a server is asked: what limits it, how many sessions it needs, what several writers reach.

use std::{
    fmt, fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use kukuri_store::Store;
use kukuri_store_postgres::{PostgresOptions, PostgresStore};
use sqlx::{Connection, PgConnection, Row as _};

use super::{Options, figures::Subject, writers::Race};
use crate::{
    say,
    timing::{Timings, millis},
};

/// Of the kernel's clock, which counts what processes have used.
const TICKS_PER_SECOND: f64 = 100.0;
const ASKERS: [usize; 5] = [1, 2, 4, 8, 16];
const SESSIONS: [u32; 5] = [1, 2, 4, 8, 16];
const WRITERS: usize = 4;

/// What a server and this process have done, in all or in a time.
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
            server_cpu: cpu_of_server(backend).unwrap_or_default(),
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

/// A process, by /proc.
struct Used {
    parent: u32,
    cpu: Duration,
    /// Of its children that have ended.
    ended: Duration,
}

fn used(process: &str) -> Option<Used> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
    let time = |one: usize, two: usize| Some(Duration::from_secs_f64((ticks(one)? + ticks(two)?) / TICKS_PER_SECOND));
    Some(Used { parent: fields.get(1)?.parse().ok()?, cpu: time(11, 12)?, ended: time(13, 14)? })
}

/// The processor time of all processes of the server that this backend belongs to.
fn cpu_of_server(backend: i32) -> Option<Duration> {
    let postmaster = used(&backend.to_string())?.parent;
    let itself = used(&postmaster.to_string())?;
    let mut sum = itself.cpu + itself.ended;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        if let Some(process) = entry.file_name().to_str().and_then(used).filter(|process| process.parent == postmaster)
        {
            sum += process.cpu;
        }
    }
    Some(sum)
}

pub(super) async fn measure(url: &str, mut subject: Subject, options: &Options) -> anyhow::Result<()> {
    sessions(url, &mut subject, options.queries).await?;
    recalls(url, &mut subject, options.queries).await?;
    writers(url, &subject, options)
}

/// Many who ask at a time, by sessions that there may be.
async fn sessions(url: &str, subject: &mut Subject, times: usize) -> anyhow::Result<()> {
    say(format_args!("\nnewest 50 in topic, by how many ask at a time: a second (p50 ms)"));
    let names: String = ASKERS.iter().map(|askers| format!("{askers:>16}")).collect();
    say(format_args!("  {:<12}{names}", "sessions"));
    let queries: Arc<[_]> = (0..times).map(|_| subject.newest_50()).collect();
    for sessions in SESSIONS {
        let options = PostgresOptions { readers: sessions, ..PostgresOptions::default() };
        let store = Arc::new(PostgresStore::connect(url, options).await?);
        let mut text = String::new();
        for askers in ASKERS {
            let queries = Arc::clone(&queries);
            let ask = move |store: Arc<PostgresStore>, turn: usize| {
                let queries = Arc::clone(&queries);
                async move { Ok(store.query(&queries[turn % queries.len()]).await.map(drop)?) }
            };
            // Statements are prepared, and sessions there, before it counts.
            together(&store, askers, times / 4, ask.clone()).await?;
            let (per_second, mut timings) = together(&store, askers, times, ask).await?;
            text += &format!("{:>16}", format!("{per_second:.0} ({:.2})", millis(timings.percentile(50))));
        }
        say(format_args!("  {sessions:<12}{text}"));
        close(store).await?;
    }
    Ok(())
}

/// Ids that are looked up one by one, as a relay does for each event that comes in.
async fn recalls(url: &str, subject: &mut Subject, times: usize) -> anyhow::Result<()> {
    say(format_args!("\nrecall of one id, by how many ask at a time: a second (p50 ms)"));
    let store = Arc::new(PostgresStore::connect(url, PostgresOptions::default()).await?);
    let ids: Arc<[_]> = (0..times).map(|_| subject.known_id()).collect();
    let now = subject.corpus.now();
    for askers in [1, 8, 64, 512] {
        let ids = Arc::clone(&ids);
        let ask = move |store: Arc<PostgresStore>, turn: usize| {
            let id = ids[turn % ids.len()];
            async move { Ok(store.recall(&[id], now).await.map(drop)?) }
        };
        together(&store, askers, times, ask.clone()).await?;
        let (per_second, mut timings) = together(&store, askers, 4 * times, ask).await?;
        say(format_args!("  {askers:<12}{per_second:.0} ({:.3})", millis(timings.percentile(50))));
    }
    close(store).await
}

/// So many tasks ask in turn until all is asked. Returns answers per second, and how long each took.
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
    Ok(Arc::into_inner(store).context("somebody still asks")?.close().await?)
}

fn writers(url: &str, subject: &Subject, options: &Options) -> anyhow::Result<()> {
    let race = Race { url, events: options.shared, batch: options.batch };
    let mut after = subject.corpus.made();
    let mut race = |processes| {
        let per_second = race.run(processes, 1_000 + after, after);
        after += options.shared as u64;
        per_second
    };
    // Tables grow meanwhile: before and after is fair.
    let (before, together, alone) = (race(1)?, race(WRITERS)?, race(1)?);
    let alone = (before + alone) / 2.0;
    say(format_args!(
        "\n{WRITERS} processes that write: {together:.0} events/s together = {:.2}x one alone ({alone:.0})",
        together / alone
    ));
    Ok(())
}
