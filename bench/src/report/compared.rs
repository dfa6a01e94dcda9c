//! Two builds of our own node, measured in turns: the medians of all rounds, and the ratio of the second to the first.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Report, number};

/// Part, row, name and unit of the compared figures.
const COMPARED: [(&str, &str, &str, &str); 11] = [
    ("ingest", "8 x 64 in flight", "events", "/s"),
    ("ingest", "8 x 64 in flight", "CPU per event", "µs"),
    ("ingest", "8 x 512 in flight", "events", "/s"),
    ("ingest", "8 x 512 in flight", "CPU per event", "µs"),
    ("ingest", "1 x 1 in flight", "p50", "ms"),
    ("ingest", "1 x 1 in flight", "CPU per event", "µs"),
    ("req", "mix", "REQs", "/s"),
    ("req", "mix", "CPU per REQ", "µs"),
    ("req", "mix", "p99", "ms"),
    ("live", "fan-out", "CPU per delivery", "µs"),
    ("live", "fan-out", "p99", "ms"),
];

struct Comparison {
    title: String,
    first: f64,
    second: f64,
    /// Rounds of which the medians were taken.
    rounds: usize,
}

impl Comparison {
    fn ratio(&self) -> f64 {
        self.second / self.first
    }
}

/// The comparisons of all figures that two builds have of several rounds.
fn comparisons(report: &Report) -> Vec<Comparison> {
    let [(first, _), (second, _)] = report.relays.as_slice() else { return Vec::new() };
    let compare = |(part, row, name, unit): &(&str, &str, &str, &str)| {
        let find = |of: &str| report.figures.iter().find(|figure| figure.is(part, of, row, name));
        let (first, second) = (&find(first)?.rounds, &find(second)?.rounds);
        let rounds = first.len().min(second.len());
        let title = format!("{part}, {row}: {name} {unit}");
        (rounds > 1).then(|| Comparison { title, first: median(first), second: median(second), rounds })
    };
    COMPARED.iter().filter_map(compare).collect()
}

/// The median; 0 of nothing.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The section of the page; empty if there is nothing to compare.
pub(super) fn section(report: &Report) -> String {
    let comparisons = comparisons(report);
    let ([(first, _), (second, _)], Some(some)) = (report.relays.as_slice(), comparisons.first()) else {
        return String::new();
    };
    let mut section = format!(
        "\n## Two builds compared\n\nMedians of {} rounds, the builds in turns; report.json has every round.\n\n\
         | | {first} | {second} | {second} / {first} |\n|---|---:|---:|---:|\n",
        some.rounds
    );
    for comparison in &comparisons {
        let Comparison { title, first, second, .. } = comparison;
        let _ = writeln!(section, "| {title} | {} | {} | {:.3} |", number(*first), number(*second), comparison.ratio());
    }
    section
}

pub(super) fn json(report: &Report) -> Vec<Value> {
    let one = |comparison: Comparison| {
        let ratio = comparison.ratio();
        let Comparison { title, first, second, rounds } = comparison;
        json!({ "figure": title, "first": first, "second": second, "ratio": ratio, "rounds": rounds })
    };
    comparisons(report).into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
