//! The subscriptions of one connection that are live.

use std::collections::HashSet;

use kukuri_domain::EventId;
use kukuri_store::Seq;

use crate::{message::SubscriptionId, queue::Delivery};

/// A subscription that is live, and the sequence its stored events were read at.
pub(super) struct Live {
    pub(super) id: SubscriptionId,
    /// By this the hub knows it. A later subscription has a higher one, whatever its id.
    pub(super) number: u64,
    pub(super) read_at: Seq,
    /// What a search has shown may have come later than that.
    pub(super) found: HashSet<EventId>,
    /// How many values its filters count as.
    pub(super) values: usize,
}

/// In the order of their numbers.
#[derive(Default)]
pub(super) struct Subscriptions(Vec<Live>);

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|live| live.number)
    }

    /// How many values all filters count as.
    pub(super) fn values(&self) -> usize {
        self.0.iter().map(|live| live.values).sum()
    }

    /// Adds the latest.
    pub(super) fn add(&mut self, live: Live) {
        self.0.push(live);
    }

    pub(super) fn remove(&mut self, id: &SubscriptionId) -> Option<Live> {
        let place = self.0.iter().position(|live| live.id == *id)?;
        Some(self.0.remove(place))
    }

    pub(super) fn remove_all(&mut self) -> Vec<Live> {
        std::mem::take(&mut self.0)
    }

    /// Whose event this is, if the subscription is still there and the event was not among its stored ones.
    pub(super) fn whose(&self, Delivery { number, event }: &Delivery) -> Option<&SubscriptionId> {
        let place = self.0.binary_search_by_key(number, |live| live.number).ok()?;
        let live = &self.0[place];
        let is_due = event.seq.is_none_or(|seq| seq > live.read_at) && !live.found.contains(&event.id);
        is_due.then_some(&live.id)
    }
}
