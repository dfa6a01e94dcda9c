//! What was found: a line per figure beside what it should be, and all of it as JSON.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    say,
    timing::{Timings, micros, millis},
};

/// The figures of one run.
pub(crate) struct Table {
    yardsticks: Value,
    figures: Vec<Value>,
}

/// How one operation fared, many times over.
pub(crate) struct Figures<'a> {
    pub(crate) part: &'static str,
    /// What was done, and what one operation is called.
    pub(crate) name: &'a str,
    pub(crate) unit: &'static str,
    pub(crate) operations: usize,
    pub(crate) took: Duration,
    pub(crate) server: Duration,
    pub(crate) latency: Timings,
    /// Server CPU per operation that is aimed at, in microseconds.
    pub(crate) target: Option<f64>,
}

impl Table {
    pub(crate) fn new(verifications: f64, sync: Duration) -> Self {
        let yardsticks = json!({
            "verifications_per_second": verifications,
            "fdatasync_p50_ms": millis(sync),
        });
        Self { yardsticks, figures: Vec::new() }
    }

    pub(crate) fn header(&self) {
        say(format_args!("{:<7} {:<56} {:>9} {:<5} {:>6} {:>6}", "part", "figure", "value", "unit", "target", "ratio"));
    }

    /// Throughput, latency and what it cost the server.
    pub(crate) fn add(&mut self, mut figures: Figures<'_>) {
        let Figures { part, name, unit, operations, took, server, target, .. } = figures;
        let p50 = millis(figures.latency.percentile(50));
        let p99 = millis(figures.latency.percentile(99));
        self.figure(part, &format!("{name}: throughput"), operations as f64 / took.as_secs_f64(), "/s", None);
        self.figure(part, &format!("{name}: latency p50"), p50, "ms", None);
        self.figure(part, &format!("{name}: latency p99"), p99, "ms", None);
        let each = micros(server) / operations.max(1) as f64;
        self.figure(part, &format!("{name}: server CPU per {unit}"), each, "µs", target);
    }

    /// One figure and what it should be at most.
    pub(crate) fn figure(&mut self, part: &str, name: &str, value: f64, unit: &str, target: Option<f64>) {
        let digits = if value.abs() < 100.0 { 2 } else { 0 };
        let aim = target.map(|target| format!("{target:.*}", if target < 10.0 { 1 } else { 0 })).unwrap_or_default();
        let ratio = target.map(|target| value / target);
        let shown = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        say(format_args!("{part:<7} {name:<56} {value:>9.digits$} {unit:<5} {aim:>6} {shown:>6}"));
        self.figures.push(json!({
            "part": part, "figure": name, "value": value, "unit": unit, "target": target, "ratio": ratio,
        }));
    }

    pub(crate) fn write(&self, file: &Path) -> anyhow::Result<()> {
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let all = json!({ "yardsticks": self.yardsticks, "figures": self.figures });
        std::fs::write(file, serde_json::to_string_pretty(&all)?)?;
        Ok(())
    }
}
