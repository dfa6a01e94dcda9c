//! Catch-up with peers (G-7): reconciles each joined topic with its neighbours, when a neighbour comes up, when messages were
//! lost, and at intervals.
//!
//! - `schedule`: when a topic is reconciled next, and with which neighbour.
//! - `refused`: ids that are not asked for again.

mod refused;
mod schedule;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_catchup::{Node, Peer, Settings, initiate, respond};
use kukuri_domain::{Event, EventId, Millis, Origin, Refusal, Timestamp, TopicId, Viewer, sharing::FloorHint};
use kukuri_engine::{PublishRefused, clock};
use kukuri_store::{HintOutcome, Outcome, Store, StoreError};
use parking_lot::Mutex;
use tokio::time::sleep;

pub(crate) use refused::RefusedIds;
pub(crate) use schedule::Schedule;

use crate::{
    bridge::BridgeContext,
    peer::PeerId,
    peer_semaphore::PeerSemaphore,
    protocol::{PeerStream, RequestProtocol},
    settings::CatchUpSettings,
    topics::TopicState,
};

const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Sessions that this node initiates at a time.
const MAX_INITIATED_SESSIONS: usize = 4;

/// Answers a catch-up session of a peer.
pub(crate) async fn serve(ctx: &BridgeContext, peer: PeerId, stream: PeerStream) {
    let report = respond(stream, *peer.as_bytes(), ctx, &session_settings(ctx)).await;
    ctx.metrics.count_session(&report);
    tracing::debug!(?report, "answered a catch-up session");
}

fn session_settings(ctx: &BridgeContext) -> Settings {
    let CatchUpSettings { events_per_second, bytes_per_second, .. } = ctx.settings.catch_up;
    Settings {
        items_per_second: events_per_second,
        bytes_per_second: u32::try_from(bytes_per_second).unwrap_or(u32::MAX),
        ..Settings::default()
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
            if !joined.state.lock().catch_up.is_due(Instant::now()) {
                continue;
            }
            if permits.is_exhausted() {
                first = (first + step) % count;
                break;
            }
            let started = joined.state.lock().start_catch_up(|peer| permits.has_permit_for(peer));
            let Some(peer) = started else { continue };
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
async fn run_session(ctx: &BridgeContext, topic: &TopicId, state: &Mutex<TopicState>, peer: PeerId) {
    let interval = ctx.settings.catch_up.interval;
    let (stream, _connection) = match ctx.open_stream(peer, RequestProtocol::CatchUp).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::debug!(%error, "can't start a catch-up session; retrying later");
            return state.lock().catch_up.session_failed(interval);
        }
    };
    let began = Instant::now();
    let report = initiate(stream, *peer.as_bytes(), topic, ctx, &session_settings(ctx)).await;
    ctx.metrics.count_session(&report);
    if report.events_in + report.hints_in > 0 {
        let (events, floors) = (report.events_in, report.hints_in);
        tracing::info!(events, floors, end = %report.end, "catch-up session ended");
    } else {
        tracing::debug!(?report, "catch-up session ended");
    }
    state.lock().catch_up.session_ended(&report, began.elapsed(), interval);
}

/// The node, as a catch-up session sees it.
#[async_trait]
impl Node for BridgeContext {
    fn now(&self) -> Millis {
        clock::now()
    }

    fn store(&self) -> &dyn Store {
        self.engine.store()
    }

    async fn shares(&self, peer: &Peer, topic: &TopicId) -> Option<Timestamp> {
        // Every connected peer is allowed: the endpoint has checked it.
        let joined = self.topics.get(topic)?;
        if let Ok(peer) = PeerId::from_bytes(peer) {
            joined.state.lock().catch_up.peer_initiated(peer);
        }
        self.engine.shares_since(topic)
    }

    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool {
        self.engine.is_carried_by(event, topic)
    }

    fn may_send(&self, json: &Bytes, topic: &TopicId) -> bool {
        let visibility = self.engine.visibility().load();
        let is_shown =
            |event: Event| !visibility.withholds(&event, std::slice::from_ref(topic), &Viewer::unauthenticated(), None);
        // Parsed only if something may be withheld.
        !visibility.has_overlay() || Event::from_json(json).is_ok_and(is_shown)
    }

    fn wants(&self, id: &EventId) -> bool {
        !self.refused_ids.contains(id, &self.engine.config())
    }

    async fn submit(&self, peer: &Peer, events: Vec<Bytes>) -> Option<Vec<Outcome>> {
        let batch = events.iter().map(|json| (json.clone(), Origin::Sync { peer: *peer })).collect();
        let config = self.engine.config();
        let answers = self.engine.intake().submit_batch(batch).await;
        let mut outcomes = Vec::with_capacity(answers.len());
        for (answer, json) in answers.into_iter().zip(events) {
            if answer.as_ref().is_err_and(PublishRefused::is_permanent)
                && let Ok(event) = Event::from_json(&json)
            {
                self.refused_ids.insert(event.id, &config);
            }
            outcomes.push(match answer {
                Ok(outcome) => outcome,
                Err(PublishRefused::Behind) => return None,
                Err(PublishRefused::Rule(refusal)) => Outcome::Refused(refusal),
                Err(_) => Outcome::Refused(Refusal::Failed),
            });
        }
        Some(outcomes)
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError> {
        Ok(self.engine.raise_floors(topic, hints).await?.outcomes)
    }
}
