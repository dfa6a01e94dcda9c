//! The report: a line per figure while the benchmark runs, then report.md and report.json. Both have the same figures; the
//! page is tables of one kind, with a column for each relay.

use std::{fmt::Write as _, fs, path::Path, thread, time::Duration};

use serde::Serialize;

use crate::{
    corpus::CorpusSummary,
    options::Part,
    relay::OURS,
    say,
    timings::{Timings, Yardsticks},
};

/// The name of a figure: what an operation costs the server, against the cost of verifying one signature in the same run.
const CPU_BY_VERIFICATION: &str = "CPU each / one verification";

/// Targets of our own relay on two cores with the clients beside it, by part, row and name of the figure.
const TARGETS: [(Part, &str, &str, &str); 21] = [
    (Part::Ingest, "durability", "synced before OK", "≥ 100"),
    (Part::Ingest, "8 x 64 in flight", "throughput", "≥ 10,000"),
    (Part::Ingest, "8 x 64 in flight", CPU_BY_VERIFICATION, "≤ 2.40"),
    (Part::Ingest, "8 x 512 in flight", "throughput", "≥ 15,000"),
    (Part::Ingest, "1 x 1 in flight", "p50 / fdatasync", "≤ 3.00"),
    (Part::Postgres, "TCP, 1 x 1 in flight", "p50", "≤ 4.00"),
    (Part::Postgres, "TCP, 8 x 64 in flight", "throughput", "≥ 5,000"),
    (Part::Postgres, "TCP and 1 ms, 1 x 1 in flight", "p50", "≤ 20.0"),
    (Part::Postgres, "TCP and 1 ms, 8 x 64 in flight", "throughput", "≥ 3,000"),
    (Part::Req, "answers", "wrong", "≤ 0"),
    (Part::Req, "mix", "throughput", "≥ 6,000"),
    (Part::Req, "mix", CPU_BY_VERIFICATION, "≤ 3.00"),
    (Part::Req, "kill -9", "lost", "≤ 0"),
    (Part::Live, "fan-out", CPU_BY_VERIFICATION, "≤ 0.130"),
    (Part::Live, "fan-out", "p99", "≤ 20.0"),
    (Part::Idle, "connections", "memory of each", "≤ 15.0"),
    (Part::Growth, "in all", "query CPU", "≤ 1.50"),
    (Part::People, "100,000 accounts", "memory", "≤ 100"),
    (Part::People, "token", "CPU each", "≤ 50.0"),
    (Part::People, "REQ", "CPU of the policies", "≤ 5.00"),
    (Part::People, "event", "CPU of the policies", "≤ 2.00"),
];

/// The parts in the order of the page, and how each is measured.
const SECTIONS: [(Part, &str); 9] = [
    (
        Part::Ingest,
        "Signed events into an empty relay, \"connections x events in flight\"; latency is from sending to OK. Durability is \
         observed: one event in flight, system calls traced, and a sync must begin and end between an event and its OK. If a \
         machine wakes a process only at the next tick of its clock, a p50 of one at a time just below 4 ms tells of that.",
    ),
    (
        Part::Req,
        "Stored events out: eight connections with one request each in flight, about fifty events an answer. Every answer is \
         first compared with one computed from the corpus, event by event; \"ties\" are right but for the order within a \
         second. Disk is the blocks allocated. Then the relay is killed with SIGKILL and started on the same data.",
    ),
    (
        Part::Live,
        "One publisher at a steady rate, many subscribers of the topic; each must receive every event once. The cost of an \
         event without subscribers is subtracted.",
    ),
    (Part::Idle, "Connections that have subscribed and receive nothing: memory of each, and the CPU time of all."),
    (Part::Growth, "One relay, filled step by step: the last events before each size, and the mix of requests at it."),
    (
        Part::Postgres,
        "Our relay on Postgres, which shares the machine: by a Unix socket, by TCP on loopback, and by TCP through a proxy that delays \
         each byte by 1 or 5 ms, each way. CPU is the relay's own.",
    ),
    (Part::Store, "One writer, durable; queries warm, one at a time; answers are compared as for requests."),
    (Part::Search, "The time until a search finds an accepted event; an index by itself, filled and asked."),
    (
        Part::People,
        "A hundred thousand accounts with consents and a subscription each, in memory. CPU with the policies for members less CPU without them, \
         in turns, in one process: of the check of a REQ, and of an event up to its signature.",
    ),
];

