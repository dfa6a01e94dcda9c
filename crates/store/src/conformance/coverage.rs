//! Counting which situations the random cases met: a run that met some too seldom has shown too little.

use std::{collections::BTreeMap, fmt};

/// With fewer cases, chance alone may leave a situation out.
const ENOUGH: u32 = 200;

/// How many cases met each situation.
#[derive(Default)]
pub(super) struct Coverage {
    cases: u32,
    met: BTreeMap<&'static str, u32>,
}

impl Coverage {
    /// Takes note of a case: of every situation, whether it was met.
    pub(super) fn count(&mut self, situations: impl IntoIterator<Item = (&'static str, bool)>) {
        self.cases += 1;
        for (situation, is_met) in situations {
            *self.met.entry(situation).or_default() += u32::from(is_met);
        }
    }

    /// Fails if a situation came up in less than one case of this many. Of few cases nothing can be said.
    pub(super) fn assert_one_in(&self, many: u32) {
        let least = if self.cases < ENOUGH { 0 } else { self.cases / many };
        for (situation, count) in &self.met {
            assert!(*count >= least, "{situation}: in {count} cases, at least {least} are needed\n{self}");
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} cases", self.cases)?;
        self.met.iter().try_for_each(|(situation, count)| write!(f, "\n{count:>8} {situation}"))
    }
}
