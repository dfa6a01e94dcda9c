//! The send queue of one client: answers to its own events, and live events up to a bound (W-5). What waits in all queues of
//! slow readers comes out of the memory that answers have, of which each address has a part (Y-1).
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
use tokio::{sync::oneshot, task::coop::poll_proceed};

use crate::{networks::Share, refused::PublishRefused};

/// Bytes of live events that may wait for a client: their JSON, and the list entries.
const MAX_QUEUED_BYTES: usize = 16 << 20;
const ENTRY_BYTES: usize = size_of::<Outgoing>();
/// Bytes that each queue may hold in any case: a client that reads what it gets holds no more.
const OWN_BYTES: usize = 32 << 10;
/// Bytes that a queue above [`OWN_BYTES`] reserves from the memory of its address at a time.
const MEMORY_STEP: usize = 64 << 10;
/// Entries that stay allocated while the queue is empty: a node has many idle connections.
const MAX_IDLE_CAPACITY: usize = 64;

/// Something to be sent.
#[derive(Debug)]
pub enum Outgoing {
    /// The answer to an event that this client sent. Bounded by the events it may have in flight.
    Answer(EventId, Outcome),
    /// The refusal of an event that did not reach the writer, after later messages of this client were read. Bounded likewise.
    Refused(EventId, Box<PublishRefused>),
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
    /// How many subscriptions it is delivered to. Their queues share its JSON.
    pub deliveries: usize,
}

impl LiveEvent {
    /// Bytes that one delivery adds to the memory of all queues together.
    fn bytes_of_delivery(&self) -> usize {
        ENTRY_BYTES + self.json.len() / self.deliveries.max(1)
    }
}

/// Memory for what waits in queues beyond the bytes that each may hold in any case. Asked for a number of bytes.
pub(crate) type QueueMemory = Box<dyn Fn(usize) -> Option<Share> + Send + Sync>;

/// The queue of one client: the end that the writer and the live index push to.
pub struct ClientQueue {
    queued: Mutex<Queued>,
    /// `None`: there is as much as the queue may hold.
    memory: Option<QueueMemory>,
}

#[derive(Default)]
struct Queued {
    outgoing: VecDeque<Outgoing>,
    /// Of live events, each with its whole JSON.
    bytes: usize,
    /// Of live events, each with this queue's part of its JSON.
    shared_bytes: usize,
    /// Memory for `shared_bytes` beyond [`OWN_BYTES`].
    memory: Option<Share>,
    has_overflowed: bool,
    /// The client is gone.
    is_closed: bool,
    /// Resolves when the last event that took a turn has had it.
    last_turn: Option<oneshot::Receiver<()>>,
    /// Wakes the task that waits for an entry.
    receiver: Option<Waker>,
    /// Wakes the task that waits for an overflow while it sends.
    sender: Option<Waker>,
}

/// The receiving end, in the client's own task. Dropped, nothing more is queued.
pub struct QueueReceiver {
    queue: Arc<ClientQueue>,
}

/// The place of an event among those of its client: events that are looked up at the same time reach the writer in the order in
/// which they were sent. Dropped, it is the turn of the next.
pub(crate) struct Turn {
    before: Option<oneshot::Receiver<()>>,
    _done: oneshot::Sender<()>,
}

impl Turn {
    /// Waits until the events before this one have had their turn.
    pub(crate) async fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await;
        }
    }
}

/// A queue that is bounded by itself alone, and its receiving end. Clients get theirs of
/// [`Engine::client_queue`](crate::Engine::client_queue).
pub fn client_queue() -> (Arc<ClientQueue>, QueueReceiver) {
    ClientQueue::new(None)
}

impl ClientQueue {
    /// A queue and its receiving end.
    pub(crate) fn new(memory: Option<QueueMemory>) -> (Arc<Self>, QueueReceiver) {
        let queue = Arc::new(Self { queued: Mutex::default(), memory });
        (Arc::clone(&queue), QueueReceiver { queue })
    }

    /// Queues the answer to an event. The client may be gone.
    pub fn push_answer(&self, id: EventId, outcome: Outcome) {
        self.push(Outgoing::Answer(id, outcome));
    }

    /// Queues the refusal of an event.
    pub(crate) fn push_refusal(&self, id: EventId, refused: PublishRefused) {
        self.push(Outgoing::Refused(id, Box::new(refused)));
    }

    fn push(&self, answer: Outgoing) {
        let mut queued = self.queued.lock();
        if !queued.is_closed && !queued.has_overflowed {
            queued.outgoing.push_back(answer);
            wake_receiver(queued);
        }
    }

    /// The turn of this client's next event, after those before it.
    pub(crate) fn take_turn(&self) -> Turn {
        let (done, next) = oneshot::channel();
        Turn { before: self.queued.lock().last_turn.replace(next), _done: done }
    }

