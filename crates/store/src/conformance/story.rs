//! Tables of short stories: events arrive, each gets its answer, and in the end some of them are effective.

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
pub(super) const SHED: Outcome = Outcome::Refused(Refusal::Shed);
pub(super) const LIVE_ONLY: Outcome = Outcome::Refused(Refusal::LiveOnly);

/// A row of a table.
pub(super) struct Story<'e> {
    /// What the row shows.
    pub(super) why: &'static str,
    /// The events in the order of their arrival, each with its answer.
    pub(super) arrivals: Vec<(&'e Event, Outcome)>,
    /// What is effective in the end.
    pub(super) effective: Vec<&'e Event>,
}

/// Every story must come true on a store of its own: with a batch for each event, and with all in one batch.
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
