//! Running a property: how many cases, and where failing ones are kept.

use std::fmt::Debug;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner},
};

use super::{block_on, subject::Harness};

/// A property: the test of one random case.
pub(super) struct Property<'h, H> {
    pub(super) harness: &'h H,
    /// Names the file of its regressions.
    pub(super) name: &'static str,
    /// Of the harness's number of cases, one in this many.
    pub(super) one_in: u32,
}

impl<H: Harness> Property<'_, H> {
    /// Tries it on every case kept from earlier failures, then on new ones. A failing case is shrunk and kept.
    pub(super) fn hold<S>(&self, cases: &S, test: impl AsyncFn(S::Value) -> Result<(), TestCaseError>)
    where
        S: Strategy,
        S::Value: Debug,
    {
        let file = self.harness.regressions().join(format!("{}.txt", self.name));
        // proptest wants a static name; a few bytes per property last as long as the test.
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
        let all = case_count().unwrap_or(self.harness.cases());
        (all / self.one_in).max(1)
    }
}

/// How many random cases are to be tried, if `KUKURI_TEST_PROPERTY_CASES` says so.
pub fn case_count() -> Option<u32> {
    let set = std::env::var("KUKURI_TEST_PROPERTY_CASES").ok();
    set.map(|text| text.parse().expect("KUKURI_TEST_PROPERTY_CASES is a number"))
}
