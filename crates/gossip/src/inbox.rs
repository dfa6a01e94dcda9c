//! Messages of peers: rate limited, queued within bounds, decoded, and submitted to the engine in batches.

use std::{collections::HashMap, sync::Arc, time::Instant};

use bytes::Bytes;
use kukuri_domain::{Origin, TopicId};
use kukuri_engine::{Refused, metrics::MetricLabel};
use kukuri_store::Outcome;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    bridge::BridgeContext,
    large_events,
    message_rate::{MessageRateLimiter, RECEIVE_BURST},
    metrics::{Dropped, GossipMetrics, drop_reason},
    peer::PeerId,
    settings::{GossipLimits, Rate},
    wire::{Message, Unreadable},
};

const MAX_QUEUED_MESSAGES: usize = 8_192;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Messages submitted to the engine at a time.
const BATCH_MESSAGES: usize = 512;
/// Peers with a rate limiter of their own; idle ones are dropped first.
const MAX_PEER_LIMITERS: usize = 1_024;

pub(crate) struct Inbox {
    queue: mpsc::Sender<QueuedMessage>,
    queue_bytes: Arc<Semaphore>,
    limits: Mutex<ReceiveLimits>,
    metrics: Arc<GossipMetrics>,
}

/// A received message that waits for the engine.
pub(crate) struct QueuedMessage {
    peer: PeerId,
    topic: TopicId,
    content: Bytes,
    bytes_permit: OwnedSemaphorePermit,
}

/// Rate limits of received messages (G-6).
struct ReceiveLimits {
    all_peers: MessageRateLimiter,
    peer_rate: Rate,
    by_peer: HashMap<PeerId, MessageRateLimiter>,
}

impl ReceiveLimits {
    fn new(all_peers: Rate, peer_rate: Rate, now: Instant) -> Self {
        let all_peers = MessageRateLimiter::new(all_peers, RECEIVE_BURST, now);
        Self { all_peers, peer_rate, by_peer: HashMap::new() }
    }

    fn admit_message(&mut self, peer: PeerId, bytes: usize, now: Instant) -> bool {
        if self.by_peer.len() >= MAX_PEER_LIMITERS {
            self.by_peer.retain(|_, limiter| !limiter.is_idle(now));
        }
        let rate = self.peer_rate;
        let own = self.by_peer.entry(peer).or_insert_with(|| MessageRateLimiter::new(rate, RECEIVE_BURST, now));
        // The own limit first: a peer that exceeds it spends nothing of the limit for all peers.
        own.try_spend_message(bytes, now) && self.all_peers.try_spend_message(bytes, now)
    }
}

impl Inbox {
    pub(crate) fn new(limits: &GossipLimits, metrics: Arc<GossipMetrics>) -> (Self, mpsc::Receiver<QueuedMessage>) {
        let (queue, queued) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let limits = ReceiveLimits::new(limits.received, limits.peer, Instant::now());
        let queue_bytes = Arc::new(Semaphore::new(MAX_QUEUED_BYTES));
        (Self { queue, queue_bytes, limits: Mutex::new(limits), metrics }, queued)
    }

    /// Queues a message, or drops and counts it. Never waits.
    pub(crate) fn enqueue(&self, topic: &TopicId, peer: PeerId, content: Bytes) {
        self.metrics.received.increment(1);
        if let Err(reason) = self.try_enqueue(topic, peer, content) {
            self.metrics.count_dropped(reason.value());
        }
    }

    fn try_enqueue(&self, topic: &TopicId, peer: PeerId, content: Bytes) -> Result<(), Dropped> {
        if !self.is_within_rate(peer, content.len()) {
            return Err(Dropped::Rate);
        }
        let bytes = u32::try_from(content.len()).map_err(|_| Dropped::Oversize)?;
        let bytes_permit = Arc::clone(&self.queue_bytes).try_acquire_many_owned(bytes).map_err(|_| Dropped::Queue)?;
        let message = QueuedMessage { peer, topic: topic.clone(), content, bytes_permit };
        self.queue.try_send(message).map_err(|_| Dropped::Queue)
    }

    /// Counts bytes that a peer sends, or asks for, against its rate limit. `false`: over the limit.
    pub(crate) fn is_within_rate(&self, peer: PeerId, bytes: usize) -> bool {
        self.limits.lock().admit_message(peer, bytes, Instant::now())
    }

    pub(crate) fn queue_len(&self) -> usize {
        MAX_QUEUED_MESSAGES - self.queue.capacity()
    }
}

/// Decodes queued messages and submits their events, for as long as the bridge runs.
pub(crate) async fn process_queue(ctx: Arc<BridgeContext>, mut queued: mpsc::Receiver<QueuedMessage>) {
    let mut received = Vec::with_capacity(BATCH_MESSAGES);
    while queued.recv_many(&mut received, BATCH_MESSAGES).await > 0 {
        let mut batch = Vec::with_capacity(received.len());
        // Held until the whole batch is decided.
        let mut permits = Vec::with_capacity(received.len());
        for QueuedMessage { peer, topic, content, bytes_permit } in received.drain(..) {
            permits.push(bytes_permit);
            match Message::decode(content) {
                Ok(Message::Event(json)) => batch.push((json, Origin::Gossip { peer: *peer.as_bytes(), topic })),
                Ok(Message::Announcement(id)) => large_events::spawn_fetch(&ctx, peer, topic, id),
                Err(Unreadable::Version) => ctx.metrics.count_dropped(Dropped::Version.value()),
                Err(Unreadable::Malformed) => ctx.metrics.count_dropped(Dropped::Malformed.value()),
            }
        }
        submit_events(&ctx, batch).await;
    }
}

/// Submits events to the engine and counts its answers: one per event, in order.
pub(crate) async fn submit_events(ctx: &BridgeContext, batch: Vec<(Bytes, Origin)>) -> Vec<Result<Outcome, Refused>> {
    if batch.is_empty() {
        return Vec::new();
    }
    let answers = ctx.engine.intake().submit(batch).await;
    for answer in &answers {
        match drop_reason(answer) {
            None => ctx.metrics.accepted.increment(1),
            Some(reason) => ctx.metrics.count_dropped(reason),
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iroh::SecretKey;

    use super::*;

    #[test]
    fn a_flooding_peer_is_limited_and_others_pass_g6() {
        let now = Instant::now();
        let rate = |messages| Rate { messages, bytes: 1 << 30 };
        let mut limits = ReceiveLimits::new(rate(50), rate(10), now);
        let peer = |number: u16| {
            let mut bytes = [1; 32];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            SecretKey::from_bytes(&bytes).public()
        };
        let mut passed = |number, at| (0..1_000).filter(|_| limits.admit_message(peer(number), 1, at)).count();
        assert!((20..=21).contains(&passed(1, now)), "its own burst and no more");
        assert!((20..=21).contains(&passed(2, now)), "another peer is not affected");
        let rest: usize = (3..100).map(|number| passed(number, now)).sum();
        assert!((55..=62).contains(&rest), "all peers together are limited, too: {rest}");
        let later = now + Duration::from_secs(3_600);
        for number in 0..3_000 {
            limits.admit_message(peer(number), 1, later + Duration::from_secs(u64::from(number)));
        }
        assert!(limits.by_peer.len() <= MAX_PEER_LIMITERS, "limiters of idle peers are dropped");
    }
}
