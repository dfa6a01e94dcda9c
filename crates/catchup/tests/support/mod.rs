//! Nodes for the tests: a store and what is taken in, without a relay.

#![allow(dead_code, reason = "every test file compiles this module and uses its own part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

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
use kukuri_catchup::{NoHistory, Node, Peer, Report, Settings, initiate, respond};
use kukuri_domain::{Event, EventId, Millis, Origin, Refusal, Signature, Timestamp, TopicId, sharing::FloorHint};
use kukuri_store::{
    HintOutcome, Outcome, Store, StoreError, StoreRules,
    conformance::build::{NOW, admitted, admitted_from},
    model::ModelStore,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

/// Who the other one is.
pub(crate) const PEER: Peer = [9; 32];

/// Small, so that a few events make several parts and batches.
pub(crate) const SMALL: Settings = Settings {
    part_items: 4,
    batch_items: 3,
    frame_bytes: 1 << 16,
    items_per_second: u32::MAX,
    bytes_per_second: u32::MAX,
    patience: Duration::from_secs(20),
    longest: Duration::from_secs(60),
    rounds: 10_000,
};

pub(crate) struct TestNode {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) topics: BTreeSet<TopicId>,
    pub(crate) since: Timestamp,
    /// Everything that was given to be taken in, in order.
    pub(crate) taken: Mutex<Vec<EventId>>,
    /// The longest text of them.
    pub(crate) longest: AtomicUsize,
    /// So many events are taken in, then no more history is.
    pub(crate) room: AtomicUsize,
    pub(crate) is_behind: AtomicBool,
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
            taken: Mutex::default(),
            longest: AtomicUsize::new(0),
            room: AtomicUsize::new(usize::MAX),
            is_behind: AtomicBool::new(false),
        }
    }

    pub(crate) async fn hear(&self, events: &[&Event]) {
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

    async fn take(&self, _: &Peer, events: Vec<Bytes>) -> Result<Vec<Outcome>, NoHistory> {
        if self.is_behind.load(Relaxed) {
            return Err(NoHistory);
        }
        let mut outcomes = Vec::new();
        for json in events {
            let event = Event::from_json(&json).unwrap();
            self.taken.lock().unwrap().push(event.id);
            self.longest.fetch_max(json.len(), Relaxed);
            // Those that tests build are not signed.
            if event.sig != Signature::from_bytes([0; 64]) {
                outcomes.push(Outcome::Refused(Refusal::WrongSignature));
                continue;
            }
            let left = self.room.load(Relaxed);
            if left == 0 {
                outcomes.push(Outcome::Refused(Refusal::LiveOnly));
                continue;
            }
            self.room.store(left - 1, Relaxed);
            let batch = vec![admitted_from(&event, Origin::Sync { peer: PEER })];
            outcomes.extend(self.store.ingest(batch, NOW).await.unwrap().outcomes);
        }
        Ok(outcomes)
    }

    async fn raise(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError> {
        Ok(self.store.raise_floors(topic, hints, NOW).await?.outcomes)
    }
}

/// One node asks another, over a stream that holds little.
pub(crate) async fn catch_up(
    one: &TestNode,
    other: &TestNode,
    topic: &TopicId,
    settings: &Settings,
) -> (Report, Report) {
    let (here, there) = duplex(700);
    tokio::join!(initiate(here, PEER, topic, one, settings), respond(there, PEER, other, settings))
}

/// The same over a stream that breaks after so many bytes of what is said here.
pub(crate) async fn break_off(one: &TestNode, other: &TestNode, topic: &TopicId, after: usize) -> (Report, Report) {
    let (here, there) = duplex(700);
    let here = Brittle { stream: here, left: after };
    tokio::join!(initiate(here, PEER, topic, one, &SMALL), respond(there, PEER, other, &SMALL))
}

/// A stream that breaks.
pub(crate) struct Brittle {
    stream: DuplexStream,
    left: usize,
}

impl AsyncRead for Brittle {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Brittle {
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
