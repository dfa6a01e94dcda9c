//! The live subscriptions of one connection.

use std::collections::HashSet;

use kukuri_domain::{EventId, Viewer};
use kukuri_engine::live::{Delivery, LiveSubscription};
use kukuri_store::Seq;

use crate::message::SubscriptionId;

/// Values in the filters of all live subscriptions: each is an entry in the live index.
pub(crate) const MAX_FILTER_VALUES: usize = 10_000;

/// A REQ whose stored events were sent.
pub(super) struct LiveRequest {
    pub(super) id: SubscriptionId,
    pub(super) live: LiveSubscription,
    /// The outbox sequence its stored events were read at.
    pub(super) read_at: Seq,
    /// Hits of its searches, which may be newer than `read_at`.
    pub(super) hits: HashSet<EventId>,
    /// How many values its filters count as.
    pub(super) values: usize,
}

/// Ordered by the numbers of their live subscriptions.
#[derive(Default)]
pub(super) struct Subscriptions(Vec<LiveRequest>);

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn set_viewer(&self, viewer: &Viewer) {
        self.0.iter().for_each(|request| request.live.set_viewer(viewer));
    }

    /// How many values all filters count as.
    pub(super) fn values(&self) -> usize {
        self.0.iter().map(|request| request.values).sum()
    }

    /// Adds the newest.
    pub(super) fn add(&mut self, request: LiveRequest) {
        self.0.push(request);
    }

    pub(super) fn end(&mut self, id: &SubscriptionId) {
        self.0.retain(|request| request.id != *id);
    }

    /// Ends the subscriptions that are refused. Returns them with the reasons.
    pub(super) fn end_refused<E>(
        &mut self,
        mut check: impl FnMut(&LiveSubscription) -> Result<(), E>,
    ) -> Vec<(SubscriptionId, E)> {
        let mut refused = Vec::new();
        self.0.retain(|request| match check(&request.live) {
            Ok(()) => true,
            Err(reason) => {
                refused.push((request.id.clone(), reason));
                false
            }
        });
        refused
    }

    pub(super) fn end_all(&mut self) {
        self.0.clear();
    }

    /// The subscription that a live event is for: `None` if it has ended, or if the event was among its stored ones.
    pub(super) fn receiver_of(&self, Delivery { number, event }: &Delivery) -> Option<&SubscriptionId> {
        let position = self.0.binary_search_by_key(number, |request| request.live.number()).ok()?;
        let request = &self.0[position];
        let is_new = event.seq.is_none_or(|seq| seq > request.read_at) && !request.hits.contains(&event.id);
        is_new.then_some(&request.id)
    }
}
