//! Outgoing messages: broadcasts each event that a client of this node published once on each of its topics (G-2), within
//! the rate limits.
//!
//! iroh-gossip does not report lost messages. So a message of a topic without neighbours waits for one, with a timeout.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use kukuri_domain::{Admitted, KindClass, TopicId, sharing::may_pass_on};
use kukuri_pacing::KeyedRateLimiter;
use tokio::{sync::mpsc, time::sleep_until};

use crate::{
    bridge::BridgeContext,
    metrics::{Direction, NotSent, Sent},
    watchdog::call_timeout,
    wire::Message,
};

const MAX_QUEUED_MESSAGES: usize = 16_384;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// A message that would have to wait longer for its rate limit is dropped.
const MAX_RATE_DELAY: Duration = Duration::from_secs(30);
/// A topic that was just joined has no neighbours yet.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Burst of sent messages, as time at the steady rate. The queues of iroh-gossip are short: large messages that fill the
/// queues of several nodes at once stop all of these nodes.
const BURST: Duration = Duration::from_millis(250);
/// Topics with a rate limiter of their own; idle ones are dropped first.
const MAX_TOPIC_LIMITERS: usize = 4_096;

struct OutgoingMessage {
    topic: TopicId,
    content: Bytes,
    what: Sent,
    published_at: Instant,
}

struct Broadcaster {
    ctx: Arc<BridgeContext>,
    /// By the time at which they are due; the number keeps the order of equal times.
    queue: BTreeMap<(Instant, u64), OutgoingMessage>,
    queue_bytes: usize,
    next_number: u64,
    limiter: KeyedRateLimiter<TopicId>,
}

/// Broadcasts published events, for as long as the bridge runs.
pub(crate) async fn broadcast_published(ctx: Arc<BridgeContext>, mut published: mpsc::Receiver<Admitted>) {
    let limits = &ctx.settings.limits;
    let limiter = KeyedRateLimiter::new(limits.sent, limits.topic, BURST, MAX_TOPIC_LIMITERS, Instant::now());
    let mut broadcaster = Broadcaster { ctx, queue: BTreeMap::new(), queue_bytes: 0, next_number: 0, limiter };
    loop {
        while let Ok(admitted) = published.try_recv() {
            broadcaster.accept_published(&admitted);
        }
        broadcaster.ctx.metrics.queue.of(Direction::Out).set(broadcaster.queue.len() as f64);
        let next = broadcaster.queue.keys().next().map(|(due, _)| *due);
        if next.is_some_and(|due| due <= Instant::now()) {
            broadcaster.broadcast_next().await;
            continue;
        }
        tokio::select! {
            admitted = published.recv() => match admitted {
                Some(admitted) => broadcaster.accept_published(&admitted),
                None => return,
            },
            () = sleep_until(next.unwrap_or_else(Instant::now).into()), if next.is_some() => {}
        }
    }
}

impl Broadcaster {
    /// Schedules one message for each topic of an event.
    fn accept_published(&mut self, admitted: &Admitted) {
        let event = admitted.event();
        if !may_pass_on(event) {
            return;
        }
        if self.ctx.knows_no_peer() {
            return self.ctx.metrics.count_not_sent(NotSent::NoPeer);
        }
        let message = Message::of(event.id, admitted.json());
        let what = match message {
            Message::Event(_) => Sent::Event,
            Message::Announcement(_) => {
                if event.kind.class() == KindClass::Ephemeral {
                    self.ctx.large_events.insert_ephemeral(event.id, admitted.json().clone());
                }
                Sent::Announcement
            }
        };
        // A request may name topics that are not known here (T-9).
        let ctx = Arc::clone(&self.ctx);
        for topic in admitted.topics().iter().filter(|topic| ctx.engine.is_topic_enabled(topic)) {
            let (topic, content) = (topic.clone(), message.encode());
            let outgoing = OutgoingMessage { topic, content, what, published_at: Instant::now() };
            if let Err(reason) = self.schedule(outgoing) {
                self.ctx.metrics.count_not_sent(reason);
            }
        }
    }

    /// Queues a message for the time at which the rate limits let it pass.
    fn schedule(&mut self, outgoing: OutgoingMessage) -> Result<(), NotSent> {
        let (now, bytes) = (outgoing.published_at, outgoing.content.len());
        if self.queue.len() >= MAX_QUEUED_MESSAGES || self.queue_bytes + bytes > MAX_QUEUED_BYTES {
            return Err(NotSent::Queue);
        }
        let due = self.limiter.spend_before(now + MAX_RATE_DELAY, outgoing.topic.clone(), bytes, now);
        self.enqueue_at(due.ok_or(NotSent::Rate)?, outgoing);
        Ok(())
    }

    fn enqueue_at(&mut self, due: Instant, outgoing: OutgoingMessage) {
        self.next_number += 1;
        self.queue_bytes += outgoing.content.len();
        self.queue.insert((due, self.next_number), outgoing);
    }

    async fn broadcast_next(&mut self) {
        let Some((_, outgoing)) = self.queue.pop_first() else { return };
        self.queue_bytes -= outgoing.content.len();
        let joined = self.ctx.topics.get(&outgoing.topic).filter(|joined| !joined.state.lock().neighbours.is_empty());
        let Some(joined) = joined else {
            if outgoing.published_at.elapsed() > NEIGHBOUR_TIMEOUT {
                return self.ctx.metrics.count_not_sent(NotSent::NoNeighbour);
            }
            return self.enqueue_at(Instant::now() + RETRY_INTERVAL, outgoing);
        };
        let is_current = || self.ctx.topics.get(&outgoing.topic).is_some_and(|now| Arc::ptr_eq(&now, &joined));
        match call_timeout("broadcast", joined.sender.broadcast(outgoing.content.clone())).await {
            Ok(Ok(())) => return self.ctx.metrics.sent.of(outgoing.what).increment(1),
            Err(reason) if is_current() => self.ctx.replace_endpoint(reason),
            // The topic is being left, or the endpoint replaced: nothing was sent.
            Ok(Err(_)) | Err(_) => {}
        }
        self.enqueue_at(Instant::now() + RETRY_INTERVAL, outgoing);
    }
}
