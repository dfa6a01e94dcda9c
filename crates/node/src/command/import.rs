//! `import`: events from a file of one JSON object a line.
//!
//! Lines go through the same checks as a client's events. What is known already is passed over quickly, so a run that
//! broke off can simply be started again; `--skip` saves even that.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, bail};
use clap::Args;

use super::progress::Progress;
use crate::{
    config::Settings,
    control::{LineOutcome, Reply, Request, link::Link},
    output,
};

/// Lines that are taken in at a time.
const BATCH_LINES: usize = 1_000;
/// Their bytes together.
const BATCH_BYTES: usize = 8 << 20;
/// Refused lines that are named; the rest are counted.
const MOST_NAMED: u64 = 100;

/// What `import` takes.
#[derive(Args)]
pub(crate) struct Import {
    /// A file with one event a line, or - for standard input.
    file: PathBuf,
    /// Passes over this many lines at the beginning.
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    skip: u64,
}

#[derive(Default)]
struct Tally {
    lines: u64,
    stored: u64,
    known: u64,
    refused: u64,
}

/// Runs the command.
pub(crate) async fn run(settings: &Settings, options: Import) -> anyhow::Result<()> {
    let (reader, size) = open(&options.file)?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            asked.store(true, Ordering::Relaxed);
        }
    });
    let mut link = Link::open(settings).await?;
    let mut progress = Progress::new(size, if size.is_some() { "bytes" } else { "lines" });
    let imported = import(reader, &options, size.is_some(), &stop, &mut link, &mut progress).await;
    progress.finish();
    link.close().await?;
    let tally = imported?;
    let Tally { lines, stored, known, refused } = tally;
    output::print(&format!("{lines} lines: {stored} stored, {known} known, {refused} refused\n"))?;
    if stop.load(Ordering::Relaxed) {
        bail!("stopped after line {lines}; go on with: kukuri-node import {} --skip {lines}", options.file.display());
    }
    if refused > 0 {
        bail!("{refused} lines were refused");
    }
    Ok(())
}

fn open(file: &Path) -> anyhow::Result<(Box<dyn BufRead + Send>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    let metadata = opened.metadata()?;
    let size = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::with_capacity(1 << 20, opened)), size))
}

async fn import(
    mut reader: Box<dyn BufRead + Send>,
    options: &Import,
    by_bytes: bool,
    stop: &AtomicBool,
    link: &mut Link,
    progress: &mut Progress,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut position = 0;
    let mut is_over = false;
    while !is_over && !stop.load(Ordering::Relaxed) {
        let (mut numbers, mut lines, mut bytes) = (Vec::new(), Vec::new(), 0);
        while lines.len() < BATCH_LINES && bytes < BATCH_BYTES {
            let mut line = Vec::new();
            let read = reader.read_until(b'\n', &mut line).context("the file can't be read on")?;
            if read == 0 {
                is_over = true;
                break;
            }
            tally.lines += 1;
            position += read as u64;
            if tally.lines <= options.skip || line.trim_ascii().is_empty() {
                continue;
            }
            bytes += read;
            numbers.push(tally.lines);
            // What is not UTF-8 is refused as what it is: not JSON.
            lines.push(String::from_utf8_lossy(line.trim_ascii()).into_owned());
        }
        if !lines.is_empty() {
            let Reply::Imported(outcomes) = link.ask(Request::Import { lines }).await? else {
                bail!("the node answers something else");
            };
            for (number, outcome) in numbers.into_iter().zip(outcomes) {
                match outcome {
                    LineOutcome::Stored => tally.stored += 1,
                    LineOutcome::Known => tally.known += 1,
                    LineOutcome::Refused(reason) => {
                        tally.refused += 1;
                        if tally.refused <= MOST_NAMED {
                            progress.say(&format!("line {number}: {reason}"));
                        } else if tally.refused == MOST_NAMED + 1 {
                            progress.say("further refused lines are only counted");
                        }
                    }
                }
            }
        }
        progress.reached(if by_bytes { position } else { tally.lines });
    }
    Ok(tally)
}
