//! Bootstrap: the node's [`Profile`] from the configuration, and the task that signs and publishes the events about it
//! (B-1).
//!
//! The task looks at an event when the node starts, when the configuration or the topics change, and when half of the event's time is
//! over; what is stored decides whether a new one is issued. Topics are looked at a few at a time (T-10).

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use kukuri_bootstrap::{
    Cause, Endpoints, Operator, Profile, Role, Statement, Step,
    issuing::half_life,
    listing::is_withdrawn,
    next_step,
    statement::{DESCRIPTOR, TOPIC_SERVICE_TTL},
};
use kukuri_domain::{
    Event, Filter, Kind, Letter, Origin, PublicKey, RelayUrls, Timestamp, TopicId, Viewer, sign::public_key,
};
use kukuri_engine::Engine;
use kukuri_gossip::{PeerId, PeerPolicy};
use kukuri_store::{Outcome, Query, StoreError};
use secp256k1::Keypair;
use tokio::sync::watch;

use crate::config::{IndexPlace, Settings, Switch};

/// Topics that are looked at in one step.
const TOPICS_PER_STEP: usize = 20;
/// Between two steps. A thousand topics take some 10 s, and leave room for what clients publish.
const STEP_PAUSE: Duration = Duration::from_millis(200);
/// The clock may be set: the task looks at it at least this often.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Seconds after which an event that could not be published is tried again.
const RETRY_SECONDS: u64 = 60;
/// Own events that the start looks through for topics that have stopped meanwhile. Those of others end by themselves.
const MAX_OWN_EVENTS: usize = 50_000;
const EVENTS_PER_READ: usize = 200;

/// The profile of the node, rebuilt at each reload of the configuration.
pub(crate) struct ProfileSource {
    own_key: PublicKey,
    gossip_id: Option<PeerId>,
    current: watch::Sender<Arc<Profile>>,
}

impl ProfileSource {
    /// `gossip_id`: the key by which peers know the node; `None`: gossip is off.
    pub(crate) fn new(own_key: PublicKey, gossip_id: Option<PeerId>, settings: &Settings, public_url: &str) -> Self {
        let profile = settings.profile(own_key, gossip_id, public_url);
        Self { own_key, gossip_id, current: watch::Sender::new(Arc::new(profile)) }
    }

    /// The profile now, and its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Profile>> {
        self.current.subscribe()
    }

    /// Takes up another configuration.
    pub(crate) fn reload(&self, settings: &Settings, public_url: &str) {
        let profile = settings.profile(self.own_key, self.gossip_id, public_url);
        self.current.send_if_modified(|current| {
            let is_changed = **current != profile;
            if is_changed {
                *current = Arc::new(profile);
            }
            is_changed
        });
    }
}

impl Settings {
    fn profile(&self, node: PublicKey, gossip_id: Option<PeerId>, public_url: &str) -> Profile {
        let has_index = self.index_place() != IndexPlace::Off;
        let index = has_index.then_some(Role::Index);
        let parts = [("bootstrap", self.bootstrap.publish == Switch::On), ("relay", true), ("index", has_index)];
        let parts = parts.into_iter().chain([("gossip", gossip_id.is_some())]);
        Profile {
            node,
            is_published: self.bootstrap.publish == Switch::On,
            name: self.relay.name.clone(),
            description: self.relay.description.clone(),
            contact: self.relay.contact.clone(),
            operator: Operator {
                name: self.operator.name.clone(),
                pubkey: self.relay.pubkey.map(|key| key.0),
                jurisdiction: self.operator.jurisdiction.clone(),
                abuse_contact: self.operator.abuse_contact.clone(),
            },
            roles: [Role::Bootstrap, Role::Relay].into_iter().chain(index).collect(),
            capabilities: parts.filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect(),
            endpoints: Endpoints {
                http: RelayUrls::new(&[public_url]).http_url(),
                ws: public_url.trim_end_matches('/').to_owned(),
                p2p: gossip_id.and_then(|id| self.public_gossip_address(id)),
            },
            posting_policy: self.relay.posting_policy.as_ref().map(|url| url.as_ref().to_owned()),
            retention: self.retention(),
            shutdown: self.shutdown.notice(),
            known: self.bootstrap.known.iter().map(|key| key.0).collect(),
            access: self.bootstrap.access(),
        }
    }

    /// The address at which any peer can reach the node, as configured: what an interface happens to have would change at each start.
    fn public_gossip_address(&self, id: PeerId) -> Option<String> {
        let listen = self.gossip.listen;
        let is_specific = |ip: IpAddr| !ip.is_unspecified() && !ip.is_loopback();
        let own = (is_specific(listen.ip()) && listen.port() != 0).then_some(listen);
        let addresses: Vec<String> = own.iter().chain(&self.gossip.addresses).map(ToString::to_string).collect();
        let is_open = self.peer_policy() == PeerPolicy::Open && !addresses.is_empty();
        is_open.then(|| format!("{id}@{}", addresses.join(",")))
    }
}

