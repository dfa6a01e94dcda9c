//! Which charts there are.

use super::{
    Figure, Measured, Report,
    svg::{self, Bars, Lines},
};

pub(super) struct Chart {
    /// The part it stands in; none for the first page.
    pub(super) part: &'static str,
    pub(super) file: String,
    pub(super) title: &'static str,
    pub(super) svg: String,
}

/// A chart of one figure of one part: a group for each row, a bar for each relay.
struct Spec {
    shown_in: &'static str,
    part: &'static str,
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    file: &'static str,
    rows: Option<&'static [&'static str]>,
}

const INGEST: &[&str] = &["8 x 64 in flight", "8 x 512 in flight", "1 x 1 in flight"];

const BARS: [Spec; 6] = [
    Spec {
        shown_in: "",
        part: "ingest",
        name: "events",
        title: "Ingest",
        unit: "events/s",
        file: "ingest.svg",
        rows: Some(INGEST),
    },
    Spec {
        shown_in: "",
        part: "req",
        name: "REQs",
        title: "Requests",
        unit: "REQ/s",
        file: "requests.svg",
        rows: None,
    },
    Spec {
        shown_in: "ingest",
        part: "ingest",
        name: "CPU per event",
        title: "Server CPU per event",
        unit: "µs",
        file: "ingest-cpu.svg",
        rows: Some(INGEST),
    },
    Spec {
        shown_in: "req",
        part: "req",
        name: "CPU per REQ",
        title: "Server CPU per request",
        unit: "µs",
        file: "requests-cpu.svg",
        rows: None,
    },
    Spec {
        shown_in: "live",
        part: "live",
        name: "CPU per delivery",
        title: "Server CPU per delivery",
        unit: "µs",
        file: "live-cpu.svg",
        rows: None,
    },
    Spec {
        shown_in: "mixed",
        part: "mixed",
        name: "p99",
        title: "Mixed load, p99",
        unit: "ms",
        file: "mixed.svg",
        rows: None,
    },
];

/// Figures over sizes: which, title, unit, file.
const LINES: [(&str, &str, &str, &str); 2] = [
    ("CPU per REQ", "Server CPU per request, by what is stored", "µs", "growth-requests.svg"),
    ("CPU per event", "Server CPU per event, by what is stored", "µs", "growth-ingest.svg"),
];

pub(super) fn all(report: &Report) -> Vec<Chart> {
    let mut charts = Vec::new();
    let relays: Vec<String> = report.relays.iter().map(|(name, _)| name.clone()).collect();
    for spec in BARS {
        let found = |row: &str, relay: &String| match report.find(spec.part, relay, row, spec.name) {
            Some(Measured::Number(value)) => Some(*value),
            _ => None,
        };
        let groups = rows(report, &spec).into_iter().map(|row| {
            let values = relays.iter().map(|relay| found(&row, relay)).collect();
            (row, values)
        });
        let groups: Vec<(String, Vec<Option<f64>>)> = groups.collect();
        if !groups.is_empty() {
            let bars =
                Bars { title: spec.title, unit: spec.unit, series: &relays, groups: &groups, is_log: is_wide(&groups) };
            charts.push(Chart {
                part: spec.shown_in,
                file: spec.file.to_owned(),
                title: spec.title,
                svg: svg::bars(&bars),
            });
        }
    }
    for (name, title, unit, file) in LINES {
        let series: Vec<(String, Vec<(f64, f64)>)> =
            relays.iter().map(|relay| (relay.clone(), over_sizes(report, relay, name))).collect();
        if series.iter().any(|(_, points)| points.len() > 1) {
            let svg = svg::lines(&Lines { title, x: "events stored", unit, series: &series });
            charts.push(Chart { part: "growth", file: file.to_owned(), title, svg });
        }
    }
    charts
}

fn rows(report: &Report, spec: &Spec) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let is_shown = |figure: &&Figure| {
        figure.part == spec.part
            && figure.name == spec.name
            && spec.rows.is_none_or(|rows| rows.contains(&figure.row.as_str()))
    };
    for figure in report.figures.iter().filter(is_shown) {
        if !rows.contains(&figure.row) {
            rows.push(figure.row.clone());
        }
    }
    rows
}

/// Rows of growth are called by the size.
fn over_sizes(report: &Report, relay: &str, name: &str) -> Vec<(f64, f64)> {
    let of_relay =
        report.figures.iter().filter(|figure| figure.part == "growth" && figure.of == relay && figure.name == name);
    let points = of_relay.filter_map(|figure| {
        let size = figure.row.split(' ').next()?.replace(',', "").parse().ok()?;
        match figure.value {
            Measured::Number(value) => Some((size, value)),
            Measured::Words(_) => None,
        }
    });
    points.collect()
}

/// Whether the largest would hide the smallest.
fn is_wide(groups: &[(String, Vec<Option<f64>>)]) -> bool {
    let values = || groups.iter().flat_map(|(_, values)| values).flatten().copied().filter(|value| *value > 0.0);
    values().fold(0.0, f64::max) > 20.0 * values().fold(f64::INFINITY, f64::min)
}
