//! The report: a line per figure while the benchmark runs, then a page, and all of it as JSON.
//!
//! - [`machine`]: the hardware. [`targets`]: targets of our relay. [`markdown`]: the page.
//! - [`compared`]: two builds of our own node beside each other.

mod compared;
pub(crate) mod machine;
mod markdown;
mod targets;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    relay::process::Memory,
    say,
    timing::{Timings, micros, millis},
};
use machine::Machine;
pub(crate) use markdown::number;

/// Everything about one run.
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) yardsticks: Yardsticks,
    pub(crate) corpus: CorpusAbout,
    /// The relays, in the order of the tables, and the software and version that each reports (NIP-11).
    pub(crate) relays: Vec<(String, String)>,
    /// How it was started.
    pub(crate) command: String,
    figures: Vec<Figure>,
    failures: Vec<Failure>,
    /// Wrong answers and losses of our own relay.
    faults: Vec<String>,
}

/// The best that this machine does.
#[derive(Clone, Copy)]
pub(crate) struct Yardsticks {
    /// Events verified per second on one core.
    pub(crate) verifications: f64,
    /// A small durable write.
    pub(crate) sync: Duration,
}

/// The corpus of the run.
pub(crate) struct CorpusAbout {
    pub(crate) seed: u64,
    pub(crate) count: u64,
    pub(crate) fingerprint: String,
}

/// One thing that was measured.
struct Figure {
    part: &'static str,
    /// The relay, or store.
    of: String,
    /// The operation.
    row: String,
    name: String,
    unit: &'static str,
    /// The median of all rounds, or the last words.
    value: Measured,
    /// The numbers of all rounds.
    rounds: Vec<f64>,
}

impl Figure {
    fn is(&self, part: &str, of: &str, row: &str, name: &str) -> bool {
        self.part == part && self.of == of && self.row == row && self.name == name
    }
}

enum Measured {
    Number(f64),
    Words(String),
}

/// A relay could not be measured.
struct Failure {
    part: &'static str,
    of: String,
    reason: String,
}

/// How one operation fared, many times over.
pub(crate) struct Operation {
    pub(crate) count: usize,
    pub(crate) took: Duration,
    /// Of the server.
    pub(crate) cpu: Duration,
    pub(crate) latency: Timings,
    /// After it.
    pub(crate) memory: Memory,
}

/// Where a figure belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    pub(crate) part: &'static str,
    pub(crate) of: &'p str,
    pub(crate) row: &'p str,
}

