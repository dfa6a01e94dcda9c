//! The subscriptions of one connection that are live.

use std::collections::HashSet;

use kukuri_domain::{EventId, Viewer};
use kukuri_store::Seq;

use crate::{hub::Ticket, message::SubscriptionId, queue::Delivery};

/// A subscription that is live, and the sequence its stored events were read at.
pub(super) struct Live {
    pub(super) id: SubscriptionId,
    /// Its number orders it, whatever its id.
    pub(super) ticket: Ticket,
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

    /// They show from now on what this one may see.
    pub(super) fn show_to(&self, viewer: &Viewer) {
        self.0.iter().for_each(|live| live.ticket.show_to(viewer.clone()));
    }

    /// How many values all filters count as.
    pub(super) fn values(&self) -> usize {
        self.0.iter().map(|live| live.values).sum()
    }

    /// Adds the latest.
    pub(super) fn add(&mut self, live: Live) {
        self.0.push(live);
    }

    pub(super) fn end(&mut self, id: &SubscriptionId) {
        self.0.retain(|live| live.id != *id);
    }

    pub(super) fn end_all(&mut self) {
        self.0.clear();
    }

    /// Whose event this is, if the subscription is still there and the event was not among its stored ones.
    pub(super) fn whose(&self, Delivery { number, event }: &Delivery) -> Option<&SubscriptionId> {
        let place = self.0.binary_search_by_key(number, |live| live.ticket.number()).ok()?;
        let live = &self.0[place];
        let is_due = event.seq.is_none_or(|seq| seq > live.read_at) && !live.found.contains(&event.id);
        is_due.then_some(&live.id)
    }
}
