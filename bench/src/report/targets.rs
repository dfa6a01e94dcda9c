//! The headlines of the report, and the targets of our own relay on two cores with the clients beside it.

use serde_json::{Value, json};

use super::{Failure, Measured, Report};
use crate::relay::OURS;

pub(super) struct Headline {
    pub(super) title: &'static str,
    pub(super) part: &'static str,
    row: &'static str,
    name: &'static str,
    pub(super) aim: Aim,
}

#[derive(Clone, Copy)]
pub(super) enum Aim {
    AtLeast(f64),
    AtMost(f64),
    None,
}

impl Aim {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(aim) => Some(value >= aim),
            Self::AtMost(aim) => Some(value <= aim),
            Self::None => None,
        }
    }
}

const fn headline(title: &'static str, place: [&'static str; 3], aim: Aim) -> Headline {
    let [part, row, name] = place;
    Headline { title, part, row, name, aim }
}

/// The headlines.
pub(super) const HEADLINES: [Headline; 20] = [
    headline("ingest 8 × 64 in flight, events/s", ["ingest", "8 x 64 in flight", "events"], Aim::AtLeast(10_000.0)),
    headline("… server CPU per event, µs", ["ingest", "8 x 64 in flight", "CPU per event"], Aim::AtMost(120.0)),
    headline("ingest 8 × 512 in flight, events/s", ["ingest", "8 x 512 in flight", "events"], Aim::AtLeast(15_000.0)),
    headline("ingest one at a time, p50 ms", ["ingest", "1 x 1 in flight", "p50"], Aim::None),
    headline("… against fdatasync p50", ["ingest", "1 x 1 in flight", "p50 / fdatasync"], Aim::AtMost(3.0)),
    headline("synced before OK", ["ingest", "durability", "synced before OK"], Aim::None),
    headline("REQ mix, a second", ["req", "mix", "REQs"], Aim::AtLeast(6_000.0)),
    headline("… server CPU per REQ, µs", ["req", "mix", "CPU per REQ"], Aim::AtMost(150.0)),
    headline("… wrong answers", ["req", "answers", "wrong"], Aim::AtMost(0.0)),
    headline("fan-out, server CPU per delivery, µs", ["live", "fan-out", "CPU per delivery"], Aim::AtMost(5.0)),
    headline("… p99 ms", ["live", "fan-out", "p99"], Aim::AtMost(20.0)),
    headline("mixed load: OK p99 ms", ["mixed", "OK", "p99"], Aim::None),
    headline("… with a slow reader beside it", ["mixed", "OK, slow reader", "p99"], Aim::None),
    headline("idle connection, kB", ["idle", "connections", "memory of each"], Aim::AtMost(15.0)),
    headline("killed and started: first answer after, ms", ["restart", "kill -9", "first answer"], Aim::None),
    headline("… acknowledged events lost", ["restart", "kill -9", "lost"], Aim::AtMost(0.0)),
    headline("disk per event against its JSON", ["disk", "after the load", "disk / JSON"], Aim::None),
    headline("memory after the load and all requests, MB", ["req", "mix", "resident"], Aim::None),
    headline("query CPU, largest size against smallest", ["growth", "in all", "query CPU"], Aim::AtMost(1.5)),
    headline("ingest CPU, largest size against smallest", ["growth", "in all", "ingest CPU"], Aim::None),
];

impl Headline {
    /// The figure of a relay, or the reason why there is none.
    pub(super) fn cell(&self, report: &Report, relay: &str) -> String {
        match report.find(self.part, relay, self.row, self.name) {
            Some(Measured::Number(value)) => super::number(*value),
            Some(Measured::Words(words)) => words.clone(),
            None => {
                let failure = report.failures.iter().find(|failure| failure.part == self.part && failure.of == relay);
                let words =
                    |failure: &Failure| format!("failed: {}", failure.reason.chars().take(80).collect::<String>());
                failure.map_or_else(|| "–".to_owned(), words)
            }
        }
    }

    pub(super) fn aimed_at(&self) -> String {
        match self.aim {
            Aim::AtLeast(aim) => format!("≥ {}", super::number(aim)),
            Aim::AtMost(aim) => format!("≤ {}", super::number(aim)),
            Aim::None => String::new(),
        }
    }

    /// Whether our own relay is as it should be, if it was measured.
    pub(super) fn is_met(&self, report: &Report) -> Option<bool> {
        match report.find(self.part, OURS, self.row, self.name)? {
            Measured::Number(value) => self.aim.is_met(*value),
            Measured::Words(_) => None,
        }
    }
}

pub(super) fn json(report: &Report) -> Vec<Value> {
    let told = HEADLINES.iter().filter(|headline| !matches!(headline.aim, Aim::None));
    told.map(|headline| {
        json!({
            "figure": headline.title, "target": headline.aimed_at(),
            "value": headline.cell(report, OURS), "met": headline.is_met(report),
        })
    })
    .collect()
}