/// When and why an event, or the events of a topic, are looked at next.
#[derive(Clone, Copy)]
struct Due {
    at: Timestamp,
    cause: Cause,
}

impl Due {
    const NOW: Self = Self { at: Timestamp(0), cause: Cause::Change };

    /// The same again, after a failure.
    fn again(self, now: Timestamp) -> Self {
        Self { at: Timestamp(now.0 + RETRY_SECONDS), ..self }
    }
}

/// Signs and publishes the events about the node.
pub(crate) struct Issuer {
    engine: Arc<Engine>,
    key: Keypair,
    profile: watch::Receiver<Arc<Profile>>,
    descriptor: Due,
    /// Every enabled topic, and those whose events are to be taken back.
    topics: BTreeMap<TopicId, Due>,
    /// The topics could not be read when they changed.
    is_behind: bool,
}

impl Issuer {
    pub(crate) fn new(engine: Arc<Engine>, key: Keypair, profile: watch::Receiver<Arc<Profile>>) -> Self {
        Self { engine, key, profile, descriptor: Due::NOW, topics: BTreeMap::new(), is_behind: true }
    }

    /// Runs until the node stops.
    pub(crate) async fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        let stopped = engine.stopped();
        tokio::pin!(stopped);
        let mut changes = self.engine.store().watch_subscriptions();
        if let Err(error) = self.find_own_topics().await {
            tracing::warn!(%error, "can't look for topics that have stopped; the node's events about them end by themselves");
        }
        loop {
            if self.is_behind {
                self.follow_topics().await;
            }
            let wait = self.step().await;
            tokio::select! {
                biased;
                () = &mut stopped => return,
                changed = self.profile.changed() => match changed {
                    Ok(()) => {
                        self.look_at_all();
                        self.follow_topics().await;
                    }
                    Err(_) => return,
                },
                Ok(()) = changes.changed() => {
                    // Topics that are opened one after the other are read once.
                    tokio::time::sleep(STEP_PAUSE).await;
                    changes.mark_unchanged();
                    self.follow_topics().await;
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Looks at everything again, because the configuration has changed.
    fn look_at_all(&mut self) {
        self.descriptor = Due::NOW;
        self.topics.values_mut().for_each(|due| *due = Due::NOW);
    }

    /// Finds the topics about which the node has told, to take back what is not true any more.
    async fn find_own_topics(&mut self) -> Result<(), StoreError> {
        let (store, now) = (self.engine.store(), super::now());
        let query = Query::of(self.own(Kind::TOPIC_SERVICE), Viewer::Node, now);
        let found = store.ids(&query, MAX_OWN_EVENTS).await?.unwrap_or_default();
        let ids: Vec<_> = found.into_iter().map(|(_, id)| id).collect();
        for ids in ids.chunks(EVENTS_PER_READ) {
            for bound in store.get(ids, now).await?.into_iter().flatten() {
                self.topics.extend(bound.topics.into_iter().map(|topic| (topic, Due::NOW)));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Notes which topics have been enabled or disabled. A node that publishes nothing has nothing to tell of them.
    async fn follow_topics(&mut self) {
        if !self.profile.borrow().is_published {
            self.is_behind = false;
            return;
        }
        let read = self.engine.reload_topics().await;
        self.is_behind = read.is_err();
        if let Err(error) = read {
            tracing::warn!(%error, "can't read the node's topics to tell of them; retrying in ten minutes at the latest");
            return;
        }
        let enabled = self.engine.enabled_topics();
        for (topic, due) in &mut self.topics {
            if enabled.binary_search(topic).is_err() {
                *due = Due::NOW;
            }
        }
        for topic in enabled {
            self.topics.entry(topic).or_insert(Due::NOW);
        }
    }

    /// Looks at what is due, a part of it. Returns when to do so again.
    async fn step(&mut self) -> Duration {
        let (profile, now) = (Arc::clone(&self.profile.borrow()), super::now().seconds());
        if self.descriptor.at <= now {
            self.descriptor = match self.look_at_descriptor(&profile, now).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(%error, "can't look at the node's descriptor; retrying in a minute");
                    self.descriptor.again(now)
                }
            };
        }
        let due = self.topics.iter().filter(|(_, due)| due.at <= now).take(TOPICS_PER_STEP);
        let due: Vec<(TopicId, Due)> = due.map(|(topic, due)| (topic.clone(), *due)).collect();
        if !due.is_empty()
            && let Err(error) = self.look_at_topics(&profile, &due, now).await
        {
            tracing::warn!(%error, "can't look at the events about topics; retrying in a minute");
            for (topic, due) in due {
                self.topics.insert(topic, due.again(now));
            }
        }
        let next =
            self.topics.values().map(|due| due.at).min().map_or(self.descriptor.at, |at| at.min(self.descriptor.at));
        Duration::from_secs(next.0.saturating_sub(now.0)).clamp(STEP_PAUSE, MAX_WAIT)
    }

    async fn look_at_descriptor(&self, profile: &Profile, now: Timestamp) -> Result<Due, StoreError> {
        let stored = self.read(self.own(Kind::NODE_DESCRIPTOR).with_tag(Letter::D, [DESCRIPTOR])).await?;
        let wanted = profile.is_published.then(|| Statement::descriptor(profile));
        let step = next_step(wanted, stored.first(), self.descriptor.cause, now);
        let rest = Timestamp(now.0 + TOPIC_SERVICE_TTL);
        let next = self.publish(vec![step], now).await.pop();
        Ok(next.map_or(self.descriptor.again(now), |at| Due { at: at.unwrap_or(rest), cause: Cause::Time }))
    }

    /// Looks at the events about a few topics, and notes when to do so again.
    async fn look_at_topics(
        &mut self,
        profile: &Profile,
        topics: &[(TopicId, Due)],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let filter = self.own(Kind::TOPIC_SERVICE).with_tag(Letter::T, topics.iter().map(|(topic, _)| topic.as_str()));
        let mut stored: HashMap<String, Event> = HashMap::new();
        for event in self.read(filter).await? {
            stored.insert(event.identifier().unwrap_or_default().to_owned(), event);
        }
        let (mut of_topics, mut steps) = (Vec::new(), Vec::new());
        for (topic, due) in topics {
            let is_served = profile.is_published && self.engine.is_topic_enabled(topic);
            for role in profile.roles.iter().filter(|_| is_served) {
                let wanted = Statement::topic_service(topic, *role);
                let stored = stored.remove(wanted.identifier());
                steps.push(next_step(Some(wanted), stored.as_ref(), due.cause, now));
                of_topics.push(topic);
            }
        }
        // The remaining events are of roles or topics that the node does not serve any more.
        for event in stored.values() {
            let of_event = |(topic, _): &&(TopicId, Due)| event.tags.values("t").any(|value| value == topic.as_str());
            let Some((topic, due)) = topics.iter().find(of_event) else { continue };
            steps.push(next_step(None, Some(event), due.cause, now));
            of_topics.push(topic);
        }
        let mut next: HashMap<&TopicId, Timestamp> = HashMap::new();
        for (topic, at) in of_topics.into_iter().zip(self.publish(steps, now).await) {
            if let Some(at) = at {
                next.entry(topic).and_modify(|next| *next = at.min(*next)).or_insert(at);
            }
        }
        for (topic, due) in topics {
            let due = match next.get(topic) {
                // After a refusal the reason to look is still there.
                Some(at) if at.0 <= now.0 + RETRY_SECONDS => Due { at: *at, ..*due },
                Some(at) => Due { at: *at, cause: Cause::Time },
                None if profile.is_published && self.engine.is_topic_enabled(topic) => {
                    Due { at: Timestamp(now.0 + TOPIC_SERVICE_TTL), cause: Cause::Time }
                }
                None => {
                    self.topics.remove(topic);
                    continue;
                }
            };
            self.topics.insert(topic.clone(), due);
        }
        Ok(())
    }

    /// Publishes what is to be issued. Returns for each step when to look again; `None`: there is no need.
    async fn publish(&self, steps: Vec<Step>, now: Timestamp) -> Vec<Option<Timestamp>> {
        let mut events = Vec::new();
        let mut next: Vec<Option<Timestamp>> = Vec::with_capacity(steps.len());
        for step in steps {
            next.push(match step {
                Step::Nothing => None,
                Step::Keep { until } => Some(until),
                Step::Issue { statement, created_at } => {
                    let event = statement.sign(&self.key, created_at);
                    let until = (!is_withdrawn(&event)).then(|| half_life(&event));
                    events.push((next.len(), event));
                    until
                }
            });
        }
        if events.is_empty() {
            return next;
        }
        let texts = events.iter().map(|(_, event)| (event.to_json(), Origin::Node)).collect();
        let answers = self.engine.intake().submit_batch(texts).await;
        let mut issued = 0;
        for ((place, event), answer) in events.into_iter().zip(answers) {
            let refusal = match answer {
                Ok(Outcome::Stored | Outcome::Duplicate | Outcome::Ephemeral) => {
                    issued += 1;
                    continue;
                }
                Ok(Outcome::Refused(refusal)) => refusal.to_string(),
                Err(refused) => refused.to_string(),
            };
            next[place] = Some(Timestamp(now.0 + RETRY_SECONDS));
            let d = event.identifier().unwrap_or_default();
            tracing::warn!(kind = event.kind.0, d, refusal, "an event about the node is refused; retrying in a minute");
        }
        tracing::info!(issued, "events about the node issued");
        next
    }

    /// A filter for own events of this kind.
    fn own(&self, kind: Kind) -> Filter {
        Filter::new().with_authors([public_key(&self.key)]).with_kinds([kind])
    }

    async fn read(&self, filter: Filter) -> Result<Vec<Event>, StoreError> {
        let query = Query::of(filter, Viewer::Node, super::now());
        self.engine.store().query(&query).await?.events.iter().map(|stored| stored.event()).collect()
    }
}
