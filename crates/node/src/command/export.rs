//! `export`: events as one JSON object a line, in the order in which they came.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    str::FromStr,
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

/// What `export` takes.
#[derive(Args)]
pub(crate) struct Export {
    /// Everything: private messages, and the deletion and vanish requests that keep out what is gone.
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
    /// Goes on where an export broke off, adding to the file.
    #[arg(long, value_name = "PLACE")]
    after: Option<Place>,
}

/// Where an export goes on.
#[derive(Clone, Copy, Debug)]
struct Place(SnapshotCursor);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |text: &str| text.parse::<u64>().ok();
        let parsed = text.split_once('-').and_then(|(seq, after)| Some((read(seq)?, read(after)?)));
        let (seq, after) = parsed.ok_or("a place is what a broken-off export printed, such as 120-4711")?;
        Ok(Self(SnapshotCursor { seq: Some(Seq(seq)), after }))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0.seq.unwrap_or_default(), self.0.after)
    }
}

/// Runs the command.
pub(crate) async fn run(settings: &Settings, options: Export) -> anyhow::Result<()> {
    let wanted = Wanted::new(settings, &options)?;
    let store = stores::for_reading(settings).await?;
    let mut out = open(&options)?;
    let mut stop = tokio::signal::unix::signal(SignalKind::interrupt())?;
    let total = store.stats().await?.effective;
    let mut progress = Progress::new(Some(total), "events read");
    let mut cursor = options.after.map_or_else(SnapshotCursor::default, |place| place.0);
    let (mut read, mut written) = (0, 0u64);
    loop {
        let page = store.snapshot(cursor, PAGE).await?;
        for event in page.events.iter() {
            if wanted.takes(event)? {
                out.write_all(&event.event.json)?;
                out.write_all(b"\n")?;
                written += 1;
            }
        }
        read += page.events.len() as u64;
        progress.reached(read);
        let Some(next) = page.next else { break };
        cursor = next;
        // A moment to hear Ctrl-C.
        if tokio::time::timeout(Duration::ZERO, stop.recv()).await.is_ok() {
            out.flush()?;
            progress.finish();
            bail!("stopped after {written} events; go on with --after {}", Place(cursor));
        }
    }
    out.flush()?;
    progress.finish();
    eprintln!("{written} events");
    Ok(())
}

fn open(options: &Export) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = &options.output else { return Ok(Box::new(BufWriter::new(io::stdout()))) };
    let file = match options.after {
        Some(_) => File::options().append(true).open(path),
        // What is there already is somebody's.
        None => File::create_new(path),
    };
    Ok(Box::new(BufWriter::new(file.with_context(|| path.display().to_string())?)))
}

/// What is exported.
struct Wanted {
    all: bool,
    filters: Vec<Filter>,
}

impl Wanted {
    fn new(settings: &Settings, options: &Export) -> anyhow::Result<Self> {
        let given =
            |text: &String| Filter::from_json(text).map_err(|error| anyhow::anyhow!("--filter {text}: {error}"));
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
        Ok(Self { all: options.all, filters: filters.into_iter().map(narrow).collect() })
    }

    fn takes(&self, event: &BoundEvent) -> anyhow::Result<bool> {
        let whole = event.event.event()?;
        if whole.is_expired(wiring::now()) {
            return Ok(false);
        }
        let is_held_back = whole.kind.is_request() || whole.kind.is_private();
        Ok((self.all || !is_held_back) && self.filters.iter().any(|filter| filter.matches(&whole, &event.topics)))
    }
}
