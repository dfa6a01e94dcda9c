//! What waits to be sent to one client: answers to its own messages, and live events up to a bound (W-5).

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use kukuri_domain::EventId;
use kukuri_store::{Outcome, Seq};
use tokio::sync::{Notify, mpsc};

use crate::message::SubscriptionId;

/// The most live events, and the most bytes of them, that wait for a client.
const MOST_WAITING: usize = 16_384;
const MOST_BYTES: usize = 16 << 20;

/// Something to be sent.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// The answer to an event that this client sent. There are no more of these than it may have in flight.
    Decided(EventId, Outcome),
    /// A live event.
    Live(Delivery),
}

/// A live event for one subscription.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) subscription: SubscriptionId,
    /// Which of the subscriptions that ever had this id.
    pub(crate) number: u64,
    /// Its place in the outbox; `None` for what is not stored.
    pub(crate) seq: Option<Seq>,
    pub(crate) id: EventId,
    pub(crate) json: Bytes,
}

/// The sending end, shared by everything that has something for this client.
pub(crate) struct Queue {
    sender: mpsc::UnboundedSender<Outgoing>,
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    has_overflowed: AtomicBool,
    overflow: Notify,
}

/// The receiving end, in the client's own task.
pub(crate) struct Receiver {
    queue: Arc<Queue>,
    receiver: mpsc::UnboundedReceiver<Outgoing>,
}

pub(crate) fn queue() -> (Arc<Queue>, Receiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queue = Arc::new(Queue {
        sender,
        waiting: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        has_overflowed: AtomicBool::new(false),
        overflow: Notify::new(),
    });
    (Arc::clone(&queue), Receiver { queue, receiver })
}

impl Queue {
    /// Answers an event. The client may be gone.
    pub(crate) fn decided(&self, id: EventId, outcome: Outcome) {
        let _ = self.sender.send(Outgoing::Decided(id, outcome));
    }

    /// Adds a live event, or calls for the client to be closed if too much waits already.
    pub(crate) fn deliver(&self, delivery: Delivery) {
        let bytes = delivery.json.len();
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if waiting > MOST_WAITING || total > MOST_BYTES {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.has_overflowed.store(true, Ordering::Relaxed);
            self.overflow.notify_one();
            return;
        }
        let _ = self.sender.send(Outgoing::Live(delivery));
    }

    /// Whether this client has fallen too far behind. What waits then is not all there was.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.has_overflowed.load(Ordering::Relaxed)
    }

    /// Ends when this client has fallen too far behind.
    pub(crate) async fn overflowed(&self) {
        self.overflow.notified().await;
    }
}

impl Receiver {
    pub(crate) async fn next(&mut self) -> Option<Outgoing> {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Outgoing>> {
        self.receiver.poll_recv(context).map(|next| next.map(|next| self.count(next)))
    }

    pub(crate) fn next_if_ready(&mut self) -> Option<Outgoing> {
        let next = self.receiver.try_recv().ok()?;
        Some(self.count(next))
    }

    fn count(&self, outgoing: Outgoing) -> Outgoing {
        if let Outgoing::Live(delivery) = &outgoing {
            self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
            self.queue.bytes.fetch_sub(delivery.json.len(), Ordering::Relaxed);
        }
        outgoing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_holds_no_more_than_its_bound_and_calls_for_an_end() {
        // W-5
        let (queue, mut receiver) = queue();
        let crate::message::ClientMessage::Close(subscription) =
            crate::message::ClientMessage::parse(r#"["CLOSE","s"]"#).unwrap()
        else {
            panic!("a CLOSE")
        };
        let delivery = || Delivery {
            subscription: subscription.clone(),
            number: 1,
            seq: None,
            id: EventId::from_bytes([0; 32]),
            json: Bytes::from(vec![b'x'; 64 << 10]),
        };
        for _ in 0..1_000 {
            queue.deliver(delivery());
        }
        assert!(queue.bytes.load(Ordering::Relaxed) <= MOST_BYTES);
        let mut overflowed = std::pin::pin!(queue.overflowed());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(overflowed.as_mut().poll(&mut context).is_ready());

        let mut received = 0;
        while receiver.next_if_ready().is_some() {
            received += 1;
        }
        assert_eq!(received, MOST_BYTES / (64 << 10));
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 0);
    }
}
