//! What waits to be sent to one client: answers to its own messages, and live events up to a bound (W-5).
//!
//! A lock, a list and who waits for it, close together: most of what a live event costs is memory that is not at hand.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use kukuri_domain::EventId;
use kukuri_store::{Outcome, Seq};
use tokio::task::coop::poll_proceed;

/// The most bytes of live events that wait for a client: their JSON, and what each takes in the list.
const MOST_BYTES: usize = 16 << 20;
const ENTRY_BYTES: usize = size_of::<Outgoing>();
/// Room that stays allocated when nothing waits: connections that rest are many.
const KEPT: usize = 64;

/// Something to be sent.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// The answer to an event that this client sent. There are no more of these than it may have in flight.
    Decided(EventId, Outcome),
    /// A live event.
    Live(Delivery),
    /// This client has fallen too far behind: what waits is not all there was.
    Overflowed,
}

/// A live event for one subscription.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Which subscription.
    pub(crate) number: u64,
    pub(crate) event: Arc<LiveEvent>,
}

impl Delivery {
    /// What it takes beside another that waits. Several subscriptions may get one event, one after the other: it is shared.
    fn bytes_beside(&self, other: Option<&Outgoing>) -> usize {
        match other {
            Some(Outgoing::Live(other)) if Arc::ptr_eq(&self.event, &other.event) => ENTRY_BYTES,
            _ => ENTRY_BYTES + self.event.json.len(),
        }
    }
}

/// A live event, shared by all whom it goes to.
#[derive(Debug)]
pub(crate) struct LiveEvent {
    pub(crate) id: EventId,
    /// Its place in the outbox; `None` for what is not stored.
    pub(crate) seq: Option<Seq>,
    pub(crate) json: Bytes,
}

/// The sending end, shared by everything that has something for this client.
#[derive(Default)]
pub(crate) struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    outgoing: VecDeque<Outgoing>,
    /// Of live events.
    bytes: usize,
    has_overflowed: bool,
    /// The client is gone.
    is_closed: bool,
    /// Who waits for something to send, and who for an overflow.
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

/// The receiving end, in the client's own task.
pub(crate) struct Receiver {
    queue: Arc<Queue>,
}

pub(crate) fn queue() -> (Arc<Queue>, Receiver) {
    let queue = Arc::new(Queue::default());
    (Arc::clone(&queue), Receiver { queue })
}

impl Queue {
    /// Answers an event. The client may be gone.
    pub(crate) fn decided(&self, id: EventId, outcome: Outcome) {
        let mut waiting = self.waiting();
        if !waiting.is_closed {
            waiting.outgoing.push_back(Outgoing::Decided(id, outcome));
            wake(waiting);
        }
    }

    /// Adds a live event, or calls for the client to be closed if too much waits already.
    pub(crate) fn deliver(&self, delivery: Delivery) {
        let mut waiting = self.waiting();
        if waiting.is_closed || waiting.has_overflowed {
            return;
        }
        let bytes = waiting.bytes + delivery.bytes_beside(waiting.outgoing.back());
        if bytes > MOST_BYTES {
            waiting.has_overflowed = true;
            let sender = waiting.sender.take();
            wake(waiting);
            sender.into_iter().for_each(Waker::wake);
            return;
        }
        waiting.bytes = bytes;
        waiting.outgoing.push_back(Outgoing::Live(delivery));
        wake(waiting);
    }

