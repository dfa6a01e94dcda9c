//! Events too large to broadcast: announced by id, and fetched from the peer that announced them.
//!
//! A request is an id of 32 bytes; the answer is the event's JSON, or nothing.

use std::{
    collections::{HashSet, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use kukuri_domain::{Event, EventId, Origin, TopicId, Viewer, sharing::may_pass_on};
use kukuri_engine::clock;
use kukuri_store::Outcome;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{sleep, timeout},
};

use crate::{
    bridge::BridgeContext,
    error::GossipError,
    inbox::submit_events,
    metrics::Dropped,
    peer::PeerId,
    peer_semaphore::PeerSemaphore,
    protocol::{PeerStream, RequestProtocol},
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Delays before each attempt: the announcing peer may still be fetching the event itself.
const ATTEMPT_DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
const MAX_CONCURRENT_FETCHES: usize = 64;
const MAX_CACHED_BYTES: usize = 16 << 20;

pub(crate) struct LargeEvents {
    /// The latest ephemeral ones, for peers that ask for them. The store has all others.
    ephemeral: Mutex<VecDeque<(EventId, Bytes)>>,
    /// Ids of the events that are being fetched.
    fetching: Mutex<HashSet<EventId>>,
    fetch_permits: PeerSemaphore,
}

impl Default for LargeEvents {
    fn default() -> Self {
        let fetch_permits = PeerSemaphore::new(MAX_CONCURRENT_FETCHES);
        Self { ephemeral: Mutex::default(), fetching: Mutex::default(), fetch_permits }
    }
}

impl LargeEvents {
    pub(crate) fn insert_ephemeral(&self, id: EventId, json: Bytes) {
        let mut events = self.ephemeral.lock();
        events.push_back((id, json));
        while events.iter().map(|(_, json)| json.len()).sum::<usize>() > MAX_CACHED_BYTES {
            events.pop_front();
        }
    }

    fn ephemeral(&self, id: &EventId) -> Option<Bytes> {
        self.ephemeral.lock().iter().find(|(cached, _)| cached == id).map(|(_, json)| json.clone())
    }
}

/// Fetches an announced event in a task, unless the event is being fetched or there is no permit for the peer.
pub(crate) fn spawn_fetch(ctx: &Arc<BridgeContext>, peer: PeerId, topic: TopicId, id: EventId) {
    let Some(permit) = ctx.large_events.fetch_permits.try_acquire(peer) else {
        return ctx.metrics.count_dropped(Dropped::NotFetched);
    };
    if !ctx.large_events.fetching.lock().insert(id) {
        return ctx.metrics.count_dropped(Dropped::Repeat);
    }
    let ctx = Arc::clone(ctx);
    ctx.clone().spawn(async move {
        match fetch(&ctx, peer, id).await {
            Ok(json) => {
                ctx.metrics.fetched.increment(1);
                let origin = Origin::Gossip { peer: *peer.as_bytes(), topic };
                let answers = submit_events(&ctx, vec![(json.clone(), origin)]).await;
                // Only after the engine has verified it.
                if matches!(answers[..], [Ok(Outcome::Ephemeral)]) {
                    ctx.large_events.insert_ephemeral(id, json);
                }
            }
            Err(reason) => ctx.metrics.count_dropped(reason),
        }
        ctx.large_events.fetching.lock().remove(&id);
        drop(permit);
    });
}

async fn fetch(ctx: &BridgeContext, peer: PeerId, id: EventId) -> Result<Bytes, Dropped> {
    let store = ctx.engine.store();
    let known = store.known_states(&[id], clock::now()).await.map_err(|_| Dropped::Failed)?;
    if known.iter().any(Option::is_some) || ctx.large_events.ephemeral(&id).is_some() {
        return Err(Dropped::Repeat);
    }
    let max_len = ctx.engine.config().admission.limits.event_bytes;
    for delay in ATTEMPT_DELAYS {
        sleep(delay).await;
        match timeout(REQUEST_TIMEOUT, request_event(ctx, peer, id, max_len)).await {
            Ok(Ok(json)) if json.is_empty() => {}
            Ok(Ok(json)) if json.len() > max_len => return Err(Dropped::Oversize),
            Ok(Ok(json)) => {
                let has_id = Event::from_json(&json).is_ok_and(|event| event.id == id);
                return if has_id { Ok(json) } else { Err(Dropped::Malformed) };
            }
            Ok(Err(error)) => tracing::debug!(%error, "can't fetch an announced event; retrying"),
            Err(_) => {}
        }
    }
    Err(Dropped::NotFetched)
}

async fn request_event(ctx: &BridgeContext, peer: PeerId, id: EventId, max_len: usize) -> Result<Bytes, GossipError> {
    let broken = |error: io::Error| GossipError::Unreachable { peer, reason: error.to_string() };
    let (mut stream, _connection) = ctx.open_stream(peer, RequestProtocol::LargeEvents).await?;
    stream.write_all(id.as_bytes()).await.map_err(broken)?;
    stream.shutdown().await.map_err(broken)?;
    let mut json = Vec::new();
    stream.take(max_len as u64 + 1).read_to_end(&mut json).await.map_err(broken)?;
    Ok(json.into())
}

/// Serves a peer that asks for an event by id.
pub(crate) async fn serve(ctx: &BridgeContext, peer: PeerId, mut stream: PeerStream) {
    match timeout(REQUEST_TIMEOUT, answer_request(ctx, peer, &mut stream)).await {
        // The connection closes with the stream, so wait until the peer has read to the end.
        Ok(Ok(())) => drop(timeout(REQUEST_TIMEOUT, stream.read(&mut [0])).await),
        Ok(Err(error)) => tracing::debug!(%error, "serving an event to a peer failed"),
        Err(_) => tracing::debug!("serving an event to a peer timed out"),
    }
}

async fn answer_request(ctx: &BridgeContext, peer: PeerId, stream: &mut PeerStream) -> io::Result<()> {
    let mut id = [0; 32];
    stream.read_exact(&mut id).await?;
    let found = find_shareable(ctx, EventId::from_bytes(id)).await;
    // Bytes given to a peer count against its rate limit like bytes received from it (G-6).
    if let Some(json) = found.filter(|json| ctx.inbox.is_within_rate(peer, json.len())) {
        stream.write_all(&json).await?;
        ctx.metrics.served.increment(1);
    }
    stream.shutdown().await
}

/// An event that peers may have: effective here, of a joined topic, neither protected nor private (E-10), and not
/// withheld (M-5).
async fn find_shareable(ctx: &BridgeContext, id: EventId) -> Option<Bytes> {
    let now = clock::now();
    let Some(found) = ctx.engine.store().get(&[id], now).await.ok()?.pop()? else {
        let is_expired = |json: &Bytes| Event::from_json(json).is_ok_and(|event| event.is_expired(now));
        return ctx.large_events.ephemeral(&id).filter(|json| !is_expired(json));
    };
    let is_joined = found.topics.iter().any(|topic| ctx.topics.get(topic).is_some());
    let visibility = ctx.engine.visibility().load();
    let is_shown = |event: &Event| visibility.shows(event, &found.topics, &Viewer::unauthenticated(), None);
    let may_pass = found.event.event().is_ok_and(|event| may_pass_on(&event) && is_shown(&event));
    (is_joined && may_pass).then_some(found.event.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_the_latest_events() {
        let cache = LargeEvents::default();
        let id = |number: u8| EventId::from_bytes([number; 32]);
        for number in 0..40 {
            cache.insert_ephemeral(id(number), Bytes::from(vec![b'x'; 1 << 20]));
        }
        assert!(cache.ephemeral(&id(39)).is_some() && cache.ephemeral(&id(24)).is_some());
        assert!(cache.ephemeral(&id(23)).is_none());
    }
}