/// Everything about one run.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    pub(crate) yardsticks: Yardsticks,
    corpus: CorpusSummary,
    /// How it was started.
    command: String,
    #[serde(skip)]
    pub(crate) subject: Subject,
    figures: Vec<Figure>,
    failures: Vec<Failure>,
    /// Wrong answers and losses of our own relay.
    pub(crate) faults: Vec<String>,
}

#[derive(Serialize)]
struct Machine {
    cores: usize,
    cpu: String,
    kernel: String,
}

/// The part and the relay under measurement.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) part: Part,
    /// The relay or store.
    pub(crate) of: String,
    /// Our own: wrong answers of it fail the run.
    pub(crate) is_ours: bool,
}

/// One thing that was measured.
#[derive(Serialize)]
struct Figure {
    part: Part,
    /// The relay or store.
    of: String,
    /// The operation.
    row: String,
    #[serde(rename = "figure")]
    name: &'static str,
    unit: &'static str,
    /// The median of all rounds.
    value: f64,
    rounds: Vec<f64>,
}

impl Figure {
    /// The name of the figure, the same for every relay.
    fn key(&self) -> (Part, &str, &str) {
        (self.part, &self.row, self.name)
    }

    fn target(&self) -> Option<&'static str> {
        TARGETS.iter().find_map(|(part, row, name, target)| ((*part, *row, *name) == self.key()).then_some(*target))
    }
}

/// Parts that could not be measured, and wrong answers.
#[derive(Serialize)]
struct Failure {
    part: Part,
    of: String,
    row: String,
    reason: String,
}

/// An operation that a server was asked for many times.
pub(crate) struct Measurement {
    pub(crate) took: Duration,
    /// Of the server.
    pub(crate) cpu: Duration,
    pub(crate) timings: Timings,
    /// Of the server afterwards, in bytes.
    pub(crate) memory: u64,
}

