//! `export`: events as one JSON object per line, in the order of their arrival.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use kukuri_domain::{Filter, Kind, Letter, PublicKey, Timestamp};
use kukuri_store::{BoundEvent, Seq, SnapshotCursor};
use tokio::signal::unix::SignalKind;

use super::{progress::Progress, topic::topic_id};
use crate::{
    config::Settings,
    wiring::{self, stores},
};

const PAGE: usize = 1_000;

#[derive(Args)]
pub(crate) struct Export {
    /// Includes private messages, and the deletion and vanish requests that keep deleted events out.
    #[arg(long)]
    all: bool,
    /// Only events that match this filter (NIP-01, as JSON); several are allowed.
    #[arg(long = "filter", value_name = "JSON")]
    filters: Vec<String>,
    /// Only events of this topic, by name or id.
    #[arg(long)]
    topic: Option<String>,
    /// Only events of this kind.
    #[arg(long)]
    kind: Option<u16>,
    /// Only events by this author, 64 hex digits.
    #[arg(long)]
    author: Option<PublicKey>,
    /// Only events made at or after this time, in Unix seconds.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
    /// Only events made at or before this time, in Unix seconds.
    #[arg(long, value_name = "SECONDS")]
    until: Option<u64>,
    /// Writes to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Continues an interrupted export after this position, appending to the file.
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    after: Option<SnapshotCursor>,
}

fn parse_position(text: &str) -> Result<SnapshotCursor, &'static str> {
    let read = |text: &str| text.parse::<u64>().ok();
    let parsed = text.split_once('-').and_then(|(seq, after)| Some((read(seq)?, read(after)?)));
    let (seq, after) = parsed.ok_or("must be the position that an interrupted export printed, such as 120-4711")?;
    Ok(SnapshotCursor { seq: Some(Seq(seq)), after })
}

pub(crate) async fn run(settings: &Settings, options: Export) -> anyhow::Result<()> {
    let filters = filters(settings, &options)?;
    let store = stores::for_reading(settings).await?;
    let mut out = open(&options)?;
    let mut stop = tokio::signal::unix::signal(SignalKind::interrupt())?;
    let total = store.stats().await?.effective;
    let mut progress = Progress::new(Some(total), "events read");
    let mut cursor = options.after.unwrap_or_default();
    let (mut read, mut written) = (0, 0u64);
    loop {
        let page = store.snapshot(cursor, PAGE).await?;
        for event in page.events.iter() {
            if is_selected(event, &options, &filters)? {
                out.write_all(&event.event.json)?;
                out.write_all(b"\n")?;
                written += 1;
            }
        }
        read += page.events.len() as u64;
        progress.reached(read);
        let Some(next) = page.next else { break };
        cursor = next;
        // Polls once for Ctrl-C.
        if tokio::time::timeout(Duration::ZERO, stop.recv()).await.is_ok() {
            out.flush()?;
            let position = format!("{}-{}", cursor.seq.unwrap_or_default(), cursor.after);
            bail!("stopped after {written} events; continue with --after {position}");
        }
    }
    out.flush()?;
    drop(progress);
    eprintln!("{written} events");
    Ok(())
}

fn open(options: &Export) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = &options.output else { return Ok(Box::new(BufWriter::new(io::stdout()))) };
    let file = match options.after {
        Some(_) => File::options().append(true).open(path),
        // An existing file is never overwritten.
        None => File::create_new(path),
    };
    Ok(Box::new(BufWriter::new(file.with_context(|| path.display().to_string())?)))
}

/// The filters that are given, each narrowed by the other flags.
fn filters(settings: &Settings, options: &Export) -> anyhow::Result<Vec<Filter>> {
    let given = |text: &String| Filter::from_json(text).map_err(|error| anyhow::anyhow!("--filter {text}: {error}"));
    let mut filters: Vec<Filter> = options.filters.iter().map(given).collect::<Result<_, _>>()?;
    if filters.is_empty() {
        filters.push(Filter::new());
    }
    let topic = options.topic.as_deref().map(|name| topic_id(settings, name)).transpose()?;
    let narrow = |mut filter: Filter| {
        if let Some(topic) = &topic {
            filter = filter.with_tag(Letter::T, [topic.as_str()]);
        }
        if let Some(kind) = options.kind {
            filter = filter.with_kinds([Kind(kind)]);
        }
        if let Some(author) = options.author {
            filter = filter.with_authors([author]);
        }
        if let Some(since) = options.since {
            filter = filter.with_since(Timestamp(since));
        }
        if let Some(until) = options.until {
            filter = filter.with_until(Timestamp(until));
        }
        filter
    };
    Ok(filters.into_iter().map(narrow).collect())
}

fn is_selected(event: &BoundEvent, options: &Export, filters: &[Filter]) -> anyhow::Result<bool> {
    let parsed = event.event.event()?;
    if parsed.is_expired(wiring::now()) {
        return Ok(false);
    }
    let needs_all = parsed.kind.is_request() || parsed.kind.is_private();
    Ok((options.all || !needs_all) && filters.iter().any(|filter| filter.matches(&parsed, &event.topics)))
}
