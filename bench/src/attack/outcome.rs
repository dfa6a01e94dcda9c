//! The figures of one attack, the bounds that they must keep, and the table.

use std::time::Duration;

use super::well_behaved::Served;

/// The memory that an attack may cost.
pub(crate) const MAX_GROWTH: u64 = 256 << 20;

/// The bounds of an attack's figures.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Milliseconds that the 99th percentile of the client's waiting times may always take.
    p99: f64,
    /// The factor by which it may grow above that.
    growth: f64,
    /// Time that a start may always take.
    start: Duration,
    /// Bytes by which the node's memory may grow.
    memory: u64,
}

impl Bounds {
    /// What the node promises (Y-1).
    pub(crate) const STRICT: Self =
        Self { p99: 250.0, growth: 10.0, start: Duration::from_millis(500), memory: MAX_GROWTH };
    /// For a machine that does other things as well, and a program that is not optimised.
    pub(crate) const GENEROUS: Self =
        Self { p99: 2_000.0, growth: 20.0, start: Duration::from_secs(5), memory: 2 * MAX_GROWTH };
}

/// The figures of one attack.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) before: Served,
    pub(crate) during: Served,
    /// Bytes of private memory. Pages of mapped files are not counted.
    pub(crate) memory_before: u64,
    pub(crate) memory_peak: u64,
    pub(crate) memory_after: u64,
    /// Cores that the node used during the attack.
    pub(crate) cpu: f64,
    /// How long until the node was as before, once the attackers had left. `None`: it was not.
    pub(crate) recovery: Option<Duration>,
    pub(crate) stop: Duration,
    pub(crate) usual_start: Duration,
    pub(crate) start: Duration,
    /// How the attackers were served.
    pub(crate) counts: String,
}

impl Outcome {
    fn growth(&self) -> u64 {
        self.memory_peak.saturating_sub(self.memory_before)
    }

    /// The 99th percentiles in milliseconds, before and during: OK, REQ, health.
    fn p99s(&self) -> [(&'static str, f64, f64); 3] {
        let (mut before, mut during) = (self.before.clone(), self.during.clone());
        [
            ("OK", before.ok.percentile(99), during.ok.percentile(99)),
            ("REQ", before.req.percentile(99), during.req.percentile(99)),
            ("health", before.health.percentile(99), during.health.percentile(99)),
        ]
    }

    /// One line for the person who waits.
    pub(crate) fn line(&self) -> String {
        let waits: Vec<String> =
            self.p99s().iter().map(|(what, before, during)| format!("{what} {before:.0} → {during:.0} ms")).collect();
        let errors = self.during.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        format!(
            "{:12} p99 {}; {} errors{errors}; memory +{} MB; {}",
            self.name,
            waits.join(", "),
            self.during.errors.len(),
            self.growth() >> 20,
            self.counts,
        )
    }

    /// The figures that are out of bounds.
    pub(crate) fn broken(&self, bounds: Bounds) -> Vec<String> {
        let mut broken = Vec::new();
        let mut note = |is_kept: bool, what: String| {
            if !is_kept {
                broken.push(format!("{}: {what}", self.name));
            }
        };
        for (what, before, during) in self.p99s() {
            let limit = bounds.p99.max(bounds.growth * before);
            note(during <= limit, format!("{what} p99 {during:.0} ms, at most {limit:.0}"));
        }
        let errors = &self.during.errors;
        note(
            errors.is_empty(),
            format!("{} errors, the first: {}", errors.len(), errors.first().map_or("", |error| error)),
        );
        note(
            self.growth() <= bounds.memory,
            format!("memory grew by {} MB, at most {}", self.growth() >> 20, bounds.memory >> 20),
        );
        note(self.recovery.is_some(), "the node is not as before when the attackers have left".to_owned());
        let limit = bounds.start.max(self.usual_start * 2);
        note(self.start <= limit, format!("a start takes {:?}, at most {limit:?}", self.start));
        broken
    }
}

/// All outcomes as a Markdown table.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut table = "| attack | what the attackers do | OK p99, ms | REQ p99, ms | health p99, ms | errors | memory, MB | CPU, cores | as before after, s | stop, s | start, s | attackers |\n\
                     |---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for outcome in outcomes {
        let [ok, req, health] = outcome.p99s().map(|(_, before, during)| format!("{before:.0} → {during:.0}"));
        let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
        let cells = [
            outcome.name.to_owned(),
            outcome.about.to_owned(),
            ok,
            req,
            health,
            outcome.during.errors.len().to_string(),
            format!(
                "+{}, +{} after",
                outcome.growth() >> 20,
                outcome.memory_after.saturating_sub(outcome.memory_before) >> 20
            ),
            format!("{:.1}", outcome.cpu),
            outcome.recovery.map_or("never".to_owned(), seconds),
            seconds(outcome.stop),
            format!("{} → {}", seconds(outcome.usual_start), seconds(outcome.start)),
            outcome.counts.clone(),
        ];
        table += &format!("| {} |\n", cells.join(" | "));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timings::Timings;

    fn outcome(before: u64, during: u64) -> Outcome {
        let served = |millis| Served { ok: Timings(vec![Duration::from_millis(millis); 10]), ..Served::default() };
        let second = Duration::from_secs(1);
        Outcome {
            name: "test",
            about: "nothing",
            before: served(before),
            during: served(during),
            memory_before: 0,
            memory_peak: 0,
            memory_after: 0,
            cpu: 0.0,
            recovery: Some(second),
            stop: second,
            usual_start: second,
            start: second,
            counts: String::new(),
        }
    }

    #[test]
    fn figures_out_of_bounds_are_named() {
        // Y-1
        assert!(outcome(2, 250).broken(Bounds::STRICT).is_empty());
        assert_eq!(outcome(2, 251).broken(Bounds::STRICT), ["test: OK p99 251 ms, at most 250"]);
        assert!(outcome(40, 400).broken(Bounds::STRICT).is_empty(), "ten times its own baseline");
        let large = Outcome { memory_peak: MAX_GROWTH + 1, ..outcome(2, 2) };
        assert_eq!(large.broken(Bounds::STRICT), ["test: memory grew by 256 MB, at most 256"]);
        let slow = Outcome { start: Duration::from_secs(3), recovery: None, ..outcome(2, 2) };
        assert_eq!(slow.broken(Bounds::STRICT).len(), 2);
        let failed = Outcome { during: Served::failed("it hung up"), ..outcome(2, 2) };
        assert_eq!(failed.broken(Bounds::STRICT), ["test: 1 errors, the first: it hung up"]);
    }
}