impl Measurement {
    /// Server CPU of each, in microseconds.
    pub(crate) fn cpu_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.timings.len().max(1) as f64
    }

    pub(crate) fn throughput(&self) -> f64 {
        self.timings.len() as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Report {
    pub(crate) fn new(yardsticks: Yardsticks, corpus: CorpusSummary, command: String) -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let machine = Machine {
            cores: thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu.map_or("unknown", |(_, name)| name).to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        };
        let report = Self {
            machine,
            yardsticks,
            corpus,
            command,
            subject: Subject { part: Part::Ingest, of: String::new(), is_ours: true },
            figures: Vec::new(),
            failures: Vec::new(),
            faults: Vec::new(),
        };
        say(format_args!("{}", report.head()));
        report
    }

    /// Throughput, latency, CPU time and memory of the server.
    pub(crate) fn measurement(&mut self, row: &str, mut measured: Measurement) {
        self.number(row, "throughput", "/s", measured.throughput());
        self.latency(row, &mut measured.timings);
        let cpu = measured.cpu_each();
        self.number(row, "CPU each", "µs", cpu);
        self.number(row, CPU_BY_VERIFICATION, "", cpu * self.yardsticks.verifications_per_second / 1e6);
        self.number(row, "memory", "MB", measured.memory as f64 / 1e6);
    }

    pub(crate) fn latency(&mut self, row: &str, timings: &mut Timings) {
        self.number(row, "p50", "ms", timings.percentile(50));
        self.number(row, "p99", "ms", timings.percentile(99));
    }

    pub(crate) fn number(&mut self, row: &str, name: &'static str, unit: &'static str, value: f64) {
        let Subject { part, of, .. } = self.subject.clone();
        say(format_args!("{part:<8} {of:<24} {row:<40} {name:<24} {:>10} {unit}", number(value)));
        let known = self.figures.iter().position(|figure| figure.key() == (part, row, name) && figure.of == of);
        let index = known.unwrap_or_else(|| {
            self.figures.push(Figure { part, of, row: row.to_owned(), name, unit, value, rounds: Vec::new() });
            self.figures.len() - 1
        });
        let figure = &mut self.figures[index];
        figure.rounds.push(value);
        figure.value = median(&figure.rounds);
    }

    /// Records that something could not be measured or went wrong, by the first line of the reason.
    pub(crate) fn failure(&mut self, row: &str, reason: &str) {
        let Subject { part, of, .. } = self.subject.clone();
        let reason: String = reason.lines().next().unwrap_or_default().chars().take(240).collect();
        say(format_args!("{part:<8} {of:<24} {row:<40} failed: {reason}"));
        self.failures.push(Failure { part, of, row: row.to_owned(), reason });
    }

    /// Records a wrong answer or a loss, if it is one of our own relay: then the run fails.
    pub(crate) fn fault(&mut self, what: String) {
        if self.subject.is_ours {
            say(format_args!("WRONG: {what}"));
            self.faults.push(what);
        }
    }

    /// Writes page and JSON into a directory.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        fs::write(directory.join("report.md"), self.page())?;
        fs::write(directory.join("report.json"), serde_json::to_string_pretty(self)?)?;
        Ok(())
    }

    fn head(&self) -> String {
        let Self { machine, yardsticks, corpus, .. } = self;
        format!(
            "- **Machine**: {} cores of {}, Linux {}; clients and relays share it\n\
             - **Yardsticks**: one core verifies {} events a second ({:.0} µs each); fdatasync p50 {:.2} ms\n\
             - **Corpus**: seed {}, {} events, fingerprint `{}`; the same seed gives the same corpus\n\
             - **Command**: `{}`\n",
            machine.cores,
            machine.cpu,
            machine.kernel,
            number(yardsticks.verifications_per_second),
            1e6 / yardsticks.verifications_per_second,
            yardsticks.fdatasync_p50_ms,
            corpus.seed,
            number(corpus.events as f64),
            corpus.fingerprint,
            self.command,
        )
    }

    fn page(&self) -> String {
        let mut page = format!("# Relays, measured side by side\n\n{}", self.head());
        for fault in &self.faults {
            let _ = write!(page, "\n**Wrong**: {}\n", fault);
        }
        if self.figures.iter().any(|figure| figure.target().is_some()) {
            let _ = write!(page, "\n## Targets\n\nFor {OURS}, on two cores with the clients beside it.\n");
            self.table(&mut page, |figure| figure.target().is_some());
        }
        for (part, how) in SECTIONS {
            let failures: Vec<&Failure> = self.failures.iter().filter(|failure| failure.part == part).collect();
            if failures.is_empty() && !self.figures.iter().any(|figure| figure.part == part) {
                continue;
            }
            let _ = write!(page, "\n## {part:?}\n\n{how}\n");
            for Failure { of, row, reason, .. } in failures {
                let _ = write!(page, "\n**{of}** {row} failed: {reason}\n");
            }
            self.table(&mut page, |figure| figure.part == part);
        }
        page
    }

    /// A line for each operation and figure, a column for each relay, and one for the ratio of each other to the first.
    fn table(&self, page: &mut String, is_wanted: impl Fn(&Figure) -> bool) {
        let figures: Vec<&Figure> = self.figures.iter().filter(|figure| is_wanted(figure)).collect();
        let relays = unique(figures.iter().map(|figure| figure.of.as_str()));
        let compared = relays.get(1..).unwrap_or_default();
        let ratios = compared.iter().map(|relay| format!(" {relay} / {} |", relays[0])).collect::<String>();
        let _ = write!(page, "\n| | target | {} |{ratios}\n|---|---:|", relays.join(" | "));
        let _ = writeln!(page, "{}", "---:|".repeat(relays.len() + compared.len()));
        for key in unique(figures.iter().map(|figure| figure.key())) {
            let of = |relay: &str| figures.iter().find(|figure| figure.key() == key && figure.of == relay);
            let Some(any) = relays.iter().find_map(|relay| of(relay)) else { continue };
            let unit = if any.unit.is_empty() { String::new() } else { format!(", {}", any.unit) };
            let target = any.target().unwrap_or_default();
            let _ = write!(page, "| {} {}: {}{unit} | {target} |", key.0, key.1, key.2);
            let value = |relay: &str| Some(of(relay)?.value);
            for relay in &relays {
                let _ = write!(page, " {} |", value(relay).map_or_else(String::new, number));
            }
            for relay in compared {
                let ratio = value(relay).zip(value(relays[0])).map(|(value, first)| value / first);
                let ratio = ratio.filter(|ratio| ratio.is_finite()).map(|ratio| format!("{ratio:.3}"));
                let _ = write!(page, " {} |", ratio.unwrap_or_default());
            }
            page.push('\n');
        }
    }
}

