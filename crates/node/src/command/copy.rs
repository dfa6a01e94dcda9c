//! `copy`: copies a store into an empty one of either kind, and the control database if its place follows that of the store. The
//! node's keys are part of neither.

use anyhow::{Context, anyhow, bail};
use clap::Args;
use kukuri_config::without_password;
use kukuri_store::{
    Archive, ConsumerOffset, DumpCursor, DumpPage, Piece, Standing, Stats, StoreError, TopicStats, report::total,
};

use super::{
    check::{check, check_control},
    progress::Progress,
    stats::read_topics,
    table::count_table,
};
use crate::{
    config::{Settings, StorePlace, parse_text, place::ControlPlace},
    output,
    wiring::{self, stores},
};

/// Pieces in one transaction.
const PAGE: usize = 2_000;

#[derive(Args)]
pub(crate) struct Copy {
    /// The store to copy: lmdb:DIR or postgres://USER@HOST/DB [default: the node's]. Stop its nodes first.
    #[arg(long, value_name = "STORE")]
    from: Option<String>,
    /// Where to: lmdb:DIR or postgres://USER@HOST/DB, with no store in it yet.
    #[arg(long, value_name = "STORE")]
    to: String,
}

#[derive(Default)]
struct CopyCounts {
    events: u64,
    hidden: u64,
    ids: u64,
    outbox: u64,
    offsets: u64,
    subscriptions: u64,
}

impl CopyCounts {
    fn count(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Event(_, known, _) => {
                    self.events += 1;
                    self.hidden += u64::from(known.standing != Standing::Effective);
                }
                Piece::Id(..) => self.ids += 1,
                Piece::Outbox(_) => self.outbox += 1,
                Piece::Offset(_) => self.offsets += 1,
                Piece::Subscription(_) => self.subscriptions += 1,
                _ => {}
            }
        }
    }
}

pub(crate) async fn run(settings: &Settings, options: Copy) -> anyhow::Result<()> {
    let from = options.from.as_deref().map(|text| parse_store("--from", text)).transpose()?;
    let from = from.unwrap_or_else(|| settings.store_place());
    let to = parse_store("--to", &options.to)?;
    if from == to {
        bail!("{from} can't be copied into itself");
    }
    let source = stores::to_copy_from(&from, settings).await?;
    let target = stores::to_copy_into(&to, settings).await?;
    let progress = Progress::new(Some(size(&source.stats().await?)), "events, ids and outbox rows");
    // An unreadable source must fail before anything is written.
    let first = source.dump(DumpCursor::default(), PAGE).await?;
    copy_control(&settings.control_place_beside(&from), &settings.control_place_beside(&to)).await?;
    let tally = tokio::select! {
        copied = copy(first, &*source, &*target, progress) => copied.map_err(|error| match error {
            StoreError::NotEmpty => anyhow!("{to}: there is a store here already; only an empty one can be copied into"),
            error => anyhow::Error::new(error).context(stores::half_a_copy(&to)),
        })?,
        _ = tokio::signal::ctrl_c() => bail!("stopped: {}", stores::half_a_copy(&to)),
    };
    output::print(&count_table(
        "copied",
        &[
            ("events", tally.events),
            ("  hidden among them", tally.hidden),
            ("ids of removed events", tally.ids),
            ("outbox rows", tally.outbox),
            ("consumers' offsets", tally.offsets),
            ("topics", tally.subscriptions),
        ],
    ))?;
    compare(&*source, &*target).await?;
    check(&*target).await?;
    output::print(&format!("copied from {from} to {to}\n"))
}

/// Copies accounts, policies, requests, settings and secrets, all or nothing. A copy that was made before, by a `copy` that stopped
/// later, is left as it is.
async fn copy_control(from: &ControlPlace, to: &ControlPlace) -> anyhow::Result<()> {
    if from == to || !wiring::control::exists(from) {
        return Ok(());
    }
    let source = wiring::control::database_at(from, false).await?;
    let target = wiring::control::database_at(to, true).await?;
    let rows = match source.copy_to(&target).await {
        Err(kukuri_control::Error::NotEmpty) if target.is_copy_of(&source).await? => return Ok(()),
        Err(kukuri_control::Error::NotEmpty) => {
            bail!("{to}: there is a control database here already; {}", emptied(to))
        }
        copied => copied?,
    };
    if !target.is_copy_of(&source).await? {
        bail!("{to}: the control database differs from {from}: stop all nodes; {}, and copy again", emptied(to));
    }
    check_control(&target).await?;
    output::print(&format!("accounts and settings: {rows} rows copied from {from} to {to}\n"))
}

/// How the operator makes room for a control database.
fn emptied(place: &ControlPlace) -> &'static str {
    match place {
        ControlPlace::Sqlite(_) => "move the file away first",
        ControlPlace::Postgres(_) => "DROP SCHEMA cn_admin, cn_user CASCADE removes it",
    }
}

fn parse_store(flag: &str, text: &str) -> anyhow::Result<StorePlace> {
    parse_text(text).map_err(|mismatch| anyhow!("{flag} {}: {mismatch}", without_password(text)))
}

/// The number of events, ids and outbox rows; other pieces are too few to show as progress.
fn size(stats: &Stats) -> u64 {
    stats.ids + (stats.head.0 + 1).saturating_sub(stats.outbox_first.0)
}

/// Copies page by page: the target writes one while the source reads the next.
async fn copy(
    first: DumpPage,
    source: &dyn Archive,
    target: &dyn Archive,
    mut progress: Progress,
) -> Result<CopyCounts, StoreError> {
    let mut tally = CopyCounts::default();
    let mut page = first;
    loop {
        tally.count(&page.pieces);
        let Some(cursor) = page.next else {
            target.load(page.pieces).await?;
            return Ok(tally);
        };
        let (loaded, next) = tokio::join!(target.load(page.pieces), source.dump(cursor, PAGE));
        loaded?;
        progress.reached(tally.events + tally.ids + tally.outbox);
        page = next?;
    }
}

/// Source and target must have the same statistics.
async fn compare(source: &dyn Archive, target: &dyn Archive) -> anyhow::Result<()> {
    let (ours, theirs) = (figures(source).await?, figures(target).await?);
    if ours == theirs {
        return Ok(());
    }
    let stored = |(stats, ..): &Figures| (total(&stats.by_class).events, stats.head);
    let ((events, head), (copied, copied_head)) = (stored(&ours), stored(&theirs));
    let figures = format!("{events} events and outbox {head} against {copied} and {copied_head} in the copy");
    Err(anyhow!(figures)).context(
        "copy and source differ: if a node wrote to the source meanwhile, stop it, empty the new store and copy again",
    )
}

type Figures = (Stats, Vec<TopicStats>, Vec<ConsumerOffset>);

async fn figures(store: &dyn Archive) -> anyhow::Result<Figures> {
    let stats = Stats { disk_bytes: None, ..store.stats().await? };
    Ok((stats, read_topics(store).await?, store.offsets().await?))
}
