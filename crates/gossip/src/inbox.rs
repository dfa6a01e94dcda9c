//! Messages of peers: rate limited, queued within bounds, decoded, and submitted to the engine in batches.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use kukuri_domain::{Origin, TopicId};
use kukuri_engine::PublishRefused;
use kukuri_pacing::KeyedRateLimiter;
use kukuri_store::Outcome;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    bridge::BridgeContext, large_events, metrics::Dropped, peer::PeerId, settings::GossipLimits, wire::Message,
};

const MAX_QUEUED_MESSAGES: usize = 8_192;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Messages submitted to the engine at a time.
const BATCH_MESSAGES: usize = 512;
/// Burst of received messages, as time at the steady rate.
const BURST: Duration = Duration::from_secs(2);
/// Peers with a rate limiter of their own; idle ones are dropped first.
const MAX_PEER_LIMITERS: usize = 1_024;

pub(crate) struct Inbox {
    queue: mpsc::Sender<QueuedMessage>,
    queue_bytes: Arc<Semaphore>,
    /// For received messages (G-6).
    limiter: Mutex<KeyedRateLimiter<PeerId>>,
}

pub(crate) struct QueuedMessage {
    peer: PeerId,
    topic: TopicId,
    content: Bytes,
    bytes_permit: OwnedSemaphorePermit,
}

impl Inbox {
    pub(crate) fn new(limits: &GossipLimits) -> (Self, mpsc::Receiver<QueuedMessage>) {
        let (queue, queued) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let queue_bytes = Arc::new(Semaphore::new(MAX_QUEUED_BYTES));
        let (all_peers, peer) = (limits.received, limits.peer);
        let limiter = KeyedRateLimiter::new(all_peers, peer, BURST, MAX_PEER_LIMITERS, Instant::now());
        (Self { queue, queue_bytes, limiter: Mutex::new(limiter) }, queued)
    }

    /// Queues a message, or returns why it is dropped. Never waits.
    pub(crate) fn enqueue(&self, topic: &TopicId, peer: PeerId, content: Bytes) -> Result<(), Dropped> {
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
        self.limiter.lock().try_spend(peer, bytes, Instant::now())
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
                Err(reason) => ctx.metrics.count_dropped(reason),
            }
        }
        if !batch.is_empty() {
            submit_events(&ctx, batch).await;
        }
    }
}

/// Submits events to the engine and counts its answers: one per event, in order.
pub(crate) async fn submit_events(
    ctx: &BridgeContext,
    batch: Vec<(Bytes, Origin)>,
) -> Vec<Result<Outcome, PublishRefused>> {
    let answers = ctx.engine.intake().submit_batch(batch).await;
    answers.iter().for_each(|answer| ctx.metrics.count_answer(answer));
    answers
}
