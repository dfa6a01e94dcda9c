//! The relay, as a session of catch-up sees it.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_catchup::{NoHistory, Node, Peer};
use kukuri_domain::{Event, EventId, Millis, Origin, Refusal, Timestamp, TopicId, limits::Limit, sharing::FloorHint};
use kukuri_relay::{Refused, Relay};
use kukuri_store::{HintOutcome, Outcome, Raised, Store, StoreError};

use crate::{clock::now, peer::PeerId, swarm::Swarm};

/// Events that this node does not take by rules of its own, and leave no trace in the store. They are not asked for again
/// as long as it runs.
const MOST_UNWANTED: usize = 65_536;

pub(crate) struct RelayNode {
    relay: Arc<Relay>,
    swarm: Arc<Swarm>,
    unwanted: Mutex<Unwanted>,
}

#[derive(Default)]
struct Unwanted {
    ids: HashSet<EventId>,
    order: VecDeque<EventId>,
}

impl Unwanted {
    fn add(&mut self, id: EventId) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > MOST_UNWANTED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

impl RelayNode {
    pub(crate) fn new(relay: Arc<Relay>, swarm: Arc<Swarm>) -> Self {
        Self { relay, swarm, unwanted: Mutex::default() }
    }

    fn unwanted(&self) -> std::sync::MutexGuard<'_, Unwanted> {
        self.unwanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Node for RelayNode {
    fn now(&self) -> Millis {
        now()
    }

    fn store(&self) -> &dyn Store {
        self.relay.store()
    }

    async fn shares(&self, peer: &Peer, topic: &TopicId) -> Option<Timestamp> {
        // Who may talk to us at all, the endpoint knows.
        let joined = self.swarm.get(topic)?;
        if let Ok(peer) = PeerId::from_bytes(peer) {
            joined.around.plan().asked_by(peer);
        }
        self.relay.shares_since(topic)
    }

    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool {
        self.relay.is_carried_by(event, topic)
    }

    fn wants(&self, id: &EventId) -> bool {
        !self.unwanted().ids.contains(id)
    }

    async fn take(&self, peer: &Peer, events: Vec<Bytes>) -> Result<Vec<Outcome>, NoHistory> {
        let texts = events.iter().map(|json| (json.clone(), Origin::Sync { peer: *peer })).collect();
        let answers = self.relay.take_in(texts).await;
        let mut outcomes = Vec::with_capacity(answers.len());
        for (answer, json) in answers.into_iter().zip(events) {
            outcomes.push(match answer {
                Ok(outcome) => outcome,
                Err(Refused::Behind) => return Err(NoHistory),
                Err(refused) => {
                    if is_for_good(&refused)
                        && let Ok(event) = Event::from_json(&json)
                    {
                        self.unwanted().add(event.id);
                    }
                    Outcome::Refused(if let Refused::Rule(refusal) = refused { refusal } else { Refusal::Failed })
                }
            });
        }
        Ok(outcomes)
    }

    async fn raise(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError> {
        let Raised { outcomes, .. } = self.relay.raise_floors(topic, hints).await?;
        Ok(outcomes)
    }
}

/// Whether what has this id will be refused another time, too, whoever sends it: for what the id says of it, and not for how
/// things are here and now, nor for a signature, which may be true the next time.
fn is_for_good(refused: &Refused) -> bool {
    use Refusal::{
        DiskFull, Failed, Full, LiveOnly, Malformed, OverLimit, Shed, TopicNotEnabled, WrongId, WrongSignature,
    };
    match refused {
        Refused::Rule(OverLimit { limit: Limit::Ahead, .. } | Malformed(_) | WrongId | WrongSignature) => false,
        Refused::Rule(refusal) => !matches!(refusal, DiskFull | Failed | Full | LiveOnly | Shed | TopicNotEnabled),
        refused => matches!(refused, Refused::Denied),
    }
}
