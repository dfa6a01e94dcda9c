//! Events too large to broadcast: announced by id, and fetched from a peer that announced them.
//!
//! A request is an id of 32 bytes; the answer is the event's JSON, or nothing.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use kukuri_domain::{Admission, Event, EventId, Origin, Refusal, TopicId, Viewer, sharing::may_pass_on};
use kukuri_engine::{clock, metrics::MetricLabel};
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
/// A peer that has not delivered an event after this time no longer keeps others from being asked.
const SLOW_REQUEST: Duration = Duration::from_secs(1);
const MAX_CONCURRENT_FETCHES: usize = 64;
/// Peers that are remembered per event, besides those that were asked.
const MAX_WAITING_ANNOUNCERS: usize = 8;
const MAX_CACHED_BYTES: usize = 16 << 20;

pub(crate) struct LargeEvents {
    /// The latest ephemeral ones, for peers that ask for them. The store has all others.
    ephemeral: Mutex<VecDeque<(EventId, Bytes)>>,
    fetching: Mutex<Fetching>,
    fetch_permits: PeerSemaphore,
}

impl Default for LargeEvents {
    fn default() -> Self {
        let fetch_permits = PeerSemaphore::new(MAX_CONCURRENT_FETCHES);
        Self { ephemeral: Mutex::default(), fetching: Mutex::default(), fetch_permits }
    }
}

/// A peer that announced an event, and the topic of the announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Announcer {
    peer: PeerId,
    topic: TopicId,
}

/// The events that are being fetched.
#[derive(Default)]
struct Fetching(HashMap<EventId, Announcers>);

#[derive(Default)]
struct Announcers {
    known: Vec<PeerId>,
    /// Those that were not asked yet.
    waiting: VecDeque<Announcer>,
}

impl Fetching {
    /// Whether the event is being fetched. Then the announcer waits, in case that those before it do not deliver.
    fn wait(&mut self, id: &EventId, announcer: Announcer) -> bool {
        let Some(announcers) = self.0.get_mut(id) else { return false };
        if announcers.waiting.len() < MAX_WAITING_ANNOUNCERS && !announcers.known.contains(&announcer.peer) {
            announcers.known.push(announcer.peer);
            announcers.waiting.push_back(announcer);
        }
        true
    }

    fn begin(&mut self, id: EventId, announcer: Announcer) {
        self.0.insert(id, Announcers { known: vec![announcer.peer], waiting: VecDeque::from([announcer]) });
    }

    /// The next peer to ask.
    fn next_announcer(&mut self, id: &EventId) -> Option<Announcer> {
        self.0.get_mut(id)?.waiting.pop_front()
    }

