//! Other parts of the node as they show here: what they say of themselves in `/healthz`, and their figures.

use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::relay::Relay;

type Report = Box<dyn Fn() -> Value + Send + Sync>;

/// Parts that report.
#[derive(Default)]
pub(crate) struct Parts {
    reports: Mutex<Vec<(&'static str, Report)>>,
}

impl Parts {
    /// What each says now.
    pub(crate) fn look(&self) -> Map<String, Value> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.iter().map(|(name, report)| ((*name).to_owned(), report())).collect()
    }
}

impl Relay {
    /// From now on a part of the node says how it is in `/healthz`, under its name. It must answer at once.
    pub fn report(&self, name: &'static str, report: impl Fn() -> Value + Send + Sync + 'static) {
        let mut reports = self.parts.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.push((name, Box::new(report)));
    }

    /// Figures that are made in here are shown with the relay's own.
    pub fn measure<T>(&self, make: impl FnOnce() -> T) -> T {
        self.metrics.with_recorder(make)
    }
}
