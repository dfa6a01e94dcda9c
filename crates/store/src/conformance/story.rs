//! Table-driven tests: events arrive in order, each gets an expected outcome, and an expected set is effective at the
//! end.

use std::collections::BTreeSet;

use kukuri_domain::{Event, Refusal};

use super::{
    build::NOW,
    probe::effective,
    subject::{Harness, Subject},
};
use crate::ingest::{Outcome, StoreRules};

pub(super) const STORED: Outcome = Outcome::Stored;
pub(super) const DUPLICATE: Outcome = Outcome::Duplicate;
pub(super) const EPHEMERAL: Outcome = Outcome::Ephemeral;
pub(super) const DELETED: Outcome = Outcome::Refused(Refusal::Deleted);
pub(super) const VANISHED: Outcome = Outcome::Refused(Refusal::Vanished);
pub(super) const REPLACED: Outcome = Outcome::Refused(Refusal::Replaced);
pub(super) const EXPIRED: Outcome = Outcome::Refused(Refusal::Expired);
pub(super) const PURGED: Outcome = Outcome::Refused(Refusal::Purged);
pub(super) const FULL: Outcome = Outcome::Refused(Refusal::Full);
pub(super) const PERMANENT_FULL: Outcome = Outcome::Refused(Refusal::PermanentFull);
pub(super) const SHED: Outcome = Outcome::Refused(Refusal::Shed);
pub(super) const LIVE_ONLY: Outcome = Outcome::Refused(Refusal::LiveOnly);

/// A row of a table.
pub(super) struct Story<'e> {
    /// The fact that the row tests.
    pub(super) why: &'static str,
    /// The events in order of arrival, each with its expected outcome.
    pub(super) arrivals: Vec<(&'e Event, Outcome)>,
    /// The expected effective events at the end.
    pub(super) effective: Vec<&'e Event>,
}

/// Checks every story on a new store: with one batch per event, and with all events in one batch.
pub(super) async fn all_come_true<H: Harness>(harness: &H, stories: Vec<Story<'_>>) {
    for story in stories {
        for size in [1, usize::MAX] {
            let store = Subject::open(harness, StoreRules::default()).await;
            story.comes_true(&store, size).await;
        }
    }
}

impl Story<'_> {
    async fn comes_true<H: Harness>(&self, store: &Subject<'_, H>, size: usize) {
        let why = self.why;
        for batch in self.arrivals.chunks(size.min(self.arrivals.len())) {
            let events: Vec<_> = batch.iter().map(|(event, _)| *event).collect();
            let expected: Vec<_> = batch.iter().map(|(_, outcome)| outcome.clone()).collect();
            assert_eq!(store.send(&events).await.outcomes, expected, "{why} (batches of {size})");
        }
        let expected: BTreeSet<_> = self.effective.iter().map(|event| event.id).collect();
        assert_eq!(effective(&**store, NOW).await, expected, "{why} (batches of {size})");
    }
}
