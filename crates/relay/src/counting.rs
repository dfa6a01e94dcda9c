//! Single steps of what a session does, for `cargo xtask counts` to count what they cost.
//!
//! A feature, and for that program alone: messages, subscriptions and frames are nobody else's business. Nothing is done
//! here: each function hands on to the code that serves clients. Sockets, rates and metrics are left out.

use std::sync::Arc;

use kukuri_domain::{Admitted, Event, EventId, Filter, Viewer};
use kukuri_engine::live::{LiveFilter, LiveIndex, LiveSubscription, QueueReceiver, client_queue};
use kukuri_store::{Completeness, Outcome, Seq, StoredEvent};

use crate::{
    message::{ClientMessage, SubscriptionId, reply},
    session::{
        frames::{Frames, Opcode},
        ok_reply,
    },
};

/// Reads `["EVENT", …]`. `None` if it is anything else.
pub fn read_event(text: &str) -> Option<Event> {
    match ClientMessage::parse(text) {
        Ok(ClientMessage::Event(json)) => Event::from_json(json).ok(),
        _ => None,
    }
}

/// Reads `["REQ", …]`. `None` if it is anything else.
pub fn read_request(text: &str) -> Option<Vec<Filter>> {
    match ClientMessage::parse(text) {
        Ok(ClientMessage::Req(_, Ok(filters))) => Some(filters),
        _ => None,
    }
}

/// Clients with one live subscription each.
pub struct Listeners {
    index: Arc<LiveIndex>,
    receivers: Vec<QueueReceiver>,
    _subscriptions: Vec<LiveSubscription>,
}

impl Listeners {
    /// A client for each of these filters.
    pub fn new(filters: impl IntoIterator<Item = Filter>) -> Self {
        let index = Arc::new(LiveIndex::new(None, Arc::default()));
        let subscribe = |filter| {
            let (queue, receiver) = client_queue();
            let wanted = vec![LiveFilter { filter, words: None }];
            (receiver, index.subscribe(wanted, &Viewer::unauthenticated(), &queue))
        };
        let (receivers, subscriptions) = filters.into_iter().map(subscribe).unzip();
        Self { index, receivers, _subscriptions: subscriptions }
    }

    /// Queues an event for each client that asked for it. Returns how many there are.
    pub fn publish(&self, admitted: &Admitted) -> usize {
        self.index.deliver(admitted, Some(Seq(1)))
    }

    /// Takes everything off the queues. Returns how much that was.
    pub fn drain(&mut self) -> usize {
        let waiting = |receiver: &mut QueueReceiver| std::iter::from_fn(|| receiver.next_if_ready()).count();
        self.receivers.iter_mut().map(waiting).sum()
    }
}

/// The send buffer of a client.
pub struct Outbound {
    subscription: SubscriptionId,
    frames: Frames,
}

impl Outbound {
    /// Nothing yet, for a client with a subscription of this name.
    pub fn new(subscription: &str) -> Self {
        Self { subscription: SubscriptionId::new(subscription), frames: Frames::default() }
    }

    /// Adds the answer to an event that was stored.
    pub fn stored(&mut self, id: EventId) {
        self.frames.push(Opcode::Text, &[ok_reply(&id.to_string(), &Outcome::Stored).as_bytes()]);
    }

    /// Adds a live event.
    pub fn live(&mut self, json: &[u8]) {
        self.frames.push(Opcode::Text, &reply::event(&self.subscription, json));
    }

    /// Adds stored events and the end of them.
    pub fn answer(&mut self, events: &[StoredEvent]) {
        events.iter().for_each(|event| self.live(&event.json));
        self.frames.push(Opcode::Text, &[reply::eose(&self.subscription, Completeness::Complete).as_bytes()]);
    }

    /// Everything is sent. Returns how many bytes that is.
    pub fn sent(&mut self) -> usize {
        let bytes = self.frames.unsent().len();
        self.frames.advance(bytes);
        bytes
    }
}