    /// Ends when this client has fallen too far behind.
    pub(crate) async fn overflowed(&self) {
        poll_fn(|context| {
            let mut waiting = self.waiting();
            if waiting.has_overflowed {
                return Poll::Ready(());
            }
            waits(&mut waiting.sender, context);
            Poll::Pending
        })
        .await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes who waits for something to send, when it can be had.
fn wake(mut waiting: MutexGuard<'_, Waiting>) {
    let receiver = waiting.receiver.take();
    drop(waiting);
    receiver.into_iter().for_each(Waker::wake);
}

fn waits(who: &mut Option<Waker>, context: &Context<'_>) {
    match who {
        Some(waker) => waker.clone_from(context.waker()),
        None => *who = Some(context.waker().clone()),
    }
}

impl Receiver {
    pub(crate) async fn next(&mut self) -> Outgoing {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Outgoing> {
        // However much waits, others get their turn.
        let turn = ready!(poll_proceed(context));
        let mut waiting = self.queue.waiting();
        match waiting.next() {
            Some(next) => {
                turn.made_progress();
                Poll::Ready(next)
            }
            None => {
                waits(&mut waiting.receiver, context);
                Poll::Pending
            }
        }
    }

    pub(crate) fn next_if_ready(&mut self) -> Option<Outgoing> {
        self.queue.waiting().next()
    }
}

impl Waiting {
    fn next(&mut self) -> Option<Outgoing> {
        if self.has_overflowed {
            return Some(Outgoing::Overflowed);
        }
        let next = self.outgoing.pop_front()?;
        if let Outgoing::Live(delivery) = &next {
            self.bytes -= delivery.bytes_beside(self.outgoing.front());
        }
        if self.outgoing.is_empty() && self.outgoing.capacity() > KEPT {
            self.outgoing = VecDeque::new();
        }
        Some(next)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting();
        *waiting = Waiting { is_closed: true, ..Waiting::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    fn delivery(bytes: usize) -> Delivery {
        let id = EventId::from_bytes([0; 32]);
        Delivery { number: 1, event: Arc::new(LiveEvent { id, seq: None, json: vec![b'x'; bytes].into() }) }
    }

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_queue_holds_no_more_than_its_bound_and_calls_for_an_end() {
        // W-5
        for bytes in [64 << 10, 100] {
            let (queue, mut receiver) = queue();
            let calls = Arc::new(Calls::default());
            let waker = Waker::from(Arc::clone(&calls));
            let mut context = Context::from_waker(&waker);
            let mut overflowed = pin!(queue.overflowed());
            assert!(overflowed.as_mut().poll(&mut context).is_pending());
            let mut sent = 0;
            // It is not called before, for what it does not wait for.
            while calls.0.load(Ordering::Relaxed) == 0 {
                queue.deliver(delivery(bytes));
                sent += 1;
            }
            assert_eq!(sent, MOST_BYTES / (bytes + ENTRY_BYTES) + 1);
            assert!(overflowed.as_mut().poll(&mut context).is_ready());
            queue.deliver(delivery(bytes));
            assert_eq!(queue.waiting().outgoing.len(), sent - 1);
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Overflowed)));
        }
    }

    #[test]
    fn an_event_that_several_subscriptions_get_is_held_once() {
        // W-5: as many as one transaction makes live, for a client whose subscriptions all ask for them.
        let (queue, mut receiver) = queue();
        let numbers = 1..=64;
        for _ in 0..2_048 {
            let Delivery { event, .. } = delivery(1_000);
            for number in numbers.clone() {
                queue.deliver(Delivery { number, event: Arc::clone(&event) });
            }
            queue.decided(event.id, Outcome::Stored);
        }
        for _ in 0..2_048 {
            for expected in numbers.clone() {
                let next = receiver.next_if_ready();
                assert!(
                    matches!(next, Some(Outgoing::Live(Delivery { number, .. })) if number == expected),
                    "{next:?}"
                );
            }
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Decided(..))));
        }
        assert_eq!(queue.waiting().bytes, 0);
    }

    #[test]
    fn who_waits_is_called_once_and_room_is_given_back() {
        let (queue, mut receiver) = queue();
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        assert!(receiver.poll_next(&mut Context::from_waker(&waker)).is_pending());
        for _ in 0..1_000 {
            queue.deliver(delivery(100));
            queue.decided(EventId::from_bytes([1; 32]), Outcome::Stored);
        }
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
        for _ in 0..1_000 {
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Live(_))));
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Decided(..))), "in the order they came");
        }
        assert!(receiver.poll_next(&mut Context::from_waker(&waker)).is_pending());
        let waiting = queue.waiting();
        assert_eq!(waiting.bytes, 0);
        assert!(waiting.outgoing.capacity() <= KEPT);
    }

    #[test]
    fn nothing_is_kept_for_a_client_that_is_gone() {
        let (queue, receiver) = queue();
        queue.deliver(delivery(100));
        drop(receiver);
        queue.deliver(delivery(100));
        queue.decided(EventId::from_bytes([1; 32]), Outcome::Stored);
        assert_eq!(queue.waiting().outgoing.capacity(), 0);
    }
}
