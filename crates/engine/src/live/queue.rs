//! The send queue of one client: answers to its own events, and live events up to a bound (W-5).
//!
//! Lock, list and wakers stand close together: most of the cost of a live event is cache misses.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use kukuri_domain::EventId;
use kukuri_store::{Outcome, Seq};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::coop::poll_proceed;

/// Bytes of live events that may wait for a client: their JSON, and the list entries.
const MAX_QUEUED_BYTES: usize = 16 << 20;
const ENTRY_BYTES: usize = size_of::<Outgoing>();
/// Entries that stay allocated while the queue is empty: a node has many idle connections.
const MAX_IDLE_CAPACITY: usize = 64;

/// Something to be sent.
#[derive(Debug)]
pub enum Outgoing {
    /// The answer to an event that this client sent. Bounded by the events it may have in flight.
    Answer(EventId, Outcome),
    /// A live event.
    Live(Delivery),
    /// The client has fallen too far behind: live events were dropped, so its connection has to end.
    Overflowed,
}

/// A live event for one subscription.
#[derive(Debug)]
pub struct Delivery {
    /// The number of the subscription.
    pub number: u64,
    /// The event.
    pub event: Arc<LiveEvent>,
}

impl Delivery {
    /// The bytes it adds next to its neighbour in the queue. Subscriptions that get the same event share its JSON.
    fn bytes_beside(&self, other: Option<&Outgoing>) -> usize {
        match other {
            Some(Outgoing::Live(other)) if Arc::ptr_eq(&self.event, &other.event) => ENTRY_BYTES,
            _ => ENTRY_BYTES + self.event.json.len(),
        }
    }
}

/// A live event, shared by all queues it is in.
#[derive(Debug)]
pub struct LiveEvent {
    /// Its id.
    pub id: EventId,
    /// Its outbox sequence; `None` for an ephemeral event.
    pub seq: Option<Seq>,
    /// Its JSON.
    pub json: Bytes,
}

/// The queue of one client: the end that the writer and the live index push to.
#[derive(Default)]
pub struct ClientQueue(Mutex<Queued>);

#[derive(Default)]
struct Queued {
    outgoing: VecDeque<Outgoing>,
    /// Of live events.
    bytes: usize,
    has_overflowed: bool,
    /// The client is gone.
    is_closed: bool,
    /// Wakes the task that waits for an entry.
    receiver: Option<Waker>,
    /// Wakes the task that waits for an overflow while it sends.
    sender: Option<Waker>,
}

/// The receiving end, in the client's own task. Dropped, nothing more is queued.
pub struct QueueReceiver {
    queue: Arc<ClientQueue>,
}

/// A queue and its receiving end.
pub fn client_queue() -> (Arc<ClientQueue>, QueueReceiver) {
    let queue = Arc::new(ClientQueue::default());
    (Arc::clone(&queue), QueueReceiver { queue })
}

impl ClientQueue {
    /// Queues the answer to an event. The client may be gone.
    pub fn push_answer(&self, id: EventId, outcome: Outcome) {
        let mut queued = self.0.lock();
        if !queued.is_closed {
            queued.outgoing.push_back(Outgoing::Answer(id, outcome));
            wake_receiver(queued);
        }
    }

    /// Queues a live event; past the bound, reports an overflow instead.
    pub fn push_live(&self, delivery: Delivery) {
        let mut queued = self.0.lock();
        if queued.is_closed || queued.has_overflowed {
            return;
        }
        let bytes = queued.bytes + delivery.bytes_beside(queued.outgoing.back());
        if bytes > MAX_QUEUED_BYTES {
            queued.has_overflowed = true;
            let sender = queued.sender.take();
            wake_receiver(queued);
            sender.into_iter().for_each(Waker::wake);
            return;
        }
        queued.bytes = bytes;
        queued.outgoing.push_back(Outgoing::Live(delivery));
        wake_receiver(queued);
    }

    /// Returns once the queue has overflowed.
    pub async fn overflowed(&self) {
        poll_fn(|context| {
            let mut queued = self.0.lock();
            if queued.has_overflowed {
                return Poll::Ready(());
            }
            register_waker(&mut queued.sender, context);
            Poll::Pending
        })
        .await;
    }
}

/// Wakes the receiving task, after the lock is released.
fn wake_receiver(mut queued: MutexGuard<'_, Queued>) {
    let receiver = queued.receiver.take();
    drop(queued);
    receiver.into_iter().for_each(Waker::wake);
}

fn register_waker(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}

