//! Catch-up with peers (G-7): reconciles each joined topic with its neighbours, when a neighbour comes up, when messages were
//! lost, and at intervals.
//!
//! - `schedule`: when a topic is reconciled next, and with which neighbour. `node`: the engine, as a session sees it.

mod node;
mod schedule;

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use kukuri_catchup::{Settings, initiate, respond};
use kukuri_domain::TopicId;
use kukuri_engine::Engine;
use tokio::time::sleep;

pub(crate) use node::EngineNode;
pub(crate) use schedule::Schedule;

use crate::{
    bridge::BridgeContext,
    metrics::GossipMetrics,
    peer::PeerId,
    peer_semaphore::PeerSemaphore,
    protocol::{PeerStream, Protocol},
    settings::CatchUpSettings,
    topics::{JoinedTopics, TopicState},
};

const ALPN: &[u8] = b"kukuri/catchup/1";
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Sessions that this node initiates at a time.
const MAX_INITIATED_SESSIONS: usize = 4;
/// Sessions of peers that this node answers at a time.
const MAX_ANSWERED_SESSIONS: usize = 16;

/// Answers catch-up sessions of peers, and holds the state that sessions of both directions share.
pub(crate) struct CatchUpProtocol {
    node: EngineNode,
    settings: Settings,
    metrics: Arc<GossipMetrics>,
    answer_permits: Arc<PeerSemaphore>,
}

impl CatchUpProtocol {
    pub(crate) fn new(
        engine: Arc<Engine>,
        topics: Arc<JoinedTopics>,
        metrics: Arc<GossipMetrics>,
        settings: &CatchUpSettings,
    ) -> Self {
        let settings = Settings {
            items_per_second: settings.events_per_second,
            bytes_per_second: u32::try_from(settings.bytes_per_second).unwrap_or(u32::MAX),
            ..Settings::default()
        };
        let answer_permits = PeerSemaphore::new(MAX_ANSWERED_SESSIONS);
        Self { node: EngineNode::new(engine, topics), settings, metrics, answer_permits }
    }
}

impl fmt::Debug for CatchUpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchUpProtocol").finish_non_exhaustive()
    }
}

#[async_trait]
impl Protocol for CatchUpProtocol {
    fn alpn(&self) -> &'static [u8] {
        ALPN
    }

    async fn serve(&self, peer: PeerId, stream: PeerStream) -> io::Result<()> {
        // A peer without an answer tries again, or asks another peer.
        let Some(_permit) = self.answer_permits.try_acquire(peer) else { return Ok(()) };
        let report = respond(stream, *peer.as_bytes(), &self.node, &self.settings).await;
        self.metrics.count_session(&report);
        tracing::debug!(?report, "answered a catch-up session");
        Ok(())
    }
}

/// Starts catch-up sessions when they are due, for as long as the bridge runs.
pub(crate) async fn start_due_sessions(ctx: Arc<BridgeContext>) {
    let permits = PeerSemaphore::new(MAX_INITIATED_SESSIONS);
    let mut first = 0;
    loop {
        sleep(TICK_INTERVAL).await;
        let all = ctx.topics.all();
        // The next tick begins with the topics that found no permit.
        let count = all.len().max(1);
        for step in 0..all.len() {
            let joined = &all[(first + step) % count];
            if !joined.state.catch_up().is_due(Instant::now()) {
                continue;
            }
            if permits.is_exhausted() {
                first = (first + step) % count;
                break;
            }
            let Some(peer) = joined.state.start_catch_up(|peer| permits.has_permit_for(peer)) else { continue };
            let permit = permits.try_acquire(peer);
            // Not the `JoinedTopic`: the topic would be left only when the session ends.
            let (topic, state) = (joined.topic.clone(), Arc::clone(&joined.state));
            let ctx = Arc::clone(&ctx);
            ctx.clone().spawn(async move {
                run_session(&ctx, &topic, &state, peer).await;
                drop(permit);
            });
        }
    }
}

/// Runs one session, and schedules the next.
async fn run_session(ctx: &BridgeContext, topic: &TopicId, state: &TopicState, peer: PeerId) {
    let interval = ctx.settings.catch_up.interval;
    let catch_up = &ctx.catch_up;
    let stream = match ctx.open_stream(peer, ALPN).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "can't start a catch-up session; retrying later");
            return state.catch_up().session_failed(interval);
        }
    };
    let began = Instant::now();
    let report = initiate(stream, *peer.as_bytes(), topic, &catch_up.node, &catch_up.settings).await;
    catch_up.metrics.count_session(&report);
    if report.events_in + report.hints_in > 0 {
        let (events, floors) = (report.events_in, report.hints_in);
        tracing::info!(events, floors, end = %report.end, "caught up with a peer");
    } else {
        tracing::debug!(?report, "caught up with a peer");
    }
    state.catch_up().session_ended(&report, began.elapsed(), interval);
}