/// The different ones of these, in the order in which they come first.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut all, item| {
        if !all.contains(&item) {
            all.push(item);
        }
        all
    })
}

/// The median of one number or more.
fn median(numbers: &[f64]) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable_by(f64::total_cmp);
    (numbers[(numbers.len() - 1) / 2] + numbers[numbers.len() / 2]) / 2.0
}

/// Three digits that matter, or all before the point, in groups of three.
pub(crate) fn number(value: f64) -> String {
    let text = match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        small if small < f64::EPSILON => "0".to_owned(),
        _ => format!("{value:.3}"),
    };
    let end = text.find('.').unwrap_or(text.len());
    let is_after_comma = |index: usize| {
        index < end && (end - index).is_multiple_of(3) && text[..index].ends_with(|digit: char| digit.is_ascii_digit())
    };
    text.char_indices().fold(String::new(), |shown, (index, digit)| {
        shown + if is_after_comma(index) { "," } else { "" } + digit.encode_utf8(&mut [0; 4])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let shown = [0.0, 0.1234, 1.5, 42.42, 999.6, 12_345.6, 1_234_567.0, -1_234.0].map(number);
        assert_eq!(shown, ["0", "0.123", "1.50", "42.4", "1,000", "12,346", "1,234,567", "-1,234"]);
    }

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn tables_have_a_column_for_each_relay_and_ratios_to_the_first() {
        let corpus = CorpusSummary { seed: 1, events: 2, fingerprint: "ab".to_owned() };
        let yardsticks = Yardsticks { verifications_per_second: 20_000.0, fdatasync_p50_ms: 0.1 };
        let mut report = Report::new(yardsticks, corpus, "bench".to_owned());
        for (of, rounds) in [("old", [100.0, 300.0, 110.0]), ("new", [55.0, 54.0, 56.0])] {
            report.subject.of = of.to_owned();
            for value in rounds {
                report.number("8 x 64 in flight", "throughput", "/s", value);
            }
        }
        report.number("durability", "synced before OK", "%", 100.0);
        report.subject.of = "old".to_owned();
        report.failure("durability", "no strace\nat all");
        let page = report.page();
        for line in [
            "| | target | old | new | new / old |",
            "| ingest 8 x 64 in flight: throughput, /s | ≥ 10,000 | 110 | 55.0 | 0.500 |",
            "| ingest durability: synced before OK, % | ≥ 100 |  | 100 |  |",
        ] {
            assert_eq!(page.matches(line).count(), 2, "{line}\n{page}");
        }
        assert!(page.contains("**old** durability failed: no strace\n"), "{page}");
    }
}