impl QueueReceiver {
    /// The next entry.
    pub async fn next(&mut self) -> Outgoing {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// [`QueueReceiver::next`], polled.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Outgoing> {
        // Cooperative scheduling: other tasks get their turn however long the queue is.
        let turn = ready!(poll_proceed(context));
        let mut queued = self.queue.0.lock();
        match queued.next() {
            Some(next) => {
                turn.made_progress();
                Poll::Ready(next)
            }
            None => {
                register_waker(&mut queued.receiver, context);
                Poll::Pending
            }
        }
    }

    /// The next entry, if there is one.
    pub fn next_if_ready(&mut self) -> Option<Outgoing> {
        self.queue.0.lock().next()
    }
}

impl Queued {
    fn next(&mut self) -> Option<Outgoing> {
        if self.has_overflowed {
            return Some(Outgoing::Overflowed);
        }
        let next = self.outgoing.pop_front()?;
        if let Outgoing::Live(delivery) = &next {
            self.bytes -= delivery.bytes_beside(self.outgoing.front());
        }
        if self.outgoing.is_empty() && self.outgoing.capacity() > MAX_IDLE_CAPACITY {
            self.outgoing = VecDeque::new();
        }
        Some(next)
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        let mut queued = self.queue.0.lock();
        *queued = Queued { is_closed: true, ..Queued::default() };
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
    fn a_full_queue_drops_live_events_and_reports_an_overflow() {
        // W-5
        for bytes in [64 << 10, 100] {
            let (queue, mut receiver) = client_queue();
            let calls = Arc::new(Calls::default());
            let waker = Waker::from(Arc::clone(&calls));
            let mut context = Context::from_waker(&waker);
            let mut overflowed = pin!(queue.overflowed());
            assert!(overflowed.as_mut().poll(&mut context).is_pending());
            let mut sent = 0;
            // The overflow waker fires for an overflow only.
            while calls.0.load(Ordering::Relaxed) == 0 {
                queue.push_live(delivery(bytes));
                sent += 1;
            }
            assert_eq!(sent, MAX_QUEUED_BYTES / (bytes + ENTRY_BYTES) + 1);
            assert!(overflowed.as_mut().poll(&mut context).is_ready());
            queue.push_live(delivery(bytes));
            assert_eq!(queue.0.lock().outgoing.len(), sent - 1);
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Overflowed)));
        }
    }

    #[test]
    fn an_event_for_several_subscriptions_counts_its_json_once() {
        // W-5: as many as one transaction makes live, for a client whose subscriptions all ask for them.
        let (queue, mut receiver) = client_queue();
        let numbers = 1..=64;
        for _ in 0..2_048 {
            let Delivery { event, .. } = delivery(1_000);
            for number in numbers.clone() {
                queue.push_live(Delivery { number, event: Arc::clone(&event) });
            }
            queue.push_answer(event.id, Outcome::Stored);
        }
        for _ in 0..2_048 {
            for expected in numbers.clone() {
                let next = receiver.next_if_ready();
                assert!(
                    matches!(next, Some(Outgoing::Live(Delivery { number, .. })) if number == expected),
                    "{next:?}"
                );
            }
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Answer(..))));
        }
        assert_eq!(queue.0.lock().bytes, 0);
    }

    #[test]
    fn receiver_is_woken_once_and_an_empty_queue_gives_memory_back() {
        let (queue, mut receiver) = client_queue();
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        assert!(receiver.poll_next(&mut Context::from_waker(&waker)).is_pending());
        for _ in 0..1_000 {
            queue.push_live(delivery(100));
            queue.push_answer(EventId::from_bytes([1; 32]), Outcome::Stored);
        }
        assert_eq!(calls.0.load(Ordering::Relaxed), 1);
        for _ in 0..1_000 {
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Live(_))));
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Answer(..))), "in the order they came");
        }
        assert!(receiver.poll_next(&mut Context::from_waker(&waker)).is_pending());
        let queued = queue.0.lock();
        assert_eq!(queued.bytes, 0);
        assert!(queued.outgoing.capacity() <= MAX_IDLE_CAPACITY);
    }

    #[test]
    fn queue_of_a_client_that_is_gone_stays_empty() {
        let (queue, receiver) = client_queue();
        queue.push_live(delivery(100));
        drop(receiver);
        queue.push_live(delivery(100));
        queue.push_answer(EventId::from_bytes([1; 32]), Outcome::Stored);
        assert_eq!(queue.0.lock().outgoing.capacity(), 0);
    }
}