impl Report {
    pub(crate) fn new(machine: Machine, yardsticks: Yardsticks, corpus: CorpusAbout, command: String) -> Self {
        let (figures, failures, faults) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, yardsticks, corpus, relays: Vec::new(), command, figures, failures, faults }
    }

    /// Throughput, latency, CPU time and memory of the server.
    pub(crate) fn operation(&mut self, place: Place<'_>, unit: &str, mut operation: Operation) {
        let many = if unit == "delivery" { "deliveries".to_owned() } else { format!("{unit}s") };
        self.latency(place, &many, &mut operation);
        self.figure(place, &format!("CPU per {unit}"), "µs", micros(operation.cpu) / operation.count.max(1) as f64);
        self.memory(place, operation.memory);
    }

    /// Throughput and latency.
    pub(crate) fn latency(&mut self, place: Place<'_>, many: &str, operation: &mut Operation) {
        let per_second = operation.count as f64 / operation.took.as_secs_f64().max(f64::MIN_POSITIVE);
        self.figure(place, many, "/s", per_second);
        self.figure(place, "p50", "ms", millis(operation.latency.percentile(50)));
        self.figure(place, "p99", "ms", millis(operation.latency.percentile(99)));
    }

    pub(crate) fn memory(&mut self, place: Place<'_>, memory: Memory) {
        self.figure(place, "resident", "MB", memory.resident as f64 / 1e6);
        self.figure(place, "own memory", "MB", memory.own as f64 / 1e6);
    }

    pub(crate) fn figure(&mut self, place: Place<'_>, name: &str, unit: &'static str, value: f64) {
        self.add(place, name, unit, Measured::Number(value));
    }

    pub(crate) fn words(&mut self, place: Place<'_>, name: &str, words: impl Into<String>) {
        self.add(place, name, "", Measured::Words(words.into()));
    }

    fn add(&mut self, place: Place<'_>, name: &str, unit: &'static str, value: Measured) {
        let shown = match &value {
            Measured::Number(value) => format!("{:>10} {unit}", number(*value)),
            Measured::Words(words) => words.clone(),
        };
        say(format_args!("{:<8} {:<16} {:<40} {name:<24} {shown}", place.part, place.of, place.row));
        let known = self.figures.iter().position(|figure| figure.is(place.part, place.of, place.row, name));
        let index = known.unwrap_or(self.figures.len());
        if known.is_none() {
            let (of, row, name) = (place.of.to_owned(), place.row.to_owned(), name.to_owned());
            let value = Measured::Words(String::new());
            self.figures.push(Figure { part: place.part, of, row, name, unit, value, rounds: Vec::new() });
        }
        let figure = &mut self.figures[index];
        if let Measured::Number(number) = value {
            figure.rounds.push(number);
            figure.value = Measured::Number(compared::median(&figure.rounds));
        } else {
            figure.value = value;
        }
    }

    /// Notes that a relay could not be measured, by the first line of the reason.
    pub(crate) fn failure(&mut self, part: &'static str, of: &str, error: &anyhow::Error) {
        let reason = format!("{error:#}");
        let reason: String = reason.lines().next().unwrap_or_default().chars().take(240).collect();
        say(format_args!("{part:<8} {of:<16} failed: {reason}"));
        self.failures.push(Failure { part, of: of.to_owned(), reason });
    }

    /// Adds a wrong answer or a loss of our own relay: the run fails.
    pub(crate) fn fault(&mut self, what: String) {
        say(format_args!("WRONG: {what}"));
        self.faults.push(what);
    }

    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }

    fn find(&self, part: &str, of: &str, row: &str, name: &str) -> Option<&Measured> {
        let figures = self.figures.iter().filter(|figure| figure.is(part, of, row, name));
        figures.map(|figure| &figure.value).next()
    }

    /// A number that was measured.
    pub(crate) fn value(&self, place: Place<'_>, name: &str) -> Option<f64> {
        match self.find(place.part, place.of, place.row, name)? {
            Measured::Number(value) => Some(*value),
            Measured::Words(_) => None,
        }
    }

    /// Writes page and JSON into a directory.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("report.md"), markdown::page(self))?;
        fs::write(directory.join("report.json"), serde_json::to_string_pretty(&self.json())?)?;
        Ok(())
    }

    fn json(&self) -> Value {
        let figures = self.figures.iter().map(|figure| {
            let value = match &figure.value {
                Measured::Number(value) => json!(value),
                Measured::Words(words) => json!(words),
            };
            json!({
                "part": figure.part, "of": figure.of, "row": figure.row,
                "figure": figure.name, "unit": figure.unit, "value": value, "rounds": figure.rounds,
            })
        });
        let failures = self.failures.iter();
        json!({
            "machine": self.machine.json(),
            "relays": self.relays.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect::<Vec<_>>(),
            "command": self.command,
            "corpus": {
                "seed": self.corpus.seed, "events": self.corpus.count, "fingerprint": self.corpus.fingerprint,
            },
            "yardsticks": {
                "verifications_per_second": self.yardsticks.verifications,
                "fdatasync_p50_ms": millis(self.yardsticks.sync),
            },
            "targets": targets::json(self),
            "compared": compared::json(self),
            "figures": figures.collect::<Vec<_>>(),
            "failures": failures
                .map(|failure| json!({ "part": failure.part, "of": failure.of, "reason": failure.reason }))
                .collect::<Vec<_>>(),
            "faults": self.faults,
        })
    }
}