    /// Queues a live event; past the bounds, drops all there is and reports an overflow instead.
    pub fn push_live(&self, delivery: Delivery) {
        let mut queued = self.queued.lock();
        if queued.is_closed || queued.has_overflowed {
            return;
        }
        let bytes = queued.bytes + delivery.bytes_beside(queued.outgoing.back());
        let shared_bytes = queued.shared_bytes + delivery.event.bytes_of_delivery();
        if bytes > MAX_QUEUED_BYTES || !queued.reserve(shared_bytes, self.memory.as_ref()) {
            let (receiver, sender) = (queued.receiver.take(), queued.sender.take());
            let last_turn = queued.last_turn.take();
            *queued = Queued { has_overflowed: true, receiver, last_turn, ..Queued::default() };
            wake_receiver(queued);
            sender.into_iter().for_each(Waker::wake);
            return;
        }
        (queued.bytes, queued.shared_bytes) = (bytes, shared_bytes);
        queued.outgoing.push_back(Outgoing::Live(delivery));
        wake_receiver(queued);
    }

    /// Returns once the queue has overflowed.
    pub async fn overflowed(&self) {
        poll_fn(|context| {
            let mut queued = self.queued.lock();
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
        let mut queued = self.queue.queued.lock();
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
        self.queue.queued.lock().next()
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
            self.shared_bytes -= delivery.event.bytes_of_delivery();
        }
        if self.outgoing.is_empty() && self.outgoing.capacity() > MAX_IDLE_CAPACITY {
            self.outgoing = VecDeque::new();
        }
        if let Some(memory) = &mut self.memory {
            if self.shared_bytes <= OWN_BYTES {
                self.memory = None;
            } else if memory.amount() > self.shared_bytes + 4 * MEMORY_STEP {
                memory.shrink_to(self.shared_bytes + MEMORY_STEP);
            }
        }
        Some(next)
    }

    /// Takes memory for this many bytes, if it is not held already. Returns whether it is held now.
    fn reserve(&mut self, shared_bytes: usize, memory: Option<&QueueMemory>) -> bool {
        let held = OWN_BYTES + self.memory.as_ref().map_or(0, Share::amount);
        if shared_bytes <= held {
            return true;
        }
        let Some(memory) = memory else { return true };
        let Some(more) = memory((shared_bytes - held).max(MEMORY_STEP)) else { return false };
        match &mut self.memory {
            Some(memory) => memory.merge(more),
            None => self.memory = Some(more),
        }
        true
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        let mut queued = self.queue.queued.lock();
        *queued = Queued { is_closed: true, ..Queued::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::IpAddr,
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;
    use crate::networks::{AddressLimit, ShareLimits, Shares};

    fn delivery(bytes: usize) -> Delivery {
        delivery_to(1, bytes)
    }

    fn delivery_to(deliveries: usize, bytes: usize) -> Delivery {
        let id = EventId::from_bytes([0; 32]);
        Delivery { number: 1, event: Arc::new(LiveEvent { id, seq: None, json: vec![b'x'; bytes].into(), deliveries }) }
    }

    /// Memory for one address, of which all queues may hold this much.
    fn memory(total: usize) -> (Arc<Shares>, impl Fn() -> QueueMemory) {
        let shares = Arc::<Shares>::default();
        let limits = ShareLimits { address: AddressLimit::Unlimited, total };
        let ip = IpAddr::from([192, 0, 2, 1]);
        let own = Arc::clone(&shares);
        (shares, move || {
            let shares = Arc::clone(&own);
            Box::new(move |bytes| shares.acquire(ip, bytes..=bytes, limits).ok())
        })
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
            assert_eq!(queue.queued.lock().outgoing.capacity(), 0, "what it held is dropped at once");
            assert!(matches!(receiver.next_if_ready(), Some(Outgoing::Overflowed)));
        }
    }

    #[test]
    fn queues_of_slow_readers_share_one_memory() {
        // Y-1: 50 connections that read nothing.
        let (shares, queue_memory) = memory(4 << 20);
        let queues: Vec<_> = (0..50).map(|_| ClientQueue::new(Some(queue_memory()))).collect();
        for _ in 0..1_000 {
            for (queue, _) in &queues {
                queue.push_live(delivery(10_000));
            }
        }
        let held: usize = queues.iter().map(|(queue, _)| queue.queued.lock().bytes).sum();
        assert!(held <= (4 << 20) + queues.len() * OWN_BYTES, "{held}");
        assert!(queues.iter().all(|(queue, _)| queue.queued.lock().has_overflowed), "none may hold more");
        assert_eq!(shares.total(), 0, "an overflow gives memory back");

        // One event for all of them is held once, and given back as it is read.
        let mut queues: Vec<_> = (0..50).map(|_| ClientQueue::new(Some(queue_memory()))).collect();
        for _ in 0..40 {
            let Delivery { event, .. } = delivery_to(50, 90_000);
            queues.iter().for_each(|(queue, _)| queue.push_live(Delivery { number: 1, event: Arc::clone(&event) }));
        }
        assert!(shares.total() > 0 && !queues.iter().any(|(queue, _)| queue.queued.lock().has_overflowed));
        for (queue, receiver) in &mut queues {
            while receiver.next_if_ready().is_some() {}
            let queued = queue.queued.lock();
            assert_eq!((queued.bytes, queued.shared_bytes), (0, 0));
        }
        assert_eq!(shares.total(), 0);
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
        assert_eq!(queue.queued.lock().bytes, 0);
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
        let queued = queue.queued.lock();
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
        assert_eq!(queue.queued.lock().outgoing.capacity(), 0);
    }
}
