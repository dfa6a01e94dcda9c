//! Figures as text: one store, or two beside each other.

use super::figures::{Answered, Figures};
use crate::{say, timing::millis};

/// Prints what was measured at one size.
pub(crate) fn print(beside: &[(&str, &Figures)], verifications: f64) {
    let Some((_, first)) = beside.first() else { return };
    let names: String = beside.iter().map(|(name, _)| format!("{name:>20}")).collect();
    let ratio = if beside.len() > 1 { "ratio" } else { "" };
    say(format_args!("\n{:<34}{names}{ratio:>10}", format!("{} events", first.events)));
    line(beside, "durable ingest, events/s", |figures| figures.ingest_per_second, None);
    line(beside, "… against one core's verification", |figures| figures.ingest_per_second / verifications, None);
    line(beside, "… one event a batch, events/s", |figures| figures.singles_per_second, None);
    line(beside, "… batches against that", |figures| figures.ingest_per_second / figures.singles_per_second, None);
    line(
        beside,
        "commit p50 / p99, ms",
        |figures| millis(figures.commit_p50),
        Some(|figures| millis(figures.commit_p99)),
    );
    line(beside, "disk, bytes per event", |figures| figures.bytes_per_event, None);
    line(beside, "… against its JSON", |figures| figures.bytes_per_event / figures.json_per_event, None);
    for (place, Answered { name, .. }) in first.queries.iter().enumerate() {
        let at = |figures: &Figures, of: fn(&Answered) -> f64| figures.queries.get(place).map_or(0.0, of);
        let columns = beside.iter().map(|(_, figures)| {
            let (p50, p99) =
                (at(figures, |answered| millis(answered.p50)), at(figures, |answered| millis(answered.p99)));
            (p50, Some(p99))
        });
        row(&format!("{name}, p50 / p99 ms"), columns.collect());
        row(
            "… a second",
            beside.iter().map(|(_, figures)| (at(figures, |answered| answered.per_second), None)).collect(),
        );
    }
    for (name, figures) in beside {
        if let Some(load) = &figures.load {
            say(format_args!("{name}: {load}"));
        }
    }
}

type Figure = fn(&Figures) -> f64;

fn line(beside: &[(&str, &Figures)], name: &str, figure: impl Fn(&Figures) -> f64, second: Option<Figure>) {
    row(name, beside.iter().map(|(_, figures)| (figure(figures), second.map(|second| second(figures)))).collect());
}

/// One row: a column for each store, and the last against the first.
fn row(name: &str, columns: Vec<(f64, Option<f64>)>) {
    let text: String = columns.iter().map(|(one, two)| format!("{:>20}", pair(*one, *two))).collect();
    let ratio = match columns.as_slice() {
        [(first, _), .., (last, _)] => format!("{:>10}", short(last / first)),
        _ => String::new(),
    };
    say(format_args!("  {name:<32}{text}{ratio}"));
}

fn pair(one: f64, two: Option<f64>) -> String {
    two.map_or_else(|| short(one), |two| format!("{} / {}", short(one), short(two)))
}

/// Three digits that matter, or all before the point.
fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// How the median of each query grew from the smallest size to the largest.
pub(crate) fn compare(name: &str, all: &[Figures]) {
    let (Some(small), Some(large)) = (all.first(), all.last()) else { return };
    if small.events == large.events {
        return;
    }
    say(format_args!("\n{name}: p50 at {} events against {}:", large.events, small.events));
    for (before, after) in small.queries.iter().zip(&large.queries) {
        let (time, rows) = (after.p50.as_secs_f64() / before.p50.as_secs_f64(), after.rows / before.rows);
        say(format_args!("  {:<26} {time:.2}x the time, {rows:.2}x the rows", before.name));
    }
}
