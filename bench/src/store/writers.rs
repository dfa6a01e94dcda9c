//! Several processes that write to one database: their throughput together, against one alone.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, ensure};
use clap::Args;
use kukuri_store::port::*;
use kukuri_store_postgres::{PostgresOptions, PostgresStore};

use crate::{corpus::Corpus, say};

/// The command line of one of them.
#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    url: String,
    #[arg(long)]
    events: u64,
    #[arg(long)]
    batch: u64,
    #[arg(long)]
    seed: u64,
    /// How many events are older than its first.
    #[arg(long)]
    after: u64,
    /// The time of the corpus's first event.
    #[arg(long)]
    start: u64,
}

/// One of them: says when it is ready, waits for a line, writes, and ends.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let store = PostgresStore::connect(&options.url, PostgresOptions::default()).await?;
    let corpus = Corpus::new(options.seed, options.start)?;
    let (mut batches, end) = (Vec::new(), options.after + options.events);
    for first in (options.after..end).step_by(options.batch.max(1) as usize) {
        let last = end.min(first + options.batch.max(1));
        batches.push((corpus.admitted(first..last)?, corpus.time(last)));
    }
    say(format_args!("ready"));
    std::io::stdin().read_line(&mut String::new())?;
    for (batch, now) in batches {
        store.ingest(batch, now).await?;
    }
    say(format_args!("done"));
    Ok(())
}

/// A race of several processes, which write `events` together.
pub(crate) struct Race<'r> {
    pub(crate) url: &'r str,
    pub(crate) events: u64,
    pub(crate) batch: u64,
    /// The time of the corpus's first event.
    pub(crate) start: u64,
}

impl Race<'_> {
    /// Events a second of all together.
    pub(crate) fn run(&self, processes: u64, seed: u64, after: u64) -> anyhow::Result<f64> {
        let mut children = Vec::new();
        for number in 0..processes {
            children.push(Writer::start(self, self.events / processes, seed + number, after)?);
        }
        for child in &mut children {
            child.hear("ready")?;
        }
        let start = Instant::now();
        for child in &mut children {
            child.process.stdin.take().context("a pipe")?.write_all(b"go\n")?;
        }
        for child in &mut children {
            child.hear("done")?;
        }
        let took = start.elapsed();
        for child in &mut children {
            ensure!(child.process.wait()?.success(), "a writer failed");
        }
        Ok((self.events / processes * processes) as f64 / took.as_secs_f64())
    }
}

struct Writer {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Writer {
    fn start(race: &Race<'_>, events: u64, seed: u64, after: u64) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("store-writer").args(["--url", race.url]);
        let numbers = [
            ("--events", events),
            ("--batch", race.batch),
            ("--seed", seed),
            ("--after", after),
            ("--start", race.start),
        ];
        for (name, number) in numbers {
            command.args([name, &number.to_string()]);
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(process.stdout.take().context("a pipe")?);
        Ok(Self { process, said })
    }

    fn hear(&mut self, word: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        ensure!(line.trim() == word, "a writer said {line:?}");
        Ok(())
    }
}
