//! The engine, as a catch-up session sees it.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_catchup::{NoHistory, Node, Peer};
use kukuri_domain::{Event, EventId, Millis, Origin, Refusal, Timestamp, TopicId, Viewer, sharing::FloorHint};
use kukuri_engine::{Engine, Refused, clock};
use kukuri_store::{HintOutcome, Outcome, Raised, Store, StoreError};
use parking_lot::Mutex;

use crate::{peer::PeerId, topics::JoinedTopics};

const MAX_REFUSED_IDS: usize = 65_536;

pub(crate) struct EngineNode {
    engine: Arc<Engine>,
    topics: Arc<JoinedTopics>,
    refused: Mutex<RefusedIds>,
}

/// Ids of events that this node refuses permanently and its store does not record, so that sessions do not ask for them
/// again. The oldest are dropped first.
#[derive(Default)]
struct RefusedIds {
    ids: HashSet<EventId>,
    order: VecDeque<EventId>,
}

impl RefusedIds {
    fn insert(&mut self, id: EventId) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_REFUSED_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

impl EngineNode {
    pub(crate) fn new(engine: Arc<Engine>, topics: Arc<JoinedTopics>) -> Self {
        Self { engine, topics, refused: Mutex::default() }
    }
}

#[async_trait]
impl Node for EngineNode {
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
            joined.state.catch_up().peer_initiated(peer);
        }
        self.engine.shares_since(topic)
    }

    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool {
        self.engine.is_carried_by(event, topic)
    }

    fn may_send(&self, json: &Bytes, topic: &TopicId) -> bool {
        let visibility = self.engine.visibility().load();
        let is_shown =
            |event: Event| !visibility.withholds(&event, std::slice::from_ref(topic), &Viewer::stranger(), None);
        // Parsed only if something may be withheld.
        !visibility.has_overlay() || Event::from_json(json).is_ok_and(is_shown)
    }

    fn wants(&self, id: &EventId) -> bool {
        !self.refused.lock().ids.contains(id)
    }

    async fn submit(&self, peer: &Peer, events: Vec<Bytes>) -> Result<Vec<Outcome>, NoHistory> {
        let batch = events.iter().map(|json| (json.clone(), Origin::Sync { peer: *peer })).collect();
        let answers = self.engine.intake().submit(batch).await;
        let mut outcomes = Vec::with_capacity(answers.len());
        for (answer, json) in answers.into_iter().zip(events) {
            outcomes.push(match answer {
                Ok(outcome) => outcome,
                Err(Refused::Behind) => return Err(NoHistory),
                Err(refused) => {
                    if refused.is_permanent()
                        && let Ok(event) = Event::from_json(&json)
                    {
                        self.refused.lock().insert(event.id);
                    }
                    Outcome::Refused(if let Refused::Rule(refusal) = refused { refusal } else { Refusal::Failed })
                }
            });
        }
        Ok(outcomes)
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError> {
        let Raised { outcomes, .. } = self.engine.raise_floors(topic, hints).await?;
        Ok(outcomes)
    }
}
