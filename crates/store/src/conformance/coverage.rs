//! Counts how often random cases hit each situation of interest. A run that hits one too rarely proves too little, and
//! fails.

use std::{collections::BTreeMap, fmt};

/// With fewer cases, a situation may be missing by chance.
const ENOUGH: u32 = 200;

/// Number of runs of a property: by chance, the first may hit a situation too rarely. All of them together count.
pub(super) const MAX_RUNS: u32 = 4;

/// Number of cases that hit each situation.
#[derive(Default)]
pub(super) struct Coverage {
    cases: u32,
    met: BTreeMap<&'static str, u32>,
}

impl Coverage {
    /// Counts one case: for every situation, whether the case hit it.
    pub(super) fn count(&mut self, situations: impl IntoIterator<Item = (&'static str, bool)>) {
        self.cases += 1;
        for (situation, is_met) in situations {
            *self.met.entry(situation).or_default() += u32::from(is_met);
        }
    }

    /// Whether one in `many` cases hit each situation. Checks nothing if there were too few cases.
    pub(super) fn has_one_in(&self, many: u32) -> bool {
        self.met.values().all(|count| *count >= self.least(many))
    }

    /// Fails if fewer than one in `many` cases hit a situation. Checks nothing if there were too few cases.
    pub(super) fn assert_one_in(&self, many: u32) {
        let least = self.least(many);
        for (situation, count) in &self.met {
            assert!(*count >= least, "{situation}: in {count} cases, at least {least} are needed\n{self}");
        }
    }

    fn least(&self, many: u32) -> u32 {
        if self.cases < ENOUGH { 0 } else { self.cases / many }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} cases", self.cases)?;
        self.met.iter().try_for_each(|(situation, count)| write!(f, "\n{count:>8} {situation}"))
    }
}
