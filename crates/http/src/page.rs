//! The status page for browsers: name, figures, topics. No script, nothing from elsewhere.

use kukuri_domain::capacity::Stage;
use kukuri_engine::{Health, config::Auth, disk::DiskLevel};
use kukuri_store::{TopicStats, report::total};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::front::HttpFront;

/// Topics that are listed, those with most events first.
pub(crate) const MAX_TOPICS: usize = 100;
/// The page reloads itself.
const REFRESH_SECONDS: u32 = 15;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --strong: #2563eb; --warn: #b45309 }
@media (prefers-color-scheme: dark) { :root { --strong: #7aa2ff; --warn: #fbbf24 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 54rem;
  font: 1rem/1.6 system-ui, 'Hiragino Sans', 'Noto Sans JP', 'Yu Gothic UI', sans-serif }
h1 { margin: 0; font-size: 1.6rem } h2 { margin: 2.5rem 0 .5rem; font-size: 1.1rem }
p { margin: .3rem 0 } code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1.5rem 0 }
dl div { padding: .75rem 1rem; background: var(--soft); border-radius: .5rem }
dt { font-size: .85rem; opacity: .75 } dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums }
table { width: 100%; border-collapse: collapse } th { text-align: left; font-size: .85rem; opacity: .75 }
th, td { padding: .4rem .5rem; border-bottom: 1px solid var(--line) }
.n { text-align: right; font-variant-numeric: tabular-nums }
.warn { color: var(--warn); font-weight: 600 } a { color: var(--strong) }
footer { margin-top: 3rem; font-size: .85rem; opacity: .75 }";

/// The page, with the busiest topics.
pub(crate) fn status(front: &HttpFront, health: &Health, topics: &[TopicStats]) -> Markup {
    let (stats, info) = (&health.stats, front.relay.info());
    // Strangers see no topics of a node that requires authentication (Y-4).
    let shows_topics = front.engine().config().auth == Auth::Off;
    let disk = match health.disk {
        DiskLevel::Full => "only deletion and vanish requests of authors with another event here are accepted",
        level => stage(level.stage()),
    };
    let figures = [
        ("Events", grouped(stats.effective)),
        ("Events a second", format!("{:.1}", health.events_per_second)),
        ("Connections", grouped(front.relay.connections() as u64)),
        ("Subscriptions", grouped(health.subscriptions as u64)),
        ("Topics taken in", grouped(health.topics as u64)),
        ("Stored", bytes(total(&stats.by_class).bytes)),
        ("Up for", age(health.uptime.as_secs())),
    ];
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content=(REFRESH_SECONDS);
                title { (info.name) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (info.name) }
                p { (info.description) }
                @if let Some(contact) = &info.contact { p { "Contact: " (contact) } }
                @if let Some(policy) = &info.posting_policy { p { "Rules for posting: " (policy) } }
                p { "This is a Nostr relay: connect with a Nostr client." }
                @if stats.stage > Stage::Open { p.warn { "Room is short: " (stage(stats.stage)) } }
                @if health.permanent.is_full { p.warn { "Room for requests and current versions is used up: authors without another event here can't add to them" } }
                @if health.disk > DiskLevel::Open { p.warn { "The disk is nearly full: " (disk) } }
                @if stats.clock_held { p.warn { "The system clock may be wrong: nothing is purged because of its age. Operator: kukuri-node clock status" } }
                dl {
                    @for (name, value) in figures { div { dt { (name) } dd { (value) } } }
                }
                @if shows_topics {
                h2 { "Topics" }
                @if topics.is_empty() { p { "There are no events yet." } } @else {
                    table {
                        thead { tr { th { "Topic" } th.n { "Events" } th.n { "Stored" } th {} } }
                        tbody {
                            @for topic in topics.iter().take(MAX_TOPICS) {
                                tr {
                                    td { code { (topic.topic) } }
                                    td.n { (grouped(topic.effective)) }
                                    td.n { (bytes(total(&topic.by_class).bytes)) }
                                    td { @if topic.stage > Stage::Open { (stage(topic.stage)) } }
                                }
                            }
                        }
                    }
                    @if topics.len() > MAX_TOPICS { p { "and " (grouped((topics.len() - MAX_TOPICS) as u64)) " more" } }
                }
                }
                footer { "kukuri-node " (env!("CARGO_PKG_VERSION")) " · " a href="/healthz" { "health" } " · " a href="/metrics" { "metrics" } }
            }
        }
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Open => "",
        Stage::LiveOnly => "live events only, no history",
        Stage::Shedding => "topics of the lowest priority are refused",
        Stage::Purging => "the oldest events are purged",
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8(groups.join(&b',')).unwrap_or_default()
}

fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1_024.0 && unit < UNITS.len() - 1 {
        value /= 1_024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!((grouped(0), grouped(999), grouped(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((bytes(1_023), bytes(1_536)), ("1023 B".into(), "1.5 KiB".into()));
        assert_eq!(
            (age(119), age(120), age(7_200), age(172_800)),
            ("119 s".into(), "2 min".into(), "2 h".into(), "2 d".into())
        );
    }
}
