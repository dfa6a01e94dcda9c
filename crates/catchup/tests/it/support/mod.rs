//! Nodes for the tests: a store without a relay.

use std::{
    collections::BTreeSet,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_catchup::{Node, Peer, Report, SessionEnd, Settings, initiate, respond};
use kukuri_domain::{Event, EventId, Millis, Origin, Refusal, Signature, Timestamp, TopicId, sharing::FloorHint};
use kukuri_store::{
    HintOutcome, Outcome, StoreError, StoreRules,
    conformance::build::{NOW, admitted, admitted_from},
    model::ModelStore,
    port::*,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

pub(crate) const PEER: Peer = [9; 32];

/// Small, so that a few events make several parts and batches.
pub(crate) const SMALL: Settings = Settings {
    part_items: 4,
    batch_items: 3,
    max_frame_bytes: 1 << 16,
    items_per_second: u32::MAX,
    bytes_per_second: u32::MAX,
    io_timeout: Duration::from_secs(20),
    session_timeout: Duration::from_secs(60),
    max_messages: 10_000,
};

pub(crate) struct TestNode {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) topics: BTreeSet<TopicId>,
    pub(crate) since: Timestamp,
    /// Ids of all submitted events, in order.
    pub(crate) submitted: Mutex<Vec<EventId>>,
    /// Length of the longest submitted JSON.
    pub(crate) max_json_len: AtomicUsize,
    /// Events that are accepted before history is refused.
    pub(crate) capacity: AtomicUsize,
    pub(crate) is_behind: AtomicBool,
    /// An event that is withheld from peers.
    pub(crate) withheld: Option<EventId>,
}

impl TestNode {
    pub(crate) fn new(topics: impl IntoIterator<Item = TopicId>) -> Self {
        Self::on(Arc::new(ModelStore::new(StoreRules::default())), topics)
    }

    pub(crate) fn on(store: Arc<dyn Store>, topics: impl IntoIterator<Item = TopicId>) -> Self {
        Self {
            store,
            topics: topics.into_iter().collect(),
            since: Timestamp(0),
            submitted: Mutex::default(),
            max_json_len: AtomicUsize::new(0),
            capacity: AtomicUsize::new(usize::MAX),
            is_behind: AtomicBool::new(false),
            withheld: None,
        }
    }

    pub(crate) async fn store_events(&self, events: &[&Event]) {
        self.store.ingest(events.iter().map(|event| admitted(event)).collect(), NOW).await.unwrap();
    }
}

#[async_trait]
impl Node for TestNode {
    fn now(&self) -> Millis {
        NOW
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn shares(&self, peer: &Peer, topic: &TopicId) -> Option<Timestamp> {
        assert_eq!(*peer, PEER);
        self.topics.contains(topic).then_some(self.since)
    }

    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool {
        event.tags.values("t").any(|value| value == topic.as_str())
    }

    fn may_send(&self, json: &Bytes, _: &TopicId) -> bool {
        self.withheld.is_none_or(|withheld| Event::from_json(json).unwrap().id != withheld)
    }

    async fn submit(&self, _: &Peer, events: Vec<Bytes>) -> Option<Vec<Outcome>> {
        if self.is_behind.load(Relaxed) {
            return None;
        }
        let mut outcomes = Vec::new();
        for json in events {
            let event = Event::from_json(&json).unwrap();
            self.submitted.lock().unwrap().push(event.id);
            self.max_json_len.fetch_max(json.len(), Relaxed);
            // Events built by tests have a zero signature.
            if event.sig != Signature::from_bytes([0; 64]) {
                outcomes.push(Outcome::Refused(Refusal::WrongSignature));
                continue;
            }
            let left = self.capacity.load(Relaxed);
            if left == 0 {
                outcomes.push(Outcome::Refused(Refusal::LiveOnly));
                continue;
            }
            self.capacity.store(left - 1, Relaxed);
            let batch = vec![admitted_from(&event, Origin::Sync { peer: PEER })];
            outcomes.extend(self.store.ingest(batch, NOW).await.unwrap().outcomes);
        }
        Some(outcomes)
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError> {
        Ok(self.store.raise_floors(topic, hints, NOW).await?.outcomes)
    }
}

pub(crate) fn is_finished(report: &Report) -> bool {
    matches!(report.end, SessionEnd::Finished)
}

/// One node catches up with another, over a stream with a small buffer.
pub(crate) async fn catch_up(
    one: &TestNode,
    other: &TestNode,
    topic: &TopicId,
    settings: &Settings,
) -> (Report, Report) {
    let (here, there) = duplex(700);
    tokio::join!(initiate(here, PEER, topic, one, settings), respond(there, PEER, other, settings))
}

/// [`catch_up`] over a stream that breaks after the initiator has sent `after` bytes.
pub(crate) async fn break_off(one: &TestNode, other: &TestNode, topic: &TopicId, after: usize) -> (Report, Report) {
    let (here, there) = duplex(700);
    let here = BreakingStream { stream: here, left: after };
    tokio::join!(initiate(here, PEER, topic, one, &SMALL), respond(there, PEER, other, &SMALL))
}

/// A stream that breaks after `left` more bytes.
pub(crate) struct BreakingStream {
    stream: DuplexStream,
    left: usize,
}

impl AsyncRead for BreakingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for BreakingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let some = buf.len().min(self.left);
        if some == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, &buf[..some]);
        if let Poll::Ready(Ok(count)) = written {
            self.left -= count;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
