//! `outbox`: the log of changes, and the offsets of its consumers.

use std::time::Duration;

use clap::Subcommand;
use kukuri_outbox::pause;
use kukuri_store::{Op, OutboxRow, Seq};
use serde_json::json;

use super::table::{moment, table};
use crate::{config::Settings, output, wiring::stores};

const PAGE: usize = 1_000;
const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Subcommand)]
pub(crate) enum Outbox {
    /// Prints its last rows.
    Tail {
        /// The number of rows.
        #[arg(long, short, default_value_t = 20)]
        lines: u64,
        /// Prints all rows after this sequence number instead.
        #[arg(long, value_name = "SEQ")]
        after: Option<u64>,
        /// Prints new rows as they are written.
        #[arg(long, short)]
        follow: bool,
        /// Prints JSON, one row per line.
        #[arg(long)]
        json: bool,
    },
    /// Prints the last row that each consumer has processed.
    Offsets,
}

pub(crate) async fn run(settings: &Settings, command: Outbox) -> anyhow::Result<()> {
    match command {
        Outbox::Tail { lines, after, follow, json } => tail(settings, lines, after, follow, json).await,
        Outbox::Offsets => offsets(settings).await,
    }
}

async fn tail(settings: &Settings, lines: u64, after: Option<u64>, follow: bool, json: bool) -> anyhow::Result<()> {
    let store = stores::for_reading(settings).await?;
    let stats = store.stats().await?;
    let first = stats.outbox_first.0.saturating_sub(1);
    let mut last = Seq(after.unwrap_or_else(|| stats.head.0.saturating_sub(lines).max(first)));
    loop {
        let rows = store.outbox(last, PAGE).await?;
        if let Some(row) = rows.last() {
            last = row.seq;
            let text: String = rows.iter().map(|row| if json { as_json(row) } else { as_text(row) }).collect();
            output::print(&text)?;
        } else if follow {
            tokio::time::sleep(POLL_INTERVAL).await;
        } else {
            return Ok(());
        }
    }
}

fn as_text(row: &OutboxRow) -> String {
    let op = match row.op {
        Op::Upsert => "upsert".to_owned(),
        Op::Delete(reason) => format!("delete ({})", reason.as_str()),
    };
    format!(
        "{:>10}  {}  {op:<20}  kind {:<5}  {}  {}\n",
        row.seq,
        moment(row.written_at.seconds()),
        row.kind.0,
        row.event_id,
        row.topic
    )
}

fn as_json(row: &OutboxRow) -> String {
    let (op, reason) = match row.op {
        Op::Upsert => ("upsert", None),
        Op::Delete(reason) => ("delete", Some(reason.as_str())),
    };
    let value = json!({
        "seq": row.seq.0,
        "op": op,
        "reason": reason,
        "event_id": row.event_id,
        "topic_id": row.topic.as_str(),
        "kind": row.kind.0,
        "created_at": row.created_at,
        "ingested_at": row.ingested_at,
        "effective_key": row.effective_key.as_ref().map(ToString::to_string),
    });
    format!("{value}\n")
}

async fn offsets(settings: &Settings) -> anyhow::Result<()> {
    let store = stores::for_reading(settings).await?;
    let (mut offsets, stats) = (store.offsets().await?, store.stats().await?);
    offsets.retain(|offset| !pause::is_pause_flag(offset));
    if offsets.is_empty() {
        return output::print(&format!("no consumer has started; the last row of the outbox is {}\n", stats.head));
    }
    let rows = offsets.into_iter().map(|offset| {
        let behind = stats.head.0.saturating_sub(offset.last_seq.0);
        let updated = moment(offset.updated_at.seconds());
        [offset.consumer, offset.last_seq.to_string(), behind.to_string(), updated]
    });
    output::print(&table(["consumer", "processed", "behind", "updated"], rows))
}
