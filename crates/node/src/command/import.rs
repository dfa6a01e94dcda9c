//! `import`: events from a file with one JSON object per line.
//!
//! Lines pass the same checks as a client's events. Duplicates are cheap to detect, so an interrupted import can be
//! repeated from the start; `--skip` avoids even that cost.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use tokio::sync::mpsc;

use super::progress::Progress;
use crate::{
    admin_socket::{AdminRequest, LineOutcome, client::AdminClient},
    config::Settings,
    output,
};

/// Lines in one request to the node.
const MAX_BATCH_LINES: usize = 1_000;
/// Bytes in one request to the node.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Refused lines that are printed; further ones are only counted.
const MAX_PRINTED_REFUSALS: u64 = 100;

#[derive(Args)]
pub(crate) struct Import {
    /// A file with one event per line, or - for standard input.
    file: PathBuf,
    /// Skips this many lines at the beginning.
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    skip: u64,
}

/// Lines of one request, and the position in the file after them.
#[derive(Default)]
struct Chunk {
    numbers: Vec<u64>,
    lines: Vec<String>,
    last_line: u64,
    position: u64,
}

#[derive(Default)]
struct ImportCounts {
    lines: u64,
    stored: u64,
    known: u64,
    refused: u64,
}

pub(crate) async fn run(settings: &Settings, options: Import) -> anyhow::Result<()> {
    let (reader, size) = open(&options.file)?;
    let mut client = AdminClient::open(settings, None).await?;
    // Standard input may block for long, so a thread reads it.
    let (sender, chunks) = mpsc::channel(2);
    let skip = options.skip;
    std::thread::spawn(move || read(reader, skip, &sender));
    let mut tally = ImportCounts::default();
    let ended = import(chunks, size, &mut client, &mut tally).await;
    client.close().await?;
    let ImportCounts { lines, stored, known, refused } = tally;
    output::print(&format!("{lines} lines: {stored} stored, {known} known, {refused} refused\n"))?;
    match ended {
        Err(error) => {
            let go_on = format!("kukuri-node import {} --skip {lines}", options.file.display());
            Err(error.context(format!("import ended after line {lines}; continue with: {go_on}")))
        }
        Ok(()) if refused > 0 => bail!("{refused} lines were refused"),
        Ok(()) => Ok(()),
    }
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

/// Reads the file to its end, or until the receiver is dropped.
fn read(mut reader: Box<dyn BufRead + Send>, skip: u64, chunks: &mpsc::Sender<io::Result<Chunk>>) {
    let (mut last_line, mut position) = (0, 0);
    loop {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        let mut last_read = Ok(0);
        while chunk.lines.len() < MAX_BATCH_LINES && bytes < MAX_BATCH_BYTES {
            let mut line = Vec::new();
            last_read = reader.read_until(b'\n', &mut line);
            let Ok(read @ 1..) = last_read else { break };
            last_line += 1;
            position += read as u64;
            if last_line > skip && !line.trim_ascii().is_empty() {
                bytes += read;
                chunk.numbers.push(last_line);
                // A line that is not UTF-8 is not JSON either, and is refused as such.
                chunk.lines.push(String::from_utf8_lossy(line.trim_ascii()).into_owned());
            }
        }
        (chunk.last_line, chunk.position) = (last_line, position);
        let is_received = chunks.blocking_send(Ok(chunk)).is_ok();
        match last_read {
            Ok(1..) if is_received => {}
            // The end of the file, or a command that has stopped.
            Ok(_) => return,
            Err(error) => return drop(chunks.blocking_send(Err(error))),
        }
    }
}

/// Imports chunk by chunk to the end of the file. `size`: of the file, in bytes.
async fn import(
    mut chunks: mpsc::Receiver<io::Result<Chunk>>,
    size: Option<u64>,
    client: &mut AdminClient,
    tally: &mut ImportCounts,
) -> anyhow::Result<()> {
    let mut progress = Progress::new(size, if size.is_some() { "bytes" } else { "lines" });
    loop {
        let chunk = tokio::select! {
            chunk = chunks.recv() => chunk,
            _ = tokio::signal::ctrl_c() => bail!("stopped"),
        };
        let Some(chunk) = chunk else { return Ok(()) };
        let Chunk { numbers, lines, last_line, position } = chunk.context("can't read the rest of the file")?;
        let outcomes: Vec<LineOutcome> = match lines.is_empty() {
            true => Vec::new(),
            false => client.ask(AdminRequest::Import { lines }).await?,
        };
        for (number, outcome) in numbers.into_iter().zip(outcomes) {
            match outcome {
                LineOutcome::Stored => tally.stored += 1,
                LineOutcome::Known => tally.known += 1,
                LineOutcome::Refused(reason) => {
                    tally.refused += 1;
                    if tally.refused <= MAX_PRINTED_REFUSALS {
                        progress.say(&format!("line {number}: {reason}"));
                    } else if tally.refused == MAX_PRINTED_REFUSALS + 1 {
                        progress.say("further refused lines are only counted");
                    }
                }
            }
        }
        tally.lines = last_line;
        progress.reached(if size.is_some() { position } else { last_line });
    }
}
