//! `stats`: counts and sizes of the store.

use clap::Args;
use kukuri_domain::retention::RetentionClass;
use kukuri_store::{Stats as StoreStats, report::total};
use serde_json::json;

use super::table::{bytes, moment, table};
use crate::{config::Settings, output, wiring::stores};

/// Flags of `stats`.
#[derive(Args)]
pub(crate) struct Stats {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(settings: &Settings, options: Stats) -> anyhow::Result<()> {
    let stats = stores::for_reading(settings).await?.stats().await?;
    let text = if options.json { format!("{}\n", as_value(&stats)) } else { as_text(&stats) };
    Ok(output::print(&text)?)
}

fn name(class: RetentionClass) -> &'static str {
    match class {
        RetentionClass::Regular => "regular",
        RetentionClass::Request => "requests",
        RetentionClass::Current => "current versions",
        RetentionClass::History => "replaced versions",
    }
}

fn as_text(stats: &StoreStats) -> String {
    let mut rows = vec![
        vec!["visible events".to_owned(), stats.effective.to_string(), String::new()],
        vec![
            "stored events".to_owned(),
            total(&stats.by_class).events.to_string(),
            bytes(total(&stats.by_class).bytes),
        ],
    ];
    for (class, usage) in RetentionClass::ALL.into_iter().zip(&stats.by_class) {
        rows.push(vec![format!("  {}", name(class)), usage.events.to_string(), bytes(usage.bytes)]);
    }
    rows.push(vec!["ids remembered".to_owned(), stats.ids.to_string(), String::new()]);
    let is_empty = stats.outbox_first > stats.head;
    let outbox = if is_empty { "empty".to_owned() } else { format!("{} to {}", stats.outbox_first, stats.head) };
    rows.push(vec!["outbox".to_owned(), outbox, String::new()]);
    if let Some(disk) = stats.disk_bytes {
        rows.push(vec!["on disk".to_owned(), String::new(), bytes(disk)]);
    }
    rows.push(vec!["capacity".to_owned(), format!("{:?}", stats.stage), String::new()]);
    if stats.failed > 0 {
        rows.push(vec!["failed".to_owned(), stats.failed.to_string(), String::new()]);
    }
    if stats.clock_held {
        rows.push(vec!["clock".to_owned(), "jumped; purges are suspended".to_owned(), String::new()]);
    }
    let mut text = table(&["", "count", "size"], &rows);
    if !stats.topics.is_empty() {
        let topics: Vec<Vec<String>> = stats
            .topics
            .iter()
            .map(|topic| {
                vec![
                    topic.topic.to_string(),
                    topic.effective.to_string(),
                    total(&topic.by_class).events.to_string(),
                    bytes(total(&topic.by_class).bytes),
                    format!("{:?}", topic.stage),
                    topic.last_event_at.map(|at| moment(at.seconds().0)).unwrap_or_default(),
                ]
            })
            .collect();
        text.push('\n');
        text.push_str(&table(&["topic", "visible", "stored", "size", "capacity", "last event"], &topics));
    }
    text
}

fn as_value(stats: &StoreStats) -> serde_json::Value {
    let classes = |by_class: &[kukuri_domain::capacity::Usage; 4]| -> serde_json::Value {
        let entries = RetentionClass::ALL.into_iter().zip(by_class);
        let entries = entries.map(|(class, usage)| {
            (name(class).replace(' ', "_"), json!({ "events": usage.events, "bytes": usage.bytes }))
        });
        entries.collect::<serde_json::Map<_, _>>().into()
    };
    let topics: Vec<_> = stats
        .topics
        .iter()
        .map(|topic| {
            json!({
                "topic": topic.topic.as_str(),
                "visible": topic.effective,
                "by_class": classes(&topic.by_class),
                "capacity": format!("{:?}", topic.stage),
                "last_event_at": topic.last_event_at,
            })
        })
        .collect();
    json!({
        "visible": stats.effective,
        "by_class": classes(&stats.by_class),
        "ids": stats.ids,
        "outbox": { "first": stats.outbox_first.0, "head": stats.head.0 },
        "disk_bytes": stats.disk_bytes,
        "capacity": format!("{:?}", stats.stage),
        "failed": stats.failed,
        "clock_held": stats.clock_held,
        "topics": topics,
    })
}