    fn end(&mut self, id: &EventId) {
        self.0.remove(id);
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

/// Fetches an announced event in a task. If the event is being fetched, its announcer is asked when the others are slow.
pub(crate) fn spawn_fetch(ctx: &Arc<BridgeContext>, peer: PeerId, topic: TopicId, id: EventId) {
    let announcer = Announcer { peer, topic };
    let mut fetching = ctx.large_events.fetching.lock();
    if fetching.wait(&id, announcer.clone()) {
        return ctx.metrics.count_dropped(Dropped::Repeat);
    }
    let Some(permit) = ctx.large_events.fetch_permits.try_acquire(peer) else {
        return ctx.metrics.count_dropped(Dropped::NotFetched);
    };
    fetching.begin(id, announcer);
    drop(fetching);
    let ctx = Arc::clone(ctx);
    ctx.clone().spawn(async move {
        match fetch(&ctx, id, peer).await {
            Ok((Announcer { peer, topic }, json)) => {
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
        ctx.large_events.fetching.lock().end(&id);
        drop(permit);
    });
}

/// Fetches an event from its announcers. The first one has a permit already.
async fn fetch(ctx: &BridgeContext, id: EventId, first: PeerId) -> Result<(Announcer, Bytes), Dropped> {
    let store = ctx.engine.store();
    let known = store.known_states(&[id], clock::now()).await.map_err(|_| Dropped::Failed)?;
    if known.iter().any(Option::is_some) || ctx.large_events.ephemeral(&id).is_some() {
        return Err(Dropped::Repeat);
    }
    let next = || ctx.large_events.fetching.lock().next_announcer(&id);
    first_delivered(next, |announcer| async move {
        let permits = &ctx.large_events.fetch_permits;
        let _permit = match announcer.peer == first {
            true => None,
            false => Some(permits.try_acquire(announcer.peer).ok_or(Dropped::NotFetched)?),
        };
        let json = fetch_from(ctx, announcer.peer, id).await?;
        check_delivered(&ctx.engine.config().admission, &announcer, id, &json)?;
        Ok((announcer, json))
    })
    .await
}

/// Checks that a peer has delivered the event that it announced, and no forgery (E-1). The engine would refuse anything else
/// only when no other announcer is asked any more. What the engine refuses for other reasons, it refuses from every peer.
fn check_delivered(admission: &Admission, announcer: &Announcer, id: EventId, json: &[u8]) -> Result<(), Dropped> {
    let reason = |refusal: Refusal| Dropped::from_value(refusal.label()).unwrap_or(Dropped::Malformed);
    let event = Event::from_json(json).map_err(reason)?;
    if event.id != id {
        return Err(Dropped::Malformed);
    }
    event.verify().map_err(reason)?;
    let Announcer { peer, topic } = announcer;
    let origin = Origin::Gossip { peer: *peer.as_bytes(), topic: topic.clone() };
    match admission.screen(event, origin, clock::now()) {
        Err(refusal @ Refusal::WrongTopic) => Err(reason(refusal)),
        _ => Ok(()),
    }
}

/// Asks the announcers of an event, one after the other, until one delivers: the next one when one has failed, or when all
/// that were asked are slow.
async fn first_delivered<T, F: Future<Output = Result<T, Dropped>>>(
    mut next: impl FnMut() -> Option<Announcer>,
    request: impl Fn(Announcer) -> F,
) -> Result<T, Dropped> {
    let mut requests = FuturesUnordered::new();
    let mut reason = Dropped::NotFetched;
    loop {
        requests.extend(next().map(&request));
        if requests.is_empty() {
            return Err(reason);
        }
        match timeout(SLOW_REQUEST, requests.next()).await {
            Ok(Some(Err(failed))) => reason = failed,
            Ok(Some(delivered)) => return delivered,
            Ok(None) | Err(_) => {}
        }
    }
}

async fn fetch_from(ctx: &BridgeContext, peer: PeerId, id: EventId) -> Result<Bytes, Dropped> {
    let max_len = ctx.engine.config().admission.limits.event_bytes;
    for delay in ATTEMPT_DELAYS {
        sleep(delay).await;
        match timeout(REQUEST_TIMEOUT, request_event(ctx, peer, id, max_len)).await {
            Ok(Ok(json)) if json.is_empty() => {}
            Ok(Ok(json)) if json.len() > max_len => return Err(Dropped::Oversize),
            Ok(Ok(json)) => return Ok(json),
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
    use iroh::SecretKey;
    use kukuri_testing::{TOPIC, note, topic};
    use tokio::time::Instant;

    use super::*;

    fn announcer(number: u8) -> Announcer {
        let topic = TopicId::new_unchecked("kukuri:global");
        Announcer { peer: SecretKey::from_bytes(&[number; 32]).public(), topic }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_deliver_does_not_hold_up_others_g6() {
        const NEVER: Duration = Duration::from_secs(3_600);
        let second = Duration::from_secs(1);
        // Of each announcer: when it announces, how long its answer takes, and whether it delivers.
        for (why, peers, expected) in [
            ("one is silent", vec![(0u32, NEVER, false), (0, Duration::ZERO, true)], Ok((2, second))),
            ("one fails", vec![(0, Duration::ZERO, false), (0, Duration::ZERO, true)], Ok((2, Duration::ZERO))),
            (
                "both are silent",
                vec![(0, NEVER, false), (0, NEVER, false), (5, Duration::ZERO, true)],
                Ok((3, 5 * second)),
            ),
            (
                "the first is slow but delivers first",
                vec![(0, 2 * second, true), (0, 5 * second, true)],
                Ok((1, 2 * second)),
            ),
            ("all fail", vec![(0, second, false), (0, Duration::ZERO, false)], Err(())),
        ] {
            let begun = Instant::now();
            let mut queue: VecDeque<_> = peers.iter().zip(1..).collect();
            let next = || {
                let is_due = queue.front().is_some_and(|((at, ..), _)| begun.elapsed() >= *at * second);
                if is_due { queue.pop_front().map(|(_, number)| announcer(number)) } else { None }
            };
            let request = |announced: Announcer| {
                let number = (1..=3).find(|number| announcer(*number) == announced).unwrap_or_default();
                let (_, takes, delivers) = peers[usize::from(number) - 1];
                async move {
                    sleep(takes).await;
                    if delivers { Ok(number) } else { Err(Dropped::NotFetched) }
                }
            };
            let delivered = first_delivered(next, request).await;
            let expected = expected.map(|(number, after)| (number, after.as_secs()));
            assert_eq!(delivered.map(|number| (number, begun.elapsed().as_secs())).map_err(drop), expected, "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_delivers_a_forgery_does_not_hold_up_others_g6() {
        // E-1
        let (admission, event, other) = (Admission::default(), note(1, "true").sign(), note(1, "other").sign());
        let forged = Event { content: "forged".to_owned(), ..event.clone() };
        let unsigned = Event { sig: other.sig, ..event.clone() };
        let announced =
            |number: u8, topic: &str| Announcer { topic: TopicId::new_unchecked(topic), ..announcer(number) };
        for (why, json, topic, reason) in [
            ("another content", forged.to_json(), topic(1), Dropped::Signature),
            ("another signature", unsigned.to_json(), topic(1), Dropped::Signature),
            ("another event", other.to_json(), topic(1), Dropped::Malformed),
            ("no event", Bytes::from_static(b"{}"), topic(1), Dropped::Malformed),
            ("a topic that the event does not name", event.to_json(), topic(2), Dropped::WrongTopic),
        ] {
            let first_of = async |peers: &[(u8, &str, &Bytes)]| {
                let mut waiting: VecDeque<_> =
                    peers.iter().map(|(number, topic, _)| announced(*number, topic)).collect();
                let request = |announcer: Announcer| {
                    let delivering = peers.iter().find(|(number, topic, _)| announced(*number, topic) == announcer);
                    let json = delivering.map(|(.., json)| (*json).clone()).unwrap_or_default();
                    let admission = &admission;
                    async move {
                        sleep(Duration::from_millis(900)).await;
                        check_delivered(admission, &announcer, event.id, &json).map(|()| json)
                    }
                };
                first_delivered(|| waiting.pop_front(), request).await
            };
            let forger = (1, topic.as_str(), &json);
            assert_eq!(first_of(&[forger]).await, Err(reason), "{why}");
            let honest = (2, TOPIC, &event.to_json());
            assert_eq!(first_of(&[forger, honest]).await.as_ref(), Ok(honest.2), "{why}: the next announcer is asked");
        }
    }

    #[test]
    fn announcers_of_an_event_are_remembered_once_and_bounded_g6() {
        let (id, mut fetching) = (EventId::from_bytes([1; 32]), Fetching::default());
        assert!(!fetching.wait(&id, announcer(1)), "it is not being fetched");
        fetching.begin(id, announcer(1));
        assert_eq!(fetching.next_announcer(&id), Some(announcer(1)));
        for number in (1..=2).chain(2..100) {
            assert!(fetching.wait(&id, announcer(number)));
        }
        let waiting: Vec<_> = std::iter::from_fn(|| fetching.next_announcer(&id)).collect();
        let expected: Vec<_> = (2..).map(announcer).take(MAX_WAITING_ANNOUNCERS).collect();
        assert_eq!(waiting, expected, "each once, in order");
        fetching.end(&id);
        assert_eq!(fetching.next_announcer(&id), None);
    }

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
