//! Events that are too large to broadcast: announced by id, and fetched from the peer that told of them.
//!
//! A request is an id of 32 bytes; the answer is the event's JSON, or nothing.

use std::{
    collections::{HashSet, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_domain::{Event, EventId, Origin, TopicId, sharing::may_pass_on};
use kukuri_relay::Relay;
use kukuri_store::Outcome;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{sleep, timeout},
};

use crate::{
    bridge::Shared,
    clock::now,
    error::GossipError,
    figures::{Dropped, Figures},
    inbox::{Inbox, take_in},
    peer::PeerId,
    places::Places,
    protocol::{PeerStream, Protocol},
    swarm::Swarm,
};

const ALPN: &[u8] = b"kukuri/event/1";
/// One request, from its beginning to its end.
const PATIENCE: Duration = Duration::from_secs(15);
/// Whoever told us may have been told only: it is asked again.
const TRIES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
/// Events that are fetched at a time.
const MOST_AT_ONCE: usize = 64;
/// Bytes of large ephemeral events that are kept for those who ask.
const KEPT_BYTES: usize = 16 << 20;

/// Large ephemeral events that passed lately. All others are in the store, which knows what became of them.
#[derive(Debug, Default)]
pub(crate) struct Large {
    kept: Mutex<VecDeque<(EventId, Bytes)>>,
}

impl Large {
    pub(crate) fn keep(&self, id: EventId, json: Bytes) {
        let mut kept = self.kept();
        kept.push_back((id, json));
        while kept.iter().map(|(_, json)| json.len()).sum::<usize>() > KEPT_BYTES {
            kept.pop_front();
        }
    }

    fn get(&self, id: &EventId) -> Option<Bytes> {
        self.kept().iter().find(|(kept, _)| kept == id).map(|(_, json)| json.clone())
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(EventId, Bytes)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is being fetched.
pub(crate) struct Fetching {
    places: Arc<Places>,
    going_on: Mutex<HashSet<EventId>>,
}

impl Default for Fetching {
    fn default() -> Self {
        Self { places: Places::new(MOST_AT_ONCE), going_on: Mutex::default() }
    }
}

impl Fetching {
    fn going_on(&self) -> MutexGuard<'_, HashSet<EventId>> {
        self.going_on.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches an event that a peer has told of, unless it is known or too many are being fetched, of it or of all.
pub(crate) fn fetch_soon(shared: &Arc<Shared>, peer: PeerId, topic: TopicId, id: EventId) {
    let Some(place) = shared.fetching.places.take(peer) else {
        return shared.figures.dropped(Dropped::NotFetched);
    };
    if !shared.fetching.going_on().insert(id) {
        return shared.figures.dropped(Dropped::Repeat);
    }
    let shared = Arc::clone(shared);
    shared.clone().spawn(async move {
        match fetch(&shared, peer, id).await {
            Ok(json) => {
                shared.figures.fetched.increment(1);
                let origin = Origin::Gossip { peer: *peer.as_bytes(), topic };
                let taken = take_in(&shared, vec![(json.clone(), origin)]).await;
                // It is what it says: it was verified.
                if matches!(taken[..], [Ok(Outcome::Ephemeral)]) {
                    shared.large.keep(id, json);
                }
            }
            Err(why) => shared.figures.dropped(why),
        }
        shared.fetching.going_on().remove(&id);
        drop(place);
    });
}

async fn fetch(shared: &Shared, peer: PeerId, id: EventId) -> Result<Bytes, Dropped> {
    let store = shared.relay.store();
    let known = store.recall(&[id], now()).await.map_err(|_| Dropped::Failed)?;
    if known.iter().any(Option::is_some) || shared.large.get(&id).is_some() {
        return Err(Dropped::Repeat);
    }
    let most = shared.relay.config().admission.limits.event_bytes;
    for wait in TRIES {
        sleep(wait).await;
        match timeout(PATIENCE, ask(shared, peer, id, most)).await {
            Ok(Ok(json)) if json.is_empty() => {}
            Ok(Ok(json)) if json.len() > most => return Err(Dropped::Oversize),
            Ok(Ok(json)) => {
                let is_it = Event::from_json(&json).is_ok_and(|event| event.id == id);
                return if is_it { Ok(json) } else { Err(Dropped::Malformed) };
            }
            Ok(Err(error)) => tracing::debug!(%error, "an announced event could not be fetched"),
            Err(_) => {}
        }
    }
    Err(Dropped::NotFetched)
}

async fn ask(shared: &Shared, peer: PeerId, id: EventId, most: usize) -> Result<Bytes, GossipError> {
    let broken = |error: io::Error| GossipError::Unreachable { peer: peer.to_string(), reason: error.to_string() };
    let mut stream = shared.open(peer, ALPN).await?;
    stream.write_all(id.as_bytes()).await.map_err(broken)?;
    stream.shutdown().await.map_err(broken)?;
    let mut json = Vec::new();
    stream.take(most as u64 + 1).read_to_end(&mut json).await.map_err(broken)?;
    Ok(json.into())
}

/// Gives peers the events they ask for.
pub(crate) struct Giving {
    pub(crate) relay: Arc<Relay>,
    pub(crate) large: Arc<Large>,
    pub(crate) swarm: Arc<Swarm>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) figures: Arc<Figures>,
}

impl std::fmt::Debug for Giving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Giving")
    }
}

impl Giving {
    /// An event that may be given away: one that is visible here, in a topic that is shared (E-10).
    async fn find(&self, id: EventId) -> Option<Bytes> {
        let now = now();
        let Some(found) = self.relay.store().get(&[id], now).await.ok()?.pop()? else {
            let is_over = |json: &Bytes| Event::from_json(json).is_ok_and(|event| event.is_expired(now));
            return self.large.get(&id).filter(|json| !is_over(json));
        };
        let is_shared = found.topics.iter().any(|topic| self.swarm.contains(topic));
        let may_pass = found.event.event().is_ok_and(|event| may_pass_on(&event));
        (is_shared && may_pass).then_some(found.event.json)
    }

    async fn answer(&self, peer: PeerId, stream: &mut PeerStream) -> io::Result<()> {
        let mut id = [0; 32];
        stream.read_exact(&mut id).await?;
        let found = self.find(EventId::from_bytes(id)).await;
        // What it takes counts as what it sends does (G-6).
        if let Some(json) = found.filter(|json| self.inbox.admits(peer, json.len())) {
            stream.write_all(&json).await?;
            self.figures.served.increment(1);
        }
        stream.shutdown().await
    }
}

#[async_trait]
impl Protocol for Giving {
    fn alpn(&self) -> &'static [u8] {
        ALPN
    }

    async fn serve(&self, peer: PeerId, mut stream: PeerStream) -> io::Result<()> {
        timeout(PATIENCE, self.answer(peer, &mut stream)).await.map_err(io::Error::from)??;
        // The connection ends with the stream: the other side reads to the end first.
        let _ = timeout(PATIENCE, stream.read(&mut [0])).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_events_are_kept_up_to_a_bound_the_latest_last() {
        let large = Large::default();
        let id = |number: u8| EventId::from_bytes([number; 32]);
        for number in 0..40 {
            large.keep(id(number), Bytes::from(vec![b'x'; 1 << 20]));
        }
        assert!(large.get(&id(39)).is_some() && large.get(&id(24)).is_some());
        assert!(large.get(&id(23)).is_none());
    }
}
