//! Runs a property with proptest: the number of cases, and the file that stores failing ones.

use std::fmt::Debug;

use kukuri_testing::long::scaled;
use proptest::{
    strategy::Strategy,
    test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner},
};

use super::{block_on, subject::Harness};

/// A property that is tested on random cases.
pub(super) struct Property<'h, H> {
    pub(super) harness: &'h H,
    /// The name of its regression file.
    pub(super) name: &'static str,
    /// Divisor of the harness's number of cases.
    pub(super) one_in: u32,
}

impl<H: Harness> Property<'_, H> {
    /// Tests the property on every stored regression, then on new cases. A failing case is shrunk and stored.
    pub(super) fn hold<S>(&self, cases: &S, test: impl AsyncFn(S::Value) -> Result<(), TestCaseError>)
    where
        S: Strategy,
        S::Value: Debug,
    {
        let file = self.harness.regressions().join(format!("{}.txt", self.name));
        // proptest needs a `&'static str`; this leaks a few bytes per property.
        let file: &'static str = file.to_string_lossy().into_owned().leak();
        let config = Config {
            cases: self.case_count(),
            failure_persistence: Some(Box::new(FileFailurePersistence::Direct(file))),
            max_shrink_time: 60_000,
            ..Config::default()
        };
        if let Err(failure) = TestRunner::new(config).run(cases, |case| block_on(test(case))) {
            panic!("{}: {failure}", self.name);
        }
    }

    fn case_count(&self) -> u32 {
        (scaled(self.harness.cases()) / self.one_in).max(1)
    }
}
