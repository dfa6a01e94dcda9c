//! `stats`: counts and sizes of the store.

use kukuri_domain::{capacity::Usage, retention::RetentionClass};
use kukuri_store::{Stats, Store, TopicStats, report::total};
use serde_json::json;

use super::{
    Output,
    table::{bytes, moment, table},
};
use crate::{config::Settings, output, wiring::stores};

/// Topics that are read at a time.
const PAGE_TOPICS: usize = 1_000;

pub(crate) async fn run(settings: &Settings, output: Output) -> anyhow::Result<()> {
    let store = stores::for_reading(settings).await?;
    let stats = store.stats().await?;
    let topics = read_topics(&*store).await?;
    let text = if output.json { format!("{}\n", as_value(&stats, &topics)) } else { as_text(&stats, &topics) };
    output::print(&text)
}

/// All topics, page by page.
pub(super) async fn read_topics(store: &dyn Store) -> anyhow::Result<Vec<TopicStats>> {
    let mut all: Vec<TopicStats> = Vec::new();
    loop {
        let page = store.list_topics(all.last().map(|last| &last.topic), PAGE_TOPICS).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

fn name(class: RetentionClass) -> &'static str {
    match class {
        RetentionClass::Regular => "regular",
        RetentionClass::Request => "requests",
        RetentionClass::Current => "current versions",
        RetentionClass::History => "replaced versions",
    }
}

fn as_text(stats: &Stats, topics: &[TopicStats]) -> String {
    let row = |label: &str, count: String, size: String| [label.to_owned(), count, size];
    let used = |label: &str, usage: Usage| row(label, usage.events.to_string(), bytes(usage.bytes));
    let counted = |label: &str, count: u64| row(label, count.to_string(), String::new());
    let mut rows = vec![counted("visible events", stats.effective), used("stored events", total(&stats.by_class))];
    let classes = RetentionClass::ALL.into_iter().zip(stats.by_class);
    rows.extend(classes.map(|(class, usage)| used(&format!("  {}", name(class)), usage)));
    rows.push(counted("ids remembered", stats.ids));
    let is_empty = stats.outbox_first > stats.head;
    let outbox = if is_empty { "empty".to_owned() } else { format!("{} to {}", stats.outbox_first, stats.head) };
    rows.push(row("outbox", outbox, String::new()));
    rows.extend(stats.disk_bytes.map(|disk| row("on disk", String::new(), bytes(disk))));
    rows.push(row("capacity", format!("{:?}", stats.stage), String::new()));
    if stats.failed > 0 {
        rows.push(counted("failed", stats.failed));
    }
    if stats.clock_held {
        rows.push(row("clock", "held: see kukuri-node clock status".to_owned(), String::new()));
    }
    let mut text = table(["", "count", "size"], rows);
    if !topics.is_empty() {
        let topics = topics.iter().map(|topic| {
            let stored = total(&topic.by_class);
            [
                topic.topic.to_string(),
                topic.effective.to_string(),
                stored.events.to_string(),
                bytes(stored.bytes),
                format!("{:?}", topic.stage),
                topic.last_event_at.map(|at| moment(at.seconds())).unwrap_or_default(),
            ]
        });
        text.push('\n');
        text.push_str(&table(["topic", "visible", "stored", "size", "capacity", "last event"], topics));
    }
    text
}

fn as_value(stats: &Stats, topics: &[TopicStats]) -> serde_json::Value {
    let classes = |by_class: &[Usage; 4]| -> serde_json::Value {
        let entries = RetentionClass::ALL.into_iter().zip(by_class);
        let entries = entries.map(|(class, usage)| {
            (name(class).replace(' ', "_"), json!({ "events": usage.events, "bytes": usage.bytes }))
        });
        entries.collect::<serde_json::Map<_, _>>().into()
    };
    let topics: Vec<_> = topics
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
